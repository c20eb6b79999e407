"""The loader judges probes by what it could see, once that is folded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.silence.coverage import Coverage, nothing_covered
from sam_pipeline.consumer.sinks import probe_watch
from sam_pipeline.consumer.sinks.probe_watch import ProbeWatch
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.fold import fold_all
from tests.support.builders import metric_result
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert

NOW = datetime.now(UTC).replace(microsecond=0)
INTERVAL = timedelta(minutes=5)


def report(engine: Engine) -> None:
    times = [NOW - INTERVAL * number for number in (6, 5, 4, 3, 2)]
    insert(
        engine,
        "metricOutput",
        *(metric_result(hostName="h", timestamp=format_time(time)) for time in times),
    )
    fold_all(engine)


def test_the_rights_of_a_loader_suffice_to_find_a_silent_probe(engine: Engine) -> None:
    report(engine)
    state = State()
    state.coverage = Coverage(NOW)
    with acting_as("loader", engine) as loader:
        ProbeWatch(loader, state).turn()

    [silence] = state.probe_silences.named
    assert silence.name.startswith("h ") and silence.last == NOW - 2 * INTERVAL
    assert state.probe_silences.silent == 1


def test_a_daemon_that_has_just_started_finds_none(engine: Engine) -> None:
    report(engine)
    state = State()
    watch = ProbeWatch(engine, state)
    watch.turn()  # before anything is known
    state.coverage = nothing_covered(NOW)

    watch.turn()

    assert state.probe_silences.silent == 0


def test_what_had_arrived_is_folded_before_it_is_judged(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(engine)
    folded = False
    monkeypatch.setattr(probe_watch, "is_folded", lambda engine, number: folded)
    state = State()
    state.coverage = Coverage(NOW)
    watch = ProbeWatch(engine, state)

    watch.turn()
    assert state.probe_silences.silent == 0
    state.coverage = Coverage(NOW - timedelta(days=1))  # judged is what was noted before
    folded = True
    watch.turn()

    assert state.probe_silences.silent == 1
