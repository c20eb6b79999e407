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
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.oracle.oracle import Figures, day_report
from tests.services.postgres import fresh_database
from tests.support.database.sql_rows import insert
from tests.support.database.with_schema import with_schema
from tests.support.reports.database import url_of
from tests.support.reports.stored import Key, StoredReport, query
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


Row = Endpoint | SiteGroup | Downtime


@dataclass(frozen=True)
class Case:
    """Announcements in their order, and what they make of the three days.

    For endpoints the sites where it counts, for groups their weights, for downtimes the hours that
    they cover of each endpoint.
    """

    name: str
    expected: Any
    announced: tuple[Row, ...]

    def named(self, name: str) -> str:
        return f"{name}.{'-'.join(re.findall('[a-z]+', self.name.lower()))}"


def case(name: str, expected: Any, *announced: Row) -> Any:
    return pytest.param(Case(name, expected, announced), id=name)


def at(
    site: str = "A", start: datetime = LONG_AGO, end: datetime | None = None, **more: Any
) -> Endpoint:
    return Endpoint(site, "h", "SRM", start, end, **more)


def group(
    name: str = "G",
    start: datetime = LONG_AGO,
    end: datetime | None = None,
    weight: int | None = None,
) -> SiteGroup:
    return SiteGroup("S", "federation", name, start, end, weight)


def downtime(start: int, end: int, announced: int = 0, **changes: str) -> Downtime:
    """A downtime of one endpoint, in hours after the midnight of DAY; announced in days."""
    chosen = {"downtime_id": "D", "site": "A", "host": "h1", "flavour": "SRM", **changes}
    return Downtime(
        start=MIDNIGHT + timedelta(hours=start),
        end=MIDNIGHT + timedelta(hours=end),
        announced_at=LONG_AGO + timedelta(days=announced),
        **chosen,
    )


