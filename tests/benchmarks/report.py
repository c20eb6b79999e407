"""How quickly reports are made, beside Spark that only reads and beside DuckDB.

    python -m tests.benchmarks.report [--part A]... [--quick] [--rounds R] [--sites N] …

    A  in a warm session: the whole run of one day / Spark only reading five columns of its results
    B  the whole process `sam-report run --day` / a DuckDB process, the same figures from Parquet
    C  30 days of a tenth of the size in one run / day by day
    D  the day / one of a tenth of its size

On a private PostgreSQL, `local[2]`, with the default memory. What is compared takes turns, so that
other load meets all; a ratio is taken turn by turn, and the one in the middle counts. Nothing is
told before DuckDB's figures and timelines agree with those that were published, to the second.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import text

from sam_pipeline.spark_jobs.compute import job, session
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.benchmarks import report_plain, report_process
from tests.benchmarks.load import print_load, seconds, tell
from tests.benchmarks.report_days import FILL_SETTINGS, REPORT, Days, Size, fill
from tests.oracle.duckdb_report import compute, read_figures, read_timeline
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.support.reports.published import published_figures, published_timeline

READ_BOUND = 3.0
DUCKDB_BOUND = 6.0
MONTH_BOUND = 0.5
TENFOLD_BOUND = 10.0

MASTER = "local[2]"
MONTH_DAYS = 30
SAM_REPORT = Path(sys.executable).with_name("sam-report")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class World:
    """The day, and the month whose days have a tenth of its rows."""

    day: Days
    month: Days
    rounds: int


def main(argv: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    day, month = sizes(args)
    print_inputs(day, month, args.rounds)
    parts = args.part or list(PARTS)
    with running_postgres(FILL_SETTINGS) as server, TemporaryDirectory() as name:
        world = make_world(server, Path(name), day, month, args.rounds)
        agree(world.day)
        agree(world.month)
        good = [PARTS[part](world) for part in parts]
    print_load()
    return 0 if all(good) else 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--sites", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--endpoints", type=int, default=20, help="of a site (%(default)s)")
    parser.add_argument("--metrics", type=int, default=10, help="of an endpoint (%(default)s)")
    parser.add_argument("--results", type=int, default=48, help="of a metric a day (%(default)s)")
    parser.add_argument("--days", type=int, default=MONTH_DAYS, help="of part C (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (%(default)s)")
    parser.add_argument(
        "--whole-day-before",
        action="store_true",
        help="of the day before, too, all results are there, not one of each instance",
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the sites, for a look")
    return parser


def sizes(args: argparse.Namespace) -> tuple[Size, Size]:
    sites = max(args.sites // 20, 1) if args.quick else args.sites
    day = Size(
        sites, args.endpoints, args.metrics, args.results, whole_day_before=args.whole_day_before
    )
    return day, replace(day, sites=max(sites // 10, 1), days=args.days)


def print_inputs(day: Size, month: Size, rounds: int) -> None:
    print(f"{day}\n{month}\n{rounds} turns")
    programs = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "duckdb", "pyarrow"))
    print(f"Python {platform.python_version()}, {programs}, {os.cpu_count()} cores")
    print_load()


def make_world(
    server: PostgresServer, directory: Path, day: Size, month: Size, rounds: int
) -> World:
    yesterday = datetime.fromtimestamp(time.time(), UTC).date() - timedelta(days=1)

    def filled(name: str, size: Size) -> Days:
        (directory / name).mkdir()
        return fill(fresh_database(server), directory / name, size, yesterday)

    began = time.perf_counter()
    world = World(filled("day", day), filled("month", month), rounds)
    print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
    return world


# Doing it ---------------------------------------------------------------------------------------


@contextmanager
def warm_session(results: int) -> Iterator[Warm]:
    """As `sam-report run` starts it, with the driver of JDBC on top."""
    prepare_workers()
    settings = {"spark.jars": str(report_plain.jdbc_jar())}
    spark = session.start(MASTER, settings, find_java(), results=results)
    java = spark.sparkContext._gateway.proc
    try:
        with report_process.Memory(java.pid) as memory:
            yield Warm(spark)
    finally:
        spark.stop()
    tell_memory(memory.together_mb, memory.largest_mb)


@dataclass(frozen=True)
class Warm:
    """A session, and how long it takes to do something."""

    spark: SparkSession

    def report(self, days: Days, period: Period | None = None) -> float:
        """The whole run of a period, as if for the first time."""
        forget_reports(days)
        return self._report(days, period or days.period)

    def each_day(self, days: Days) -> float:
        forget_reports(days)
        return sum(self._report(days, Period(day, day)) for day in days.period.days())

    def reading(
        self, source: Callable[[SparkSession, str, Period], DataFrame], days: Days
    ) -> float:
        frame = source(self.spark, days.url, days.period)
        return seconds(lambda: report_plain.into_nothing(frame))

    def _report(self, days: Days, period: Period) -> float:
        profile, engine = (
            read_profile(days.profile_file),
            make_engine(as_role(days.url, "reporter")),
        )
        took = seconds(
            lambda: job.run(
                self.spark, engine, [profile], period, 0, lambda: int(time.time()), lambda _: None
            )
        )
        engine.dispose()
        return took


def forget_reports(days: Days) -> None:
    """Every run finds the database as the first one did."""
    with writing(days.engine) as connection:
        connection.execute(text("TRUNCATE run CASCADE"))


def sam_report(days: Days, *period: str) -> report_process.Run:
    command = [str(SAM_REPORT), "run", "--profile", "profile.toml", "--master", MASTER, *period]
    return report_process.run(
        command, _environment(SAM_DATABASE_URL=as_role(days.url, "reporter")), days.directory
    )


def duckdb(days: Days) -> report_process.Run:
    first, last = days.period.first, days.period.last
    command = [
        sys.executable,
        "-m",
        "tests.oracle.duckdb_report",
        str(days.directory),
        *map(str, (first, last)),
    ]
    return report_process.run(command, _environment(), ROOT)


def _environment(**more: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    return {**kept, **more}


def agree(days: Days) -> None:
    """Nobody is quick by computing something else."""
    forget_reports(days)
    sam_report(days, "--from", str(days.period.first), "--to", str(days.period.last))
    compute(days.directory, days.period.first, days.period.last)
    for what, published, theirs in (
        ("figures", published_figures(days.engine, REPORT), read_figures(days.directory)),
        ("timelines", published_timeline(days.engine, REPORT), read_timeline(days.directory)),
    ):
        if published != theirs:
            differing = sorted(map(str, published ^ theirs))
            raise SystemExit(
                f"{what} differ in {len(differing)} rows of {len(published)}, such as:\n"
                + "\n".join(differing[:10])
            )
        print(f"{len(published)} rows of {what}: DuckDB and Spark agree", flush=True)


# What is told -----------------------------------------------------------------------------------


def part_a(world: World) -> bool:
    day = world.day
    whole, jdbc, python = [], [], []
    with warm_session(day.size.rows_a_day) as warm:
        for turn in range(world.rounds + 1):
            times = (
                warm.report(day),
                warm.reading(report_plain.by_jdbc, day),
                warm.reading(report_plain.by_python, day),
            )
            if turn:  # the first one warms the session up
                for found, took in zip((whole, jdbc, python), times, strict=True):
                    found.append(took)
        print("A  one day in a warm session")
        tell_seconds("whole run, published", whole)
        tell_seconds("Spark only reading, by JDBC", jdbc)
        tell_seconds("Spark only reading, by Python", python)
    return all(
        [
            tell_ratio("whole run / reading by JDBC", whole, jdbc, READ_BOUND),
            tell_ratio("whole run / reading by Python", whole, python, READ_BOUND),
        ]
    )


def part_b(world: World) -> bool:
    ours, theirs = [], []
    for _ in range(world.rounds):
        forget_reports(world.day)
        ours.append(sam_report(world.day, "--day", str(world.day.period.last)))
        theirs.append(duckdb(world.day))
    print("B  one day, processes from start to end")
    tell_seconds("sam-report run --day", [each.seconds for each in ours])
    for stage in ours[0].stages:
        tell_seconds(f"  {stage}", [each.stages.get(stage, 0.0) for each in ours])
    tell_memory(max(each.together_mb for each in ours), ours[-1].largest_mb)
    tell_seconds("DuckDB", [each.seconds for each in theirs])
    tell_memory(max(each.together_mb for each in theirs), theirs[-1].largest_mb)
    return tell_ratio(
        "sam-report / DuckDB",
        [each.seconds for each in ours],
        [each.seconds for each in theirs],
        DUCKDB_BOUND,
    )


def part_c(world: World) -> bool:
    month = world.month
    at_once, each_day = [], []
    with warm_session(month.size.rows_a_day * month.size.days) as warm:
        last = month.period.last
        warm.report(month, Period(last, last))
        for _ in range(world.rounds):
            at_once.append(warm.report(month))
            each_day.append(warm.each_day(month))
        print(f"C  {month.size.days} days in a warm session")
        tell_seconds("in one run", at_once)
        tell_seconds("day by day", each_day)
    return tell_ratio("in one run / day by day", at_once, each_day, MONTH_BOUND)


def part_d(world: World) -> bool:
    last = world.month.period.last
    large, small = [], []
    with warm_session(world.day.size.rows_a_day) as warm:
        for turn in range(world.rounds + 1):
            times = warm.report(world.day), warm.report(world.month, Period(last, last))
            if turn:
                large.append(times[0])
                small.append(times[1])
        print("D  one day in a warm session, by its size")
        tell_seconds(f"{world.day.size.rows_a_day} results", large)
        tell_seconds(f"{world.month.size.rows_a_day} results", small)
    times_rows = world.day.size.rows_a_day / world.month.size.rows_a_day
    bound = TENFOLD_BOUND * times_rows / 10
    return tell_ratio(f"of {times_rows:g} times the rows", large, small, bound)


def tell_seconds(what: str, found: Sequence[float]) -> None:
    """The one in the middle, and the best."""
    tell(f"{what}, s", f"{median(found):.1f} ({min(found):.1f})")


def tell_memory(together_mb: float, largest_mb: Mapping[str, float]) -> None:
    each = ", ".join(f"{name} {peak:.0f}" for name, peak in sorted(largest_mb.items()))
    tell(f"  memory, MB ({each})", f"{together_mb:.0f}")


def tell_ratio(what: str, ours: Sequence[float], theirs: Sequence[float], bound: float) -> bool:
    """Turn by turn; the one in the middle counts, the ratio of the best stands beside it."""
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    tell(what, f"{ratio:.2f} ({min(ours) / min(theirs):.2f})", bound, "<=")
    return ratio <= bound


Part = Callable[[World], bool]
PARTS: dict[str, Part] = {"A": part_a, "B": part_b, "C": part_c, "D": part_d}


if __name__ == "__main__":
    sys.exit(main())
