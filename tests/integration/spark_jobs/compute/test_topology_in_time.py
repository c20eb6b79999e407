"""Topology, groups and downtimes on the day before, the day of and the day after a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.records.classes import DOWNTIME
from sam_pipeline.spark_jobs.inputs.announced import downtimes, members, memberships
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation, expect
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.imports.feed_changes import FeedSnapshot, Window
from sam_pipeline.sql.imports.feed_import import apply_snapshot
from sam_pipeline.sql.imports.feed_rows import FeedRows
from sam_pipeline.sql.imports.gocdb import read_downtimes, read_endpoints, read_groups
from sam_pipeline.sql.topology.downtime import announce, announcement, cancel
from tests.support.database.gocdb_files import (
    document,
    downtime,
    endpoints_of,
    listed_site,
    service_endpoint,
    write,
)
from tests.support.database.sql_rows import downtime as downtime_row

MIDNIGHT, SIX, EVENING = (f"2026-11-03T{hour}:00:00Z" for hour in ("00", "06", "18"))
FIRST = "2026-11-01T00:00:00Z"
DAYS = [date(2026, 11, day) for day in (2, 3, 4)]
NOW = "2026-11-20T00:00:00Z"
WINDOW = Window(FIRST, "2026-12-01T00:00:00Z")
HOUR = 3600
START = day_start(DAYS[0]) + 12 * HOUR  # 2 November, 12:00, to 4 November, 12:00
END = START + 48 * HOUR

Import = Callable[..., None]


@pytest.fixture
def import_gocdb(engine: Engine, tmp_path: Path) -> Import:
    """A function that imports documents as the snapshot of the time `at`."""

    def apply(at: str, endpoints: str = "", groups: str = "", downtimes: str = "") -> None:
        def path(text: str) -> list[Path]:
            return [write(tmp_path / "x.xml", text)]

        exports = FeedRows(
            read_endpoints(path(endpoints)) if endpoints else None,
            read_groups(path(groups)) if groups else {},
            read_downtimes(path(downtimes)) if downtimes else None,
        )
        apply_snapshot(
            engine, exports, FeedSnapshot("gocdb", at, NOW, window=WINDOW, accept_shrinking=True)
        )

    return apply


@pytest.fixture
def expected_on(engine: Engine, tmp_path: Path) -> Callable[[date], DayExpectation]:
    """A function that returns the expected endpoints and covers of a day."""
    file = tmp_path / "profile.toml"
    file.write_text('name = "x"\nvalidity_s = "off"\n[flavours.CE]\nmetrics = ["a"]\n')
    profile: Profile = read_profile(file)

    def expectation(day: date) -> DayExpectation:
        period = Period(day, day)
        with reading(engine) as connection:
            topology = memberships(connection, period)
            announced = downtimes(connection, period)
        return expect(day, topology, announced, [], profile, day_start(date(2026, 12, 1)))

    return expectation


def hours(expected_on: Callable[[date], DayExpectation]) -> list[Sequence[tuple[float, float]]]:
    """The downtimes of the three days, in hours of the day."""
    return [
        [
            ((cover.start - day_start(day)) / HOUR, (cover.end - day_start(day)) / HOUR)
            for cover in expected_on(day).covers
        ]
        for day in DAYS
    ]


@pytest.mark.parametrize(
    ("snapshots", "expected"),
    [
        ([(SIX, endpoints_of("bc"))], [["a", "b"], ["a", "b"], ["b", "c"]]),
        ([(MIDNIGHT, endpoints_of("bc"))], [["a", "b"], ["b", "c"], ["b", "c"]]),
        (  # what came back was absent in between
            [(MIDNIGHT, endpoints_of("b")), (EVENING, endpoints_of("ab"))],
            [["a", "b"], ["b"], ["a", "b"]],
        ),
        *(
            ([(SIX, document(service_endpoint("a", **{flag: "N"})))], [["a", "b"], ["a", "b"], []])
            for flag in ("production", "monitored")
        ),
    ],
)
def test_endpoints_and_their_flags_count_from_the_next_midnight(
    import_gocdb: Import,
    expected_on: Callable[[date], DayExpectation],
    snapshots: list[tuple[str, str]],
    expected: list[list[str]],
) -> None:
    for at, endpoints in [(FIRST, endpoints_of("ab")), *snapshots]:
        import_gocdb(at, endpoints=endpoints)

    hosts = [[e.host_name for e in expected_on(day).endpoints] for day in DAYS]
    assert hosts == expected


def test_a_site_changes_its_group_at_the_next_midnight(
    engine: Engine, import_gocdb: Import
) -> None:
    import_gocdb(FIRST, groups=document(listed_site("A", "NGI_SI")))
    import_gocdb(SIX, groups=document(listed_site("A", "NGI_CH")))

    with reading(engine) as connection:
        groups = [[member.group_name for member in members(connection, day)] for day in DAYS]

    assert groups == [["NGI_SI"], ["NGI_SI"], ["NGI_CH"]]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([downtime(start=START, end=END)], [[(12, 24)], [(0, 24)], [(0, 12)]]),
        ([], [[(12, 24)], [(0, 6)], []]),  # running: it ends with the snapshot
        ([downtime(start=START, end=END - DAY_S)], [[(12, 24)], [(0, 12)], []]),
        ([downtime(start=START + DAY_S, end=END)], [[], [(12, 24)], [(0, 12)]]),
    ],
)
def test_a_downtime_is_as_in_the_last_snapshot_of_gocdb(
    import_gocdb: Import,
    expected_on: Callable[[date], DayExpectation],
    later: list[str],
    expected: list[list[tuple[float, float]]],
) -> None:
    import_gocdb(
        FIRST,
        endpoints=document(service_endpoint()),
        downtimes=document(downtime(start=START, end=END)),
    )
    import_gocdb(SIX, downtimes=document(*later))

    assert hours(expected_on) == expected


def test_an_announced_downtime_can_be_moved_ended_and_cancelled_in_the_past(
    engine: Engine, import_gocdb: Import, expected_on: Callable[[date], DayExpectation]
) -> None:
    import_gocdb(FIRST, endpoints=document(service_endpoint()))
    now = datetime(2026, 11, 20, tzinfo=UTC)

    def add(start: str, end: str) -> None:
        fields = {**downtime_row(), "startTime": start, "endTime": end}
        values = {key: str(value) for key, value in fields.items() if key in DOWNTIME.keys}
        announce(engine, announcement(values, now), now)

    after = [hours(expected_on)]
    add("2026-11-02T12:00:00Z", "2026-11-04T12:00:00Z")
    after.append(hours(expected_on))
    add("2026-11-03T00:00:00Z", "2026-11-04T12:00:00Z")
    after.append(hours(expected_on))
    for end, reason in (("2026-11-03T18:00:00Z", "ended (jane)"), (None, "cancelled (jane)")):
        cancel(engine, ["D1"], end, reason, now)
        after.append(hours(expected_on))

    assert after == [
        [[], [], []],
        [[(12, 24)], [(0, 24)], [(0, 12)]],
        [[], [(0, 24)], [(0, 12)]],
        [[], [(0, 18)], []],
        [[], [], []],
    ]