BELONGINGS = [
    case("appears at midnight", ["", "A", "A"], at(start=MIDNIGHT)),
    case("appears at noon", ["", "", "A"], at(start=NOON)),
    case("leaves at midnight", ["A", "", ""], at(end=MIDNIGHT)),
    case("leaves at noon", ["A", "A", ""], at(end=NOON)),
    case("exists from noon to noon", ["", "", ""], at(start=NOON, end=NOON)),
    case("leaves for a day", ["A", "", "A"], at(end=MIDNIGHT), at(start=NEXT_MIDNIGHT)),
    case("leaves by a second row that has an end", ["A", "A", ""], at(), at(end=NOON)),
    case("moves at midnight", ["A", "B", "B"], at("A", end=MIDNIGHT), at("B", MIDNIGHT)),
    case("moves at noon", ["A", "A", "B"], at("A", end=NOON), at("B", NOON)),
    case("belongs to two sites", ["AB", "AB", "AB"], at("A"), at("B")),
    case("belongs to two sites and leaves one", ["AB", "AB", "A"], at("A"), at("B", end=NOON)),
    case(
        "leaves production at midnight",
        ["A", "", ""],
        *(at(production="Y"), at(start=MIDNIGHT, production="N")),
    ),
    case("is not monitored from noon", ["A", "A", ""], at(), at(start=NOON, monitored="N")),
    case(
        "enters production by a row without the flag",
        ["", "A", "A"],
        *(at(production="N"), at(start=MIDNIGHT)),
    ),
    case(
        "is announced in the wrong order",
        ["", "A", ""],
        *(at(start=NOON, monitored="N"), at(start=MIDNIGHT), at(production="N")),
    ),
    case(
        "is out of production for a day, then the older row governs again",
        ["A", "", "A"],
        *(at(), at(start=MIDNIGHT, end=NEXT_MIDNIGHT, production="N")),
    ),
    case(
        "has a newer row of another VO, which does not govern",
        ["A", "A", "A"],
        *(at(vo="ops"), at(start=MIDNIGHT, vo="physics", production="N")),
    ),
    case(
        "leaves production for its VO, but not for all",
        ["A", "A", "A"],
        *(at(), at(vo="ops"), at(start=MIDNIGHT, vo="ops", production="N")),
    ),
]
GROUPINGS = [
    case("joins at midnight", [{}, {"G": 0}, {"G": 0}], group(start=MIDNIGHT)),
    case("joins at noon", [{}, {}, {"G": 2}], group(start=NOON, weight=2)),
    case("leaves the group at midnight", [{"G": 0}, {}, {}], group(end=MIDNIGHT)),
    case("leaves the group at noon", [{"G": 0}, {"G": 0}, {}], group(end=NOON)),
    case(
        "changes its group at midnight",
        [{"G": 3}, {"H": 3}, {"H": 3}],
        *(group("G", end=MIDNIGHT, weight=3), group("H", MIDNIGHT, weight=3)),
    ),
    case(
        "is in two groups, of one until noon",
        [{"G": 0, "H": 1}, {"G": 0, "H": 1}, {"G": 0}],
        *(group("G"), group("H", end=NOON, weight=1)),
    ),
    case(
        "gets another weight at midnight",
        [{"G": 3}, {"G": 1}, {"G": 1}],
        *(group(weight=3), group(start=MIDNIGHT, weight=1)),
    ),
    case(
        "gets another weight at noon, announced in the wrong order",
        [{"G": 3}, {"G": 3}, {"G": 9}],
        *(group(start=NOON, weight=9), group(weight=3)),
    ),
]
H1, H1_CE, H1_OF_B, H2 = ENDPOINTS = ("A SRM h1", "A CE h1", "B SRM h1", "A SRM h2")
NIGHT = [1, 1, 0]
OUTAGES = [
    case("over midnight", {H1: [2, 3, 0]}, downtime(-2, 3)),
    case("until midnight", {H1: [2, 0, 0]}, downtime(-2, 0)),
    case("from midnight to midnight", {H1: [0, 24, 0]}, downtime(0, 24)),
    case("longer than the day", {H1: [24, 24, 24]}, downtime(-30, 60)),
    case("moved to the next day", {H1: [0, 0, 3]}, downtime(8, 10), downtime(32, 35, 1)),
    case("shortened to the day before", {H1: [3, 0, 0]}, downtime(-4, 8), downtime(-4, -1, 1)),
    case("cancelled", {}, downtime(8, 10), downtime(8, 8, 1)),
    case("moved, in the wrong order", {H1: [0, 0, 3]}, downtime(32, 35, 1), downtime(8, 10)),
    case(
        "cancelled and announced again",
        {H1: [0, 4, 2]},
        *(downtime(8, 10), downtime(8, 8, 1), downtime(20, 26, 2)),
    ),
    case(
        "two that overlap count once",
        {H1: [2, 6, 0]},
        *(downtime(-2, 4), downtime(2, 6, downtime_id="E")),
    ),
    case(
        "of a host at all its sites",
        dict.fromkeys((H1, H1_CE, H1_OF_B), NIGHT),
        downtime(-1, 1, site="", flavour=""),
    ),
    case("of a host at one site", {H1: NIGHT, H1_CE: NIGHT}, downtime(-1, 1, flavour="")),
    case(
        "of a whole site",
        dict.fromkeys((H1, H1_CE, H2), NIGHT),
        downtime(-1, 1, host="", flavour=""),
    ),
    case("of a flavour of a site", {H1: NIGHT, H2: NIGHT}, downtime(-1, 1, host="")),
    case(
        "from the whole site to one flavour of a host: two announcements",
        {H1: NIGHT},
        downtime(-1, 1, host="", flavour=""),
        *(downtime(-1, -1, 1, host="", flavour=""), downtime(-1, 1, 1)),
    ),
    case("of a severity that does not count", {}, downtime(-1, 1, severity="WARNING")),
]


