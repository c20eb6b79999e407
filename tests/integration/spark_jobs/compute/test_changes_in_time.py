"""Topology, groups and downtimes that change: the day before, the day of the change, the day after.

Every case has sites, hosts and groups of its own in one database; one run of the report computes
the three days. A case states its expected result, and the oracle checks all figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import Period, day_start, periods
from sam_pipeline.spark_jobs.runs.due import due_days
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.fold import take_changes
from tests.oracle.oracle import Figures, day_report
from tests.services.postgres import fresh_database
from tests.support.database.sql_rows import insert
from tests.support.reports.stored import StoredReport, query
from tests.worlds.model import (
    Downtime,
    Endpoint,
    Flavour,
    Profile,
    Result,
    SiteGroup,
    World,
    midnight,
)
from tests.worlds.profile_file import to_toml
from tests.worlds.records import downtime_record, endpoint_record, result_record, site_group_record

BEFORE, DAY, AFTER = DAYS = [date(2024, 2, 28) + timedelta(days=at) for at in range(3)]
PERIOD = Period(BEFORE, AFTER)
TODAY = AFTER + timedelta(days=1)
LONG_AGO = midnight(date(2023, 1, 1))
MIDNIGHT = midnight(DAY)
NOON = MIDNIGHT + timedelta(hours=12)
NEXT_MIDNIGHT = midnight(AFTER)
PROFILE = Profile("test", {"SRM": Flavour(("put",)), "CE": Flavour(("submit",))}, vo="ops")
LEVELS = ("endpoints", "services", "functions", "sites")


@dataclass(frozen=True)
class Belonging:
    """The announcements of one endpoint, and the sites where it counts on each day."""

    name: str
    announced: Sequence[Endpoint]
    counts_at: Sequence[str]


@dataclass(frozen=True)
class Grouping:
    """The announcements of one site, and its groups with their weights on each day."""

    name: str
    announced: Sequence[SiteGroup]
    weights: Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class Outage:
    """Announced downtimes, and the hours that they cover of each endpoint on each day."""

    name: str
    announced: Sequence[Downtime]
    hours: Mapping[str, Sequence[int]]


def at_site(
    site: str = "A", start: datetime = LONG_AGO, end: datetime | None = None, **more: Any
) -> Endpoint:
    return Endpoint(site, "h", "SRM", start, end, **more)


def in_group(
    group: str = "G",
    start: datetime = LONG_AGO,
    end: datetime | None = None,
    weight: int | None = None,
) -> SiteGroup:
    return SiteGroup("S", "federation", group, start, end, weight)


def downtime(start: int, end: int, announced: int = 0, **changes: str) -> Downtime:
    """A downtime of one endpoint.

    Args:
        start, end: hours after the midnight of DAY.
        announced: days after LONG_AGO.
    """
    chosen = {"downtime_id": "D", "site": "A", "host": "h1", "flavour": "SRM", **changes}
    return Downtime(
        start=MIDNIGHT + timedelta(hours=start),
        end=MIDNIGHT + timedelta(hours=end),
        announced_at=LONG_AGO + timedelta(days=announced),
        **chosen,
    )


BELONGINGS = [
    Belonging("appears at midnight", [at_site(start=MIDNIGHT)], ["", "A", "A"]),
    Belonging("appears at noon", [at_site(start=NOON)], ["", "", "A"]),
    Belonging("leaves at midnight", [at_site(end=MIDNIGHT)], ["A", "", ""]),
    Belonging("leaves at noon", [at_site(end=NOON)], ["A", "A", ""]),
    Belonging("exists from noon to noon", [at_site(start=NOON, end=NOON)], ["", "", ""]),
    Belonging(
        "leaves for a day", [at_site(end=MIDNIGHT), at_site(start=NEXT_MIDNIGHT)], ["A", "", "A"]
    ),
    Belonging(
        "leaves by a second row that has an end", [at_site(), at_site(end=NOON)], ["A", "A", ""]
    ),
    Belonging(
        "moves at midnight",
        [at_site("A", end=MIDNIGHT), at_site("B", start=MIDNIGHT)],
        ["A", "B", "B"],
    ),
    Belonging("moves at noon", [at_site("A", end=NOON), at_site("B", start=NOON)], ["A", "A", "B"]),
    Belonging("belongs to two sites", [at_site("A"), at_site("B")], ["AB", "AB", "AB"]),
    Belonging(
        "belongs to two sites and leaves one",
        [at_site("A"), at_site("B", end=NOON)],
        ["AB", "AB", "A"],
    ),
    Belonging(
        "leaves production at midnight",
        [at_site(production="Y"), at_site(start=MIDNIGHT, production="N")],
        ["A", "", ""],
    ),
    Belonging(
        "is no longer monitored at noon",
        [at_site(), at_site(start=NOON, monitored="N")],
        ["A", "A", ""],
    ),
    Belonging(
        "enters production by a row without the flag",
        [at_site(production="N"), at_site(start=MIDNIGHT)],
        ["", "A", "A"],
    ),
    Belonging(
        "is announced in the wrong order",
        [at_site(start=NOON, monitored="N"), at_site(start=MIDNIGHT), at_site(production="N")],
        ["", "A", ""],
    ),
    Belonging(
        "is out of production for a day, then the older row governs again",
        [at_site(), at_site(start=MIDNIGHT, end=NEXT_MIDNIGHT, production="N")],
        ["A", "", "A"],
    ),
    Belonging(
        "has a newer row of another VO, which does not govern",
        [at_site(vo="ops"), at_site(start=MIDNIGHT, vo="physics", production="N")],
        ["A", "A", "A"],
    ),
    Belonging(
        "leaves production for its VO, but not for all",
        [at_site(), at_site(vo="ops"), at_site(start=MIDNIGHT, vo="ops", production="N")],
        ["A", "A", "A"],
    ),
]

GROUPINGS = [
    Grouping("joins at midnight", [in_group(start=MIDNIGHT)], [{}, {"G": 0}, {"G": 0}]),
    Grouping("joins at noon", [in_group(start=NOON, weight=2)], [{}, {}, {"G": 2}]),
    Grouping("leaves at midnight", [in_group(end=MIDNIGHT)], [{"G": 0}, {}, {}]),
    Grouping("leaves at noon", [in_group(end=NOON)], [{"G": 0}, {"G": 0}, {}]),
    Grouping(
        "changes its group at midnight",
        [in_group("G", end=MIDNIGHT, weight=3), in_group("H", start=MIDNIGHT, weight=3)],
        [{"G": 3}, {"H": 3}, {"H": 3}],
    ),
    Grouping(
        "is in two groups, of one until noon",
        [in_group("G"), in_group("H", end=NOON, weight=1)],
        [{"G": 0, "H": 1}, {"G": 0, "H": 1}, {"G": 0}],
    ),
    Grouping(
        "gets another weight at midnight",
        [in_group(weight=3), in_group(start=MIDNIGHT, weight=1)],
        [{"G": 3}, {"G": 1}, {"G": 1}],
    ),
    Grouping(
        "gets another weight at noon, announced in the wrong order",
        [in_group(start=NOON, weight=9), in_group(weight=3)],
        [{"G": 3}, {"G": 3}, {"G": 9}],
    ),
]

ALL_OF_H1 = ("A SRM h1", "A CE h1", "B SRM h1")
ALL_OF_A = ("A SRM h1", "A CE h1", "A SRM h2")

OUTAGES = [
    Outage("over midnight", [downtime(-2, 3)], {"A SRM h1": [2, 3, 0]}),
    Outage("until midnight", [downtime(-2, 0)], {"A SRM h1": [2, 0, 0]}),
    Outage("from midnight to midnight", [downtime(0, 24)], {"A SRM h1": [0, 24, 0]}),
    Outage("longer than the day", [downtime(-30, 60)], {"A SRM h1": [24, 24, 24]}),
    Outage(
        "moved to the next day", [downtime(8, 10), downtime(32, 35, 1)], {"A SRM h1": [0, 0, 3]}
    ),
    Outage(
        "shortened to the day before",
        [downtime(-4, 8), downtime(-4, -1, 1)],
        {"A SRM h1": [3, 0, 0]},
    ),
    Outage("cancelled", [downtime(8, 10), downtime(8, 8, 1)], {}),
    Outage(
        "moved, announced in the wrong order",
        [downtime(32, 35, 1), downtime(8, 10)],
        {"A SRM h1": [0, 0, 3]},
    ),
    Outage(
        "cancelled and announced again",
        [downtime(8, 10), downtime(8, 8, 1), downtime(20, 26, 2)],
        {"A SRM h1": [0, 4, 2]},
    ),
    Outage(
        "two that overlap count once",
        [downtime(-2, 4), downtime(2, 6, downtime_id="E")],
        {"A SRM h1": [2, 6, 0]},
    ),
    Outage(
        "of a host at all its sites",
        [downtime(-1, 1, site="", flavour="")],
        {endpoint: [1, 1, 0] for endpoint in ALL_OF_H1},
    ),
    Outage(
        "of a host at one site",
        [downtime(-1, 1, flavour="")],
        {endpoint: [1, 1, 0] for endpoint in ("A SRM h1", "A CE h1")},
    ),
    Outage(
        "of a whole site",
        [downtime(-1, 1, host="", flavour="")],
        {endpoint: [1, 1, 0] for endpoint in ALL_OF_A},
    ),
    Outage(
        "of a flavour of a site",
        [downtime(-1, 1, host="")],
        {endpoint: [1, 1, 0] for endpoint in ("A SRM h1", "A SRM h2")},
    ),
    Outage(
        "from the whole site to one flavour of a host: two announcements",
        [
            downtime(-1, 1, host="", flavour=""),
            downtime(-1, -1, 1, host="", flavour=""),
            downtime(-1, 1, 1),
        ],
        {"A SRM h1": [1, 1, 0]},
    ),
    Outage("of a severity that does not count", [downtime(-1, 1, severity="WARNING")], {}),
]


class Announced:
    """A database for the cases, with the profile and the report."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.engine: Engine = make_engine(url, create=True)
        upgrade(self.engine)
        path = directory / "profile.toml"
        path.write_text(to_toml(PROFILE))
        self.profile = read_profile(path)
        self.report = StoredReport(url, PROFILE.name)

    def load(self, world: World) -> None:
        insert(self.engine, "serviceEndpoint", *map(endpoint_record, world.endpoints))
        insert(self.engine, "siteGroup", *map(site_group_record, world.site_groups))
        insert(self.engine, "downtime", *map(downtime_record, world.downtimes))
        insert(self.engine, "metricOutput", *map(result_record, world.results))

    def run(self, spark: SparkContext, period: Period) -> None:
        with writing(self.engine) as connection:
            change_no = take_changes(connection)
        now = day_start(TODAY)
        job.run(
            spark, self.engine, [self.profile], period, change_no, lambda: now, lambda stage: None
        )

    def due(self) -> list[date]:
        with reading(self.engine) as connection:
            return due_days(connection, PROFILE.name, TODAY)


