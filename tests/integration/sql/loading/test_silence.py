"""Probes that have stopped reporting are found, and only those."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading import fold as fold_module
from sam_pipeline.sql.loading.fold import (
    FORGOTTEN_AFTER,
    Survey,
    fold_all,
    survey,
)
from tests.support.builders import metric_result
from tests.support.database.sql_rows import downtime, insert, service_endpoint

NOW = datetime.now(UTC).replace(microsecond=0)
INTERVAL = timedelta(minutes=5)
LONG_AGO = "2026-01-01T00:00:00Z"


def report(engine: Engine, host: str, ages: Iterable[timedelta], **keys: str) -> None:
    """Results of these ages, each folded by itself like those of a daemon."""
    for age in ages:
        result = metric_result(hostName=host, timestamp=format_time(NOW - age), **keys)
        insert(engine, "metricOutput", {**result, "serviceFlavour": "CE"})
        fold_all(engine)


def regular(last: timedelta, interval: timedelta = INTERVAL, count: int = 6) -> list[timedelta]:
    return [last + interval * number for number in reversed(range(count))]


def look(engine: Engine, later: timedelta = timedelta(0)) -> Survey:
    return survey(engine, NOW + later, [])


def silent(engine: Engine, later: timedelta = timedelta(0)) -> list[str]:
    found = look(engine, later)
    assert found.silent == len(found.probes)
    return sorted(probe.name.host_name for probe in found.probes)


def test_a_probe_is_silent_after_one_and_a_half_intervals_until_its_next_result(
    engine: Engine,
) -> None:
    report(engine, "stopped", regular(INTERVAL * 1.6))
    report(engine, "late", regular(INTERVAL * 1.4))

    [probe] = look(engine).probes

    assert probe.name.host_name == "stopped"
    assert probe.last == NOW - INTERVAL * 1.6
    assert probe.limit_s == 1.5 * INTERVAL.total_seconds()
    report(engine, "stopped", [timedelta(0)])
    assert silent(engine) == []


def test_a_probe_is_known_after_four_results_and_forgotten_after_a_week(engine: Engine) -> None:
    """Also if they arrive at once."""
    report(engine, "three", regular(INTERVAL * 4, count=3))
    report(engine, "four", regular(INTERVAL * 4, count=4))
    ages = regular(INTERVAL * 2)
    results = [metric_result(hostName="at-once", timestamp=format_time(NOW - a)) for a in ages]
    insert(engine, "metricOutput", *results)
    fold_all(engine)

    assert silent(engine) == ["at-once", "four"]
    assert [probe.limit_s for probe in look(engine).probes] == [450, 450]
    assert silent(engine, FORGOTTEN_AFTER - INTERVAL * 5) == ["at-once", "four"]
    assert silent(engine, FORGOTTEN_AFTER - INTERVAL) == []


SECOND, NONE = timedelta(seconds=1), timedelta(0)
DAY, HOUR, MINUTE = 86400 * SECOND, 3600 * SECOND, 60 * SECOND


@pytest.mark.parametrize(
    ("ages", "punctual", "late"),
    [
        # Results repeated after a problem do not make the next one late.
        ([*regular(8 * MINUTE, count=20), 7 * MINUTE, 6 * MINUTE, 5 * MINUTE], NONE, 5 * MINUTE),
        # One long pause hardly changes the interval.
        ([*regular(DAY, count=10), *regular(INTERVAL * 3, count=2)], -450 * SECOND, -200 * SECOND),
        # It follows a longer one within some results.
        ([*regular(HOUR * 10, count=6), *regular(NONE, HOUR, count=10)], HOUR, HOUR * 1.6),
    ],
    ids=["repeated", "pause", "longer"],
)
def test_the_interval_is_that_of_recent_results(
    engine: Engine, ages: list[timedelta], punctual: timedelta, late: timedelta
) -> None:
    report(engine, "h", ages)

    assert silent(engine, punctual) == []
    assert silent(engine, late) == ["h"]


def test_an_endpoint_that_the_topology_no_longer_has_need_not_report(engine: Engine) -> None:
    past, unmonitored = {"validTo": format_time(NOW - INTERVAL)}, {"monitored": "N"}
    for host, membership in {"present": {}, "past": past, "unmonitored": unmonitored}.items():
        report(engine, host, regular(INTERVAL * 2))
        of_host = {"hostName": host, "serviceFlavour": "CE", "siteName": f"site of {host}"}
        endpoint = service_endpoint(validFrom=LONG_AGO, **of_host, **membership)
        insert(engine, "serviceEndpoint", endpoint)

    assert silent(engine) == ["present"]
    assert list(look(engine).sites) == ["site of present"]


@pytest.mark.parametrize(
    ("of", "ends_in", "expected"),
    [
        ({"hostName": "h", "serviceFlavour": "CE"}, 1, []),
        ({"hostName": "h", "serviceFlavour": "CE"}, -0.9, []),
        ({"hostName": "h", "serviceFlavour": "CE"}, -1.1, ["h"]),
        ({}, 1, []),
        ({"hostName": "h", "serviceFlavour": "SRM"}, 1, ["h"]),
        ({"siteName": "GRID"}, 1, []),
        ({"siteName": "GRID", "serviceFlavour": "SRM"}, 1, ["h"]),
        ({"siteName": "OTHER-GRID"}, 1, ["h"]),
    ],
)
def test_a_downtime_counts_until_an_hour_after_its_end(
    engine: Engine, of: dict[str, str], ends_in: float, expected: list[str]
) -> None:
    report(engine, "h", regular(timedelta(hours=2)))
    named = {"hostName": "h", "serviceFlavour": "CE", "gridSite": "GRID"}
    insert(engine, "serviceEndpoint", service_endpoint(**named, validFrom=LONG_AGO))
    now = datetime.now(UTC)  # NOW may be older, and the database has a clock of its own
    announced = downtime(
        startTime=format_time(now - timedelta(hours=5)),
        endTime=format_time(now + timedelta(hours=ends_in)),
    )
    whole = {"hostName": None, "serviceFlavour": None}

    insert(engine, "downtime", {**announced, **whole, **of})

    assert silent(engine) == expected


def test_a_site_has_the_time_of_its_newest_result(engine: Engine) -> None:
    report(engine, "a1", regular(INTERVAL * 3, count=1))
    report(engine, "a2", regular(INTERVAL * 2, count=1))
    for host, site in (("a1", "A"), ("a2", "A"), ("b1", "B")):
        topology = service_endpoint(
            hostName=host, siteName=site, serviceFlavour="CE", validFrom=LONG_AGO
        )
        insert(engine, "serviceEndpoint", topology)

    assert look(engine).sites == {"A": NOW - INTERVAL * 2, "B": None}


def test_gaps_are_excluded_by_the_limits_that_they_matter_to(engine: Engine) -> None:
    report(engine, "h", regular(INTERVAL * 2))
    ended_s, limit_s = 300.0, 450.0

    assert survey(engine, NOW, [(ended_s, 10 * limit_s)]).silent == 0
    assert survey(engine, NOW, [(ended_s, limit_s - 1)]).silent == 1
    assert survey(engine, NOW, [(limit_s, 10 * limit_s)]).silent == 1


def test_probes_are_counted_in_parts_and_the_last_ones_are_named(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "PART", 3)
    monkeypatch.setattr(fold_module, "MAX_NAMED", 2)
    for number in range(8):
        last = INTERVAL * 2 + timedelta(seconds=number)
        report(engine, f"h{number}", regular(last, count=4))

    found = look(engine)

    assert found.silent == 8
    assert [probe.name.host_name for probe in found.probes] == ["h0", "h1"]
