"""What operators do to the data is in the operation log."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.inputs.announced import METRIC, Exclusion
from sam_pipeline.spark_jobs.runs import exclusions
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import (
    LetterFilter,
    drop_dead_letters,
    restore_dead_letters,
)
from sam_pipeline.sql.loading.letters.edit import edit_dead_letter
from sam_pipeline.sql.loading.load import load
from sam_pipeline.sql.loading.replay import replay_dead_letters
from sam_pipeline.sql.operations.log import operations
from sam_pipeline.sql.removal.pruning.prune import prune
from sam_pipeline.sql.removal.pruning.request import Bounds
from sam_pipeline.sql.topology.downtime import announce, announcement, cancel
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import downtime


def recorded(engine: Engine) -> list[tuple[str, dict[str, str]]]:
    """Commands and arguments, oldest first."""
    return [(entry.command, json.loads(entry.arguments)) for entry in operations(engine)]


@pytest.fixture
def letter(engine: Engine) -> int:
    with acting_as("loader", engine) as loader:
        load(loader, Catalogue(loader), [metric_message(metric_result(metricStatus="FINE"))], NOW)
    [(number,)] = engine.connect().exec_driver_sql("SELECT dead_letter_id FROM dead_letter").all()
    return int(number)


def test_what_is_done_to_dead_letters_is_recorded(engine: Engine, letter: int) -> None:
    selected = LetterFilter(ids=[letter], state=None)
    with acting_as("loader", engine) as loader:
        drop_dead_letters(loader, selected, NOW)
        drop_dead_letters(loader, selected, NOW)  # nothing is open any more
        restore_dead_letters(loader, selected, NOW)
        edited = edit_dead_letter(loader, letter, NOW, metric_message(metric_result()).body)
        list(replay_dead_letters(loader, [letter, edited], lambda: NOW))

    assert recorded(engine) == [
        ("dead-letter drop", {"ids": str(letter), "letters": "1"}),
        ("dead-letter restore", {"ids": str(letter), "letters": "1"}),
        ("dead-letter edit", {"id": str(letter), "edited_as": str(edited)}),
        ("dead-letter replay", {"ids": str(edited)}),
    ]


def test_the_filters_of_a_selection_are_recorded(engine: Engine, letter: int) -> None:
    selected = LetterFilter(message_class="metricOutput", received_before=datetime.now(UTC))

    with acting_as("loader", engine) as loader:
        drop_dead_letters(loader, selected, NOW)

    [(_, arguments)] = recorded(engine)
    assert set(arguments) == {"class", "received_before", "letters"}


def test_downtimes_are_recorded_with_their_rows(engine: Engine) -> None:
    rows = announcement({name: str(value) for name, value in downtime().items()}, NOW)

    announce(engine, rows, NOW)
    cancel(engine, ["D1"], None, "wrong site", NOW)
    cancel(engine, ["D1"], None, "again", NOW)  # it is cancelled already

    (added, row), (cancelled, ended) = recorded(engine)
    assert (added, cancelled) == ("downtime add", "downtime cancel")
    assert (row["downtimeId"], row["siteName"]) == ("D1", "EXAMPLE-LCG2")
    assert (ended["downtimeId"], ended["endTime"]) == ("D1", ended["startTime"])


def test_exclusions_are_recorded_with_their_selectors(engine: Engine) -> None:
    hour = 3600
    exclusion = Exclusion(0, METRIC, "", "m", "A", "", "", 0, hour, "broken probe", "jane")

    with acting_as("reporter", engine) as reporter:
        with writing(reporter) as connection:
            number = exclusions.add(connection, exclusion, 2 * hour)
        with writing(reporter) as connection:
            exclusions.remove(connection, number, "joe", "repaired", 3 * hour)

    assert recorded(engine) == [
        (
            "exclusion add",
            {
                "exclusion_id": str(number),
                "kind": "metric",
                "metric_name": "m",
                "site": "A",
                "start": "1970-01-01T00:00:00Z",
                "end": "1970-01-01T01:00:00Z",
                "reason": "broken probe",
                "who": "jane",
            },
        ),
        (
            "exclusion remove",
            {"exclusion_id": str(number), "who": "joe", "reason": "repaired"},
        ),
    ]


@pytest.mark.parametrize("kind", ["results", "details", "audit", "dead_letters"])
def test_a_prune_is_recorded_but_not_its_dry_run(engine: Engine, kind: str) -> None:
    bounds = Bounds(**{kind: date(2026, 1, 1)})
    prune(engine, bounds, dry_run=True)

    prune(engine, bounds)

    assert recorded(engine) == [("prune", {f"{kind}_before": "2026-01-01"})]