def cases_world() -> World:
    """All cases side by side, each with names of its own."""
    endpoints = [
        replace(row, site=f"{row.site} {case.name}", host=_host("h", case))
        for case in BELONGINGS
        for row in case.announced
    ]
    endpoints += [
        Endpoint(f"S {case.name}", _host("s", case), "SRM", LONG_AGO) for case in GROUPINGS
    ]
    endpoints += [
        Endpoint(f"{site} {case.name}", _host(host, case), flavour, LONG_AGO)
        for case in OUTAGES
        for site, flavour, host in map(str.split, {*ALL_OF_H1, *ALL_OF_A})
    ]
    endpoints.append(Endpoint("HALF", "half", "SRM", LONG_AGO))
    groups = [
        replace(row, site=f"S {case.name}", group_name=f"{row.group_name} {case.name}")
        for case in GROUPINGS
        for row in case.announced
    ]
    names = {row.group_name for row in groups}
    groups += [SiteGroup("HALF", "federation", name, LONG_AGO) for name in sorted(names)]
    downtimes = [
        replace(
            row,
            downtime_id=f"{row.downtime_id} {case.name}",
            site=row.site and f"{row.site} {case.name}",
            host=row.host and _host(row.host, case),
        )
        for case in OUTAGES
        for row in case.announced
    ]
    return _world(endpoints, groups, downtimes)


