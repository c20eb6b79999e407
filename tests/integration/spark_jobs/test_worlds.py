"""Random small worlds: Spark, the archive, `now` and DuckDB agree with the oracle to the second.

tests/extended/spark_jobs/test_many_worlds.py compares many more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import combinations_with_replacement, product
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from pyspark import SparkContext
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.run import Run, Storage
from sam_pipeline.spark_jobs.config import ARCHIVE, AUTO
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import Period, month_of
from sam_pipeline.spark_jobs.rules.levels import FUNCTION, GROUP, SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs import seal
from sam_pipeline.spark_jobs.runs.now.folding import ThingNow, read_sites_folded
from sam_pipeline.spark_jobs.runs.origin import ResultOrigin
from sam_pipeline.spark_jobs.runs.published import day_figures
from sam_pipeline.spark_jobs.runs.summary import period_figures
from sam_pipeline.sql.archive import results as writing_results
from sam_pipeline.sql.archive.day import archive_day
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import fold_all, take_changes
from tests.oracle.batch import Batch, drawn_batch
from tests.oracle.check import Checker
from tests.oracle.databases import DIALECTS, Databases
from tests.oracle.duckdb_groups import Groups, groups
from tests.oracle.duckdb_report import compute, read_figures, read_timeline
from tests.oracle.duckdb_rules import KEYS, NAMES, SECONDS
from tests.oracle.oracle import STATUSES, GroupFigures, day_report, groups_over
from tests.oracle.spark import Arrangement, fill, run, stored_facts
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.reports.database import Grid
from tests.support.reports.published import Rows, published_figures, published_timeline
from tests.worlds import small
from tests.worlds.drawn_setting import DAYS, HOST, Setting
from tests.worlds.model import Endpoint, Flavour, Profile, Result, World, midnight
from tests.worlds.parquet_files import write_world
from tests.worlds.profile_file import to_toml
from tests.worlds.records import result_batches, topology_batches

T = TypeVar("T")
SEED = 39
BATCHES, SIZE = 4, 30
OF_ARCHIVE, OF_REVISIONS = 36, 44
"""Other seeds."""
_RUNS = text(
    "SELECT report, day, results_read, results_ignored, instances, results_digest,"
    " topology_digest, downtimes_digest, exclusions_digest, input_digest, downtimes, exclusions"
    " FROM report_run WHERE state = 'published' ORDER BY report, day"
)


@pytest.fixture(scope="module")
def databases(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return Databases(tmp_path_factory.mktemp("worlds"), fresh_database(postgres))


@pytest.fixture(scope="module")
def checker(spark: SparkContext, databases: Databases) -> Checker:
    return Checker(spark, databases)


@pytest.mark.parametrize("number", range(BATCHES))
def test_figures_timelines_and_trends_of_random_worlds_equal_the_oracles(
    checker: Checker, number: int
) -> None:
    """Every batch has its own order, copies, slices and groups; the databases take turns."""
    checker.check(SEED, number, SIZE)


def test_order_copies_slices_and_the_database_do_not_change_the_facts(checker: Checker) -> None:
    batch = drawn_batch(SEED, BATCHES, 20)
    arranged = [
        Arrangement(shuffled=1, copies=0.0, cores=1),
        Arrangement(shuffled=2, copies=1.0, cores=7, instances_per_task=30),
    ]

    on_sqlite, on_postgresql = map(checker.facts, [batch] * 2, arranged, DIALECTS)

    assert on_sqlite == on_postgresql


def test_a_database_with_a_single_result(checker: Checker) -> None:
    """It is of the last second before the first day, so that the second day has no result."""
    given = drawn_batch(SEED, 0, 1).setting
    profile = Profile("worlds", {"CE": Flavour(("ping",))})
    setting = replace(given, profiles=(profile,), exclusions=())
    start = midnight(setting.first_day)
    endpoint = Endpoint("A", HOST, "CE", start - timedelta(days=9))
    result = Result(HOST, "CE", "ping", "OK", start - timedelta(seconds=1), monitoring_host="m1")
    batch = Batch(setting, [World(setting.first_day, DAYS, (endpoint,), (), (), (result,))])

    facts = checker.facts(batch, Arrangement(), DIALECTS[0])

    assert facts == batch.oracle_facts()
    [first, second] = [
        facts["w000"]["timeline", "sites", "worlds", str(day), "w000-A"] for day in setting.days[:2]
    ]
    assert (first, second) == (((0, 86_400, "OK"),), ((86_400, 172_800, "MISSING"),))


@pytest.mark.parametrize("number", range(3))
def test_reports_from_the_archive_equal_those_from_the_database(
    spark: SparkContext,
    databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """The results and the reports from the archive are in two databases.

    The days are read in many small row groups, and computed in one job or in several.
    """
    monkeypatch.setattr(writing_results, "ROWS_PER_GROUP", 40)
    monkeypatch.setattr(writing_results, "ROWS_PER_FILE", 100)
    days_of_parts = {"sqlite": DAYS - number, "postgresql": DAYS}
    monkeypatch.setattr(Storage, "days_at_once", lambda self, *_: days_of_parts[self.dialect])
    batch = drawn_batch(OF_ARCHIVE, number, 20)
    arrangement = Arrangement(
        number, cores=1 + number, instances_per_task=(50_000, 300, 100)[number]
    )
    store = local_store(tmp_path)
    with databases.empty(DIALECTS[number % 2]) as engine:
        fill(engine, batch, arrangement)
        archive(engine, store, days_read(batch.setting))
        run(spark, engine, batch, arrangement, tmp_path)
        of_database = published(engine, batch.setting)

    with databases.empty(DIALECTS[0]) as figures:
        archived = chosen(figures, store, ARCHIVE, batch)
        run(spark, figures, batch, arrangement, tmp_path, archived)
        facts, runs = published(figures, batch.setting)

    assert (facts, runs) == of_database
    of_oracle = batch.oracle_facts().values()
    assert facts == {fact: value for of_world in of_oracle for fact, value in of_world.items()}


@pytest.mark.parametrize("from_archive", [(0, 2), (-1, 1), (-6, -5, -2, 1)])
def test_days_of_both_sources_make_one_report(
    spark: SparkContext, databases: Databases, tmp_path: Path, from_archive: tuple[int, ...]
) -> None:
    """Days are numbered from the first one of the report; -1 is the day before it."""
    batch = drawn_batch(OF_ARCHIVE, 4, 20)
    store = local_store(tmp_path)
    days = [batch.setting.first_day + timedelta(days=number) for number in from_archive]
    with databases.empty("sqlite") as engine:
        fill(engine, batch, Arrangement())
        archive(engine, store, days)
        run(spark, engine, batch, Arrangement(), tmp_path)
        before = published(engine, batch.setting)

        archived = chosen(engine, store, AUTO, batch)
        run(spark, engine, batch, Arrangement(), tmp_path, archived)

        assert set(archived.manifests) == {*days} & {*days_read(batch.setting)}
        assert published(engine, batch.setting) == before


@pytest.mark.parametrize("number", range(2))
def test_each_revision_keeps_the_figures_of_what_was_known_when_it_was_sealed(
    spark: SparkContext,
    databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    check_revisions(spark, databases, tmp_path, monkeypatch, drawn_batch(OF_REVISIONS, number, 15))


def check_revisions(
    spark: SparkContext,
    databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: Batch,
) -> None:
    """Half of the results, downtimes, exclusions and members of groups arrive after a seal."""
    number = batch.setting.first_day.toordinal()
    random = Random(number)
    known = replace(batch, worlds=[halved(world, random) for world in batch.worlds])
    reports = [profile.name for profile in batch.profiles]
    monkeypatch.setattr(seal, "complete_reports", lambda *_: reports)  # whole months would be many
    of_oracle = [
        {fact: value for of_world in of.oracle_facts().values() for fact, value in of_world.items()}
        for of in (known, batch)
    ]
    first_day = batch.setting.first_day
    months = [
        [day for day in batch.setting.days if day.replace(day=1) == first]
        for first in sorted({day.replace(day=1) for day in batch.setting.days})
    ]

    with databases.empty(DIALECTS[number % 2]) as engine:
        for revision, of in enumerate((known, batch), start=1):
            fill(engine, of, Arrangement(shuffled=revision))
            run(spark, engine, batch, Arrangement(), tmp_path)
            assert dict(stored_facts(engine, first_day)) == of_oracle[0]
            with writing(engine) as connection:
                for days in months:
                    month = month_of(days[0])
                    seal.seal(connection, None, month, "Jane", "late results", 1_800_000_000)
        assert dict(stored_facts(engine, first_day)) == of_oracle[1] != of_oracle[0]
        kept = [dict(of_revision(engine, reports, months, number)) for number in (1, 2)]

    for facts, expected in zip(kept, of_oracle, strict=True):
        assert facts == {fact: expected.get(fact) for fact in facts}
        sites = sum(fact[:2] == ("figures", "sites") for fact in expected)
        assert sites == sum(fact[0] == "figures" for fact in facts)


def halved(world: World, random: Random) -> World:
    """The world without a half of each kind of rows, but with all endpoints."""

    def half(rows: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(row for row in rows if random.random() < 0.5)

    return replace(
        world,
        results=half(world.results),
        downtimes=half(world.downtimes),
        exclusions=half(world.exclusions),
        site_groups=half(world.site_groups),
    )


def of_revision(
    engine: Engine, reports: Sequence[str], months: Sequence[Sequence[date]], revision: int
) -> Iterator[tuple[tuple[str, ...], object]]:
    """The figures of sites by day, and those of groups over the days of each month."""
    with reading(engine) as connection:
        for report, days in product(reports, months):
            period = Period(days[0], days[-1])
            of_days = day_figures(connection, report, SITE, period, revision=revision)
            for day in of_days:
                seconds = {status: getattr(day.seconds, status.lower()) for status in STATUSES}
                values = map(rounded, (day.seconds.availability, day.seconds.reliability))
                yield ("figures", "sites", report, str(day.day), *day.names), (seconds, *values)
            for figure in period_figures(connection, report, GROUP, period, revision=revision):
                values = map(rounded, (figure.availability, figure.reliability))
                assert figure.sites_expected is not None and figure.sites_known is not None
                means = GroupFigures(*values, figure.sites_expected, figure.sites_known)
                yield ("groups", report, str(days[0]), str(days[-1]), *figure.names), means


def chosen(engine: Engine, store: LocalStore, source: str, batch: Batch) -> ArchivedDays:
    with reading(engine) as connection:
        period = Period(batch.setting.days[0], batch.setting.days[-1])
        origin = ResultOrigin(source, store)
        return origin.archived_days(connection, period, batch.setting.days_before)


def local_store(directory: Path) -> LocalStore:
    root = directory / "archive"
    root.mkdir()
    return LocalStore(root)


def archive(engine: Engine, store: LocalStore, days: list[date]) -> None:
    with writing(engine) as connection:
        change_no = take_changes(connection)
    for day in days:
        archive_day(engine, store, day, change_no)


def days_read(setting: Setting) -> list[date]:
    before = range(setting.days_before, 0, -1)
    return [*(setting.first_day - timedelta(days=number) for number in before), *setting.days]


def published(engine: Engine, setting: Setting) -> tuple[Mapping[Any, Any], list[Any]]:
    """All facts of the report views, and what the published runs have read."""
    with reading(engine) as connection:
        runs = [list(map(str, row)) for row in connection.execute(_RUNS)]
    return dict(stored_facts(engine, setting.first_day)), runs


@pytest.mark.parametrize("number", range(BATCHES))
def test_now_is_the_status_of_the_report_at_any_moment_of_each_day(
    databases: Databases, tmp_path: Path, number: int
) -> None:
    """There are later results, which must not count. One of the moments is the last of the day."""
    batch, random = drawn_batch(SEED, number, 15), Random(number)
    facts = [fact for of_world in batch.oracle_facts().values() for fact in of_world.items()]

    with databases.empty(DIALECTS[number % 2]) as engine:
        fill(engine, batch, Arrangement(shuffled=number))
        fold_all(engine)
        for report, day in ((p, day) for p in batch.profiles for day in batch.setting.days):
            (tmp_path / "profile.toml").write_text(to_toml(report))
            profile = read_profile(tmp_path / "profile.toml")
            end = min(midnight(day) + timedelta(days=1), batch.setting.until)
            last = int((end - midnight(day)).total_seconds()) - 1
            second = random.choice((last, random.randint(0, last)))
            at = midnight(day) + timedelta(seconds=second)
            with reading(engine) as connection:
                sites = read_sites_folded(connection, profile, int(at.timestamp()))
            statuses = {
                (f"{thing.level}s", *thing.names): thing.status
                for site in sites
                for thing in things(site.thing)
            }

            # The report also has timelines of flavours that serve no function, and so no site.
            assert statuses == {
                (level, *names): status_at(timeline, at - midnight(batch.setting.first_day))
                for (kind, level, *names), timeline in facts
                if kind == "timeline" and names[:2] == [report.name, str(day)]
                for names in [names[2:]]
                if level in (f"{SITE}s", f"{FUNCTION}s") or profile.functions_of(names[1])
            }


def status_at(timeline: Any, since: timedelta) -> str:
    second = since.total_seconds()
    return next(str(status) for start, end, status in timeline if start <= second < end)


def things(thing: ThingNow) -> Iterator[ThingNow]:
    yield thing
    for child in thing.children:
        yield from things(child)


# DuckDB does not know thresholds, own operations, notice and excluded monitoring hosts. -----------


@pytest.mark.parametrize("number", range(BATCHES))
def test_duckdb_agrees_with_the_oracle_on_random_worlds(number: int, tmp_path: Path) -> None:
    """On days that are over, and on those that end at the time of the run."""
    batch = drawn_batch(SEED, number, 12)
    world, profile = plain(batch)

    write_world(tmp_path, world, profile)
    compute(tmp_path, world.first_day, world.last_day, batch.setting.until)

    expected = oracle_rows(world, profile, batch.setting.until)
    assert (read_figures(tmp_path), read_timeline(tmp_path)) == expected
    for first, last in combinations_with_replacement(world.all_days, 2):
        of_oracle = oracle_groups(world, profile, batch.setting.until, first, last)
        assert groups(tmp_path, first, last, profile.weights) == of_oracle


def test_spark_agrees_with_duckdb_and_the_oracle_on_the_world_of_the_demo(
    spark: SparkContext, tmp_path: Path
) -> None:
    world = small.small_world(seed=5, first_day=date(2027, 12, 31), days=2)
    grid = Grid(f"sqlite:///{tmp_path}/sam.db")
    with writing(grid.loader) as connection:
        for batch in (*topology_batches(world), *result_batches(world.results, "results")):
            for record in batch.records:
                marks = ", ".join(f":{name}" for name in record)
                statement = f"INSERT INTO {batch.message_class} ({', '.join(record)})"
                connection.execute(text(f"{statement} VALUES ({marks})"), record)
    write_world(tmp_path, world, small.PROFILE)
    compute(tmp_path, world.first_day, world.last_day)

    period = Period(world.first_day, world.last_day)
    profiles = [read_profile(tmp_path / "profile.toml")]
    job.compute(Run(spark, grid.reporter, lambda: 2**31), profiles, period, 0)

    by_spark = (
        published_figures(grid.reader, small.PROFILE.name),
        published_timeline(grid.reader, small.PROFILE.name),
    )
    assert by_spark == (read_figures(tmp_path), read_timeline(tmp_path))
    assert by_spark == oracle_rows(world, small.PROFILE, midnight(date(2030, 1, 1)))


def plain(batch: Batch) -> tuple[World, Profile]:
    """All worlds of a batch as one, with what DuckDB knows of their first profile."""

    def known(operation: str) -> str:
        return operation if operation in ("AND", "OR") else "OR"

    drawn = batch.setting.profiles[0]
    profile = replace(
        drawn,
        fqan=None,
        groups=(),
        thresholds=(),
        operations={},
        notice_s=0,
        metrics_operation=known(drawn.metrics_operation),
        functions_operation=known(drawn.functions_operation),
        flavours={
            name: replace(flavour, endpoints_operation=known(flavour.endpoints_operation))
            for name, flavour in drawn.flavours.items()
        },
        functions={
            name: replace(function, flavours_operation=known(function.flavours_operation))
            for name, function in drawn.functions.items()
        },
    )
    worlds = batch.named.values()
    exclusions = [row for world in worlds for row in world.exclusions]
    exclusions += batch.setting.exclusions
    world = World(
        batch.setting.first_day,
        DAYS,
        tuple(row for world in worlds for row in world.endpoints),
        tuple(row for world in worlds for row in world.site_groups),
        tuple(row for world in worlds for row in world.downtimes if row.downtime_id),
        tuple(row for world in worlds for row in world.results),
        tuple(row for row in exclusions if row.kind != "monitoring-host"),
    )
    return world, profile


def oracle_rows(world: World, profile: Profile, until: datetime) -> tuple[Rows, Rows]:
    """Figures and timelines as `tests.oracle.duckdb_report` gives them."""
    figures: Rows = set()
    timeline: Rows = set()
    for day in world.all_days:
        is_open = until < midnight(day) + timedelta(days=1)
        report = day_report(world, profile, day, until if is_open else None)
        for level in KEYS:
            for key, segments in report.timelines(f"{level}s").items():
                for segment in segments:
                    span = int(segment.start.timestamp()), int(segment.end.timestamp())
                    timeline.add((level, day, *names(level, key), *span, segment.status))
            for key, figure in report.figures(f"{level}s").items() if level != "metric" else ():
                seconds = [figure.seconds.get(name[:-2].upper(), 0) for name in SECONDS]
                shares = [
                    None if percent is None else int(percent * 100_000)
                    for percent in (figure.availability, figure.reliability)
                ]
                figures.add((level, day, *names(level, key), *seconds, *shares))
    return figures, timeline


def oracle_groups(
    world: World, profile: Profile, until: datetime, first: date, last: date
) -> Groups:
    """The groups over some days as `tests.oracle.duckdb_groups` gives them."""
    reports = []
    for day in world.all_days:
        if first <= day <= last:
            is_open = until < midnight(day) + timedelta(days=1)
            reports.append(day_report(world, profile, day, until if is_open else None))
    return {
        group: (
            *(
                None if percent is None else int(percent * 100_000)
                for percent in (means.availability, means.reliability)
            ),
            means.sites_expected,
            means.sites_known,
        )
        for group, means in groups_over(reports).items()
    }


def names(level: str, key: Sequence[str]) -> tuple[str, ...]:
    name_of = dict(zip(KEYS[level], key, strict=True))
    return tuple(name_of.get(name, "") for name in NAMES)