class Announced:
    """A database for the cases, with the profile and the report."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self.url = url_of(engine)
        path = directory / "profile.toml"
        path.write_text(to_toml(PROFILE))
        self.profile = read_profile(path)
        self.report = StoredReport(self.url, PROFILE.name)

    def load(self, world: World) -> None:
        insert(self.engine, "serviceEndpoint", *map(endpoint_record, world.endpoints))
        insert(self.engine, "siteGroup", *map(site_group_record, world.site_groups))
        insert(self.engine, "downtime", *map(downtime_record, world.downtimes))
        insert(self.engine, "metricOutput", *map(result_record, world.results))

    def run(self, spark: SparkContext, period: Period) -> None:
        with writing(self.engine) as connection:
            change_no = take_changes(connection)
        now, profiles = day_start(TODAY), [self.profile]
        job.run(spark, self.engine, profiles, period, change_no, lambda: now, lambda stage: None)

    def due(self) -> list[date]:
        with reading(self.engine) as connection:
            return due_days(connection, PROFILE.name, TODAY)

    def endpoints(self, day: date) -> Mapping[Key, Figures]:
        return self.report.figures("endpoints", day)


def cases_world() -> World:
    """All cases side by side, each with names of its own."""
    belongings, groupings, outages = (
        [row.values[0] for row in rows] for rows in (BELONGINGS, GROUPINGS, OUTAGES)
    )
    endpoints = [
        replace(row, site=f"{row.site} {case.name}", host=case.named("h"))
        for case in belongings
        for row in case.announced
    ]
    endpoints += [
        Endpoint(f"S {case.name}", case.named("s"), "SRM", LONG_AGO) for case in groupings
    ]
    endpoints += [
        Endpoint(f"{site} {case.name}", case.named(host), flavour, LONG_AGO)
        for case in outages
        for site, flavour, host in map(str.split, ENDPOINTS)
    ]
    endpoints.append(Endpoint("HALF", "half", "SRM", LONG_AGO))
    groups = [
        replace(row, site=f"S {case.name}", group_name=f"{row.group_name} {case.name}")
        for case in groupings
        for row in case.announced
    ]
    names = {row.group_name for row in groups}
    groups += [SiteGroup("HALF", "federation", name, LONG_AGO) for name in sorted(names)]
    downtimes = [
        replace(
            row,
            downtime_id=f"{row.downtime_id} {case.name}",
            site=row.site and f"{row.site} {case.name}",
            host=row.host and case.named(row.host),
        )
        for case in outages
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


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def announced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkContext
) -> Iterator[Announced]:
    """A database with all cases, and their report."""
    directory = tmp_path_factory.mktemp("cases")
    url = f"sqlite:///{directory}/sam.db"
    if request.param == "postgresql":
        url = fresh_database(request.getfixturevalue("postgres"))
    database = Announced(with_schema(url), directory)
    database.load(cases_world())
    database.run(spark, PERIOD)
    yield database
    database.engine.dispose()


@pytest.mark.parametrize("case", BELONGINGS)
def test_an_endpoint_counts_at_its_sites_of_the_first_second_of_the_day(
    announced: Announced, case: Case
) -> None:
    sites = [
        sorted(site[0] for site, _, host in announced.endpoints(day) if host == case.named("h"))
        for day in DAYS
    ]

    assert ["".join(of_day) for of_day in sites] == case.expected


@pytest.mark.parametrize("case", GROUPINGS)
def test_a_site_counts_in_its_groups_of_the_first_second_of_the_day(
    announced: Announced, case: Case
) -> None:
    statement = "SELECT day, group_name, weight FROM report_group_site WHERE site = :site"
    rows = query(announced.url, statement, site=f"S {case.name}")

    weights = [
        {row["group_name"][0]: row["weight"] for row in rows if str(row["day"]) == str(day)}
        for day in DAYS
    ]
    assert weights == case.expected


@pytest.mark.parametrize("case", OUTAGES)
def test_a_downtime_covers_the_hours_of_its_newest_announcement(
    announced: Announced, case: Case
) -> None:
    hours: dict[str, list[int]] = {}
    for number, day in enumerate(DAYS):
        for (site, flavour, host), figures in announced.endpoints(day).items():
            if site.endswith(f" {case.name}") and figures.seconds["DOWNTIME"]:
                name = f"{site[0]} {flavour} {host.partition('.')[0]}"
                hours.setdefault(name, [0, 0, 0])[number] = figures.seconds["DOWNTIME"] // 3600

    assert hours == case.expected


@pytest.mark.parametrize("day", DAYS, ids=str)
def test_all_figures_of_changing_topology_equal_the_oracles(
    announced: Announced, day: date
) -> None:
    expected = day_report(_merged(cases_world()), PROFILE, day)

    for level in ("endpoints", "services", "functions", "sites"):
        assert announced.report.figures(level, day) == expected.figures(level)
    assert announced.report.groups(day) == expected.groups


def test_a_change_after_a_day_was_computed_makes_the_days_it_touches_due(
    spark: SparkContext, engine: Engine, tmp_path: Path
) -> None:
    database = Announced(engine, tmp_path)
    database.load(_world([Endpoint("A", "h1", "SRM", LONG_AGO)], [], [downtime(8, 10)]))
    database.run(spark, PERIOD)
    at_rest = database.due()

    insert(engine, "downtime", downtime_record(downtime(32, 35, 1)))  # it is moved
    moved = database.due()
    for period in periods(moved):
        database.run(spark, period)

    assert (at_rest, moved, database.due()) == ([], [DAY, AFTER], [])
    figures = [database.report.figures("sites", day)["A",] for day in DAYS]
    assert [of_day.seconds["DOWNTIME"] // 3600 for of_day in figures] == [0, 0, 3]
    changes = query(database.url, "SELECT day, reason FROM report_change WHERE level = 'site'")
    assert {(str(row["day"]), row["reason"]) for row in changes} == {
        (str(day), "downtimes changed") for day in moved
    }
    insert(engine, "downtime", downtime_record(downtime(32, 32, 2)))  # it is cancelled
    joins = Endpoint("B", "h1", "SRM", NEXT_MIDNIGHT)
    assert database.due() == [AFTER]
    database.run(spark, Period(AFTER, AFTER))
    insert(engine, "serviceEndpoint", endpoint_record(joins))
    assert database.due() == [AFTER]