def _world(
    endpoints: Sequence[Endpoint], groups: Sequence[SiteGroup], downtimes: Sequence[Downtime]
) -> World:
    """A world in which all endpoints are OK, but for one of site HALF, CRITICAL from noon on."""
    measured = sorted({(row.host, row.flavour) for row in endpoints})
    results = [
        Result(host, flavour, *PROFILE.flavours[flavour].metrics, "OK", midnight(day))
        for day in DAYS
        for host, flavour in measured
    ]
    results += [
        Result("half", "SRM", "put", "CRITICAL", midnight(day) + timedelta(hours=12))
        for day in DAYS
    ]
    return World(
        BEFORE, len(DAYS), tuple(endpoints), tuple(groups), tuple(downtimes), tuple(results)
    )


def _merged(world: World) -> World:
    """The world with each row once, that with an end if there is one, as the oracle expects."""

    def key(row: Endpoint) -> tuple[object, ...]:
        return row.site, row.host, row.flavour, row.vo, row.valid_from

    ended = {key(row) for row in world.endpoints if row.valid_to}
    rows = [row for row in world.endpoints if row.valid_to or key(row) not in ended]
    return replace(world, endpoints=tuple(rows))


def _host(name: str, case: Belonging | Grouping | Outage) -> str:
    return f"{name}.{'-'.join(re.findall('[a-z]+', case.name.lower()))}"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def announced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkContext
) -> Iterator[Announced]:
    """A database with all cases, and their report."""
    database = _database(request, tmp_path_factory.mktemp("cases"))
    database.load(cases_world())
    database.run(spark, PERIOD)
    yield database
    database.engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Announced]:
    database = _database(request, tmp_path)
    yield database
    database.engine.dispose()


def _database(request: pytest.FixtureRequest, directory: Path) -> Announced:
    if request.param == "sqlite":
        return Announced(f"sqlite:///{directory}/sam.db", directory)
    return Announced(fresh_database(request.getfixturevalue("postgres")), directory)


@pytest.mark.parametrize("case", BELONGINGS, ids=lambda case: case.name)
def test_an_endpoint_counts_at_its_sites_of_the_first_second_of_the_day(
    announced: Announced, case: Belonging
) -> None:
    counted = [
        "".join(
            sorted(
                site[0]
                for site, _, host in announced.report.figures("endpoints", day)
                if host == _host("h", case)
            )
        )
        for day in DAYS
    ]

    assert counted == case.counts_at


@pytest.mark.parametrize("case", GROUPINGS, ids=lambda case: case.name)
def test_a_site_counts_in_its_groups_of_the_first_second_of_the_day(
    announced: Announced, case: Grouping
) -> None:
    rows = query(
        announced.url,
        "SELECT day, group_name, weight FROM report_group_site WHERE site = :site",
        site=f"S {case.name}",
    )

    weights = [
        {row["group_name"][0]: row["weight"] for row in rows if str(row["day"]) == str(day)}
        for day in DAYS
    ]
    assert weights == case.weights


@pytest.mark.parametrize("case", OUTAGES, ids=lambda case: case.name)
def test_a_downtime_covers_the_hours_of_its_newest_announcement(
    announced: Announced, case: Outage
) -> None:
    hours: dict[str, list[int]] = {}
    for number, day in enumerate(DAYS):
        for (site, flavour, host), figures in announced.report.figures("endpoints", day).items():
            if site.endswith(f" {case.name}") and figures.seconds["DOWNTIME"]:
                name = f"{site[0]} {flavour} {host.partition('.')[0]}"
                hours.setdefault(name, [0, 0, 0])[number] = figures.seconds["DOWNTIME"] // 3600

    assert hours == case.hours


@pytest.mark.parametrize("day", DAYS, ids=str)
def test_all_figures_of_changing_topology_equal_the_oracles(
    announced: Announced, day: date
) -> None:
    expected = day_report(_merged(cases_world()), PROFILE, day)

    for level in LEVELS:
        assert announced.report.figures(level, day) == expected.figures(level)
    assert announced.report.groups(day) == expected.groups


def test_a_change_after_a_day_was_computed_makes_it_due_and_is_recorded(
    spark: SparkContext, empty: Announced
) -> None:
    endpoint, first = Endpoint("A", "h1", "SRM", LONG_AGO), downtime(8, 10)
    empty.load(_world([endpoint], [], [first]))
    empty.run(spark, PERIOD)
    computed = [_downtime_hours(empty, day) for day in DAYS]
    at_rest = empty.due()

    insert(empty.engine, "downtime", downtime_record(downtime(32, 35, 1)))  # it is moved
    moved = empty.due()
    for period in periods(moved):
        empty.run(spark, period)

    assert (computed, at_rest) == ([0, 2, 0], [])
    assert moved == [DAY, AFTER]
    assert [_downtime_hours(empty, day) for day in DAYS] == [0, 0, 3]
    changes = query(empty.url, "SELECT day, reason FROM report_change WHERE level = 'site'")
    assert {(str(row["day"]), row["reason"]) for row in changes} == {
        (str(day), "downtimes changed") for day in moved
    }
    assert empty.due() == []


def test_a_change_makes_the_days_it_touches_due(spark: SparkContext, empty: Announced) -> None:
    empty.load(_world([Endpoint("A", "h1", "SRM", LONG_AGO)], [], [downtime(32, 35)]))
    empty.run(spark, PERIOD)

    insert(empty.engine, "downtime", downtime_record(downtime(32, 32, 1)))  # it is cancelled
    assert empty.due() == [AFTER]

    late = Result("h1", "SRM", "put", "CRITICAL", NOON - timedelta(days=1))
    insert(empty.engine, "metricOutput", result_record(late))
    with writing(empty.engine) as connection:
        take_changes(connection)
    assert empty.due() == DAYS  # a result holds until the next day's first

    empty.run(spark, PERIOD)
    assert empty.due() == []

    insert(
        empty.engine, "serviceEndpoint", endpoint_record(Endpoint("B", "h1", "SRM", NEXT_MIDNIGHT))
    )
    assert empty.due() == [AFTER]


def _downtime_hours(database: Announced, day: date) -> int:
    figures: Mapping[Any, Figures] = database.report.figures("sites", day)
    return figures["A",].seconds["DOWNTIME"] // 3600
