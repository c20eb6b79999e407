"""How fast reports are computed, compared with Spark that only reads and with DuckDB.

    python -m tests.benchmarks.report [--part A]... [--quick] [--rounds R] [--sites N] …

    A  in a warm session: the whole run of one day / Spark only reading five columns of its results
    B  the whole process `sam-report run --day` / a DuckDB process, the same figures from Parquet
    C  30 days of a tenth of the size in one run / day by day
    D  the day / one of a tenth of its size

On a private PostgreSQL, `local[2]`, with the default memory. The contestants take turns, so that
other load affects all of them, and the median of the ratios of each turn counts. First DuckDB's
figures and timelines are compared with the published ones, to the second.
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
from tests.benchmarks.load import print_figure, print_load, seconds
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
        check_agreement(world.day)
        check_agreement(world.month)
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
        help="store all results of the day before, too, instead of one of each instance",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the sites, for a quick check"
    )
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


# Runs -------------------------------------------------------------------------------------------


@contextmanager
def warm_session(results: int) -> Iterator[Warm]:
    """A session as `sam-report run` starts it, with the JDBC driver in addition."""
    prepare_workers()
    settings = {"spark.jars": str(report_plain.jdbc_jar())}
    spark = session.sql(session.start(MASTER, settings, find_java()))
    java = spark.sparkContext._gateway.proc
    try:
        with report_process.Memory(java.pid) as memory:
            yield Warm(spark)
    finally:
        spark.stop()
    print_memory(memory.together_mb, memory.largest_mb)


@dataclass(frozen=True)
class Warm:
    """A running session, and the seconds that it takes for a task."""

    spark: SparkSession

    def report(self, days: Days, period: Period | None = None) -> float:
        """Seconds of the whole run of a period, as if it were the first one."""
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
        profile = read_profile(days.profile_file)
        engine = make_engine(as_role(days.url, "reporter"))
        run_s = seconds(
            lambda: job.run(
                self.spark, engine, [profile], period, 0, lambda: int(time.time()), lambda _: None
            )
        )
        engine.dispose()
        return run_s


def forget_reports(days: Days) -> None:
    """Delete all runs, so that the next one finds the database as the first one did."""
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
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    return {**others, **more}


def check_agreement(days: Days) -> None:
    """Stop unless DuckDB and Spark compute the same figures and timelines."""
    forget_reports(days)
    sam_report(days, "--from", str(days.period.first), "--to", str(days.period.last))
    compute(days.directory, days.period.first, days.period.last)
    for kind, published, of_duckdb in (
        ("figures", published_figures(days.engine, REPORT), read_figures(days.directory)),
        ("timelines", published_timeline(days.engine, REPORT), read_timeline(days.directory)),
    ):
        if published != of_duckdb:
            differing = sorted(map(str, published ^ of_duckdb))
            raise SystemExit(
                f"{kind} differ in {len(differing)} rows of {len(published)}, such as:\n"
                + "\n".join(differing[:10])
            )
        print(f"{len(published)} rows of {kind}: DuckDB and Spark agree", flush=True)


# Figures ----------------------------------------------------------------------------------------


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
                for seconds_of, turn_s in zip((whole, jdbc, python), times, strict=True):
                    seconds_of.append(turn_s)
        print("A  one day in a warm session")
        print_seconds("whole run, published", whole)
        print_seconds("Spark only reading, by JDBC", jdbc)
        print_seconds("Spark only reading, by Python", python)
    return all(
        [
            print_ratio("whole run / reading by JDBC", whole, jdbc, READ_BOUND),
            print_ratio("whole run / reading by Python", whole, python, READ_BOUND),
        ]
    )


def part_b(world: World) -> bool:
    ours: list[report_process.Run] = []
    of_duckdb: list[report_process.Run] = []
    for _ in range(world.rounds):
        forget_reports(world.day)
        ours.append(sam_report(world.day, "--day", str(world.day.period.last)))
        of_duckdb.append(duckdb(world.day))
    print("B  one day, processes from start to end")
    ours_s = [run.seconds for run in ours]
    duckdb_s = [run.seconds for run in of_duckdb]
    print_seconds("sam-report run --day", ours_s)
    for stage in ours[0].stages:
        print_seconds(f"  {stage}", [run.stages.get(stage, 0.0) for run in ours])
    print_memory(max(run.together_mb for run in ours), ours[-1].largest_mb)
    print_seconds("DuckDB", duckdb_s)
    print_memory(max(run.together_mb for run in of_duckdb), of_duckdb[-1].largest_mb)
    return print_ratio("sam-report / DuckDB", ours_s, duckdb_s, DUCKDB_BOUND)


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
        print_seconds("in one run", at_once)
        print_seconds("day by day", each_day)
    return print_ratio("in one run / day by day", at_once, each_day, MONTH_BOUND)


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
        print_seconds(f"{world.day.size.rows_a_day} results", large)
        print_seconds(f"{world.month.size.rows_a_day} results", small)
    times_rows = world.day.size.rows_a_day / world.month.size.rows_a_day
    bound = TENFOLD_BOUND * times_rows / 10
    return print_ratio(f"of {times_rows:g} times the rows", large, small, bound)


def print_seconds(title: str, turns_s: Sequence[float]) -> None:
    """Print the median and the minimum."""
    print_figure(f"{title}, s", f"{median(turns_s):.1f} ({min(turns_s):.1f})")


def print_memory(together_mb: float, largest_mb: Mapping[str, float]) -> None:
    peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in sorted(largest_mb.items()))
    print_figure(f"  memory, MB ({peaks})", f"{together_mb:.0f}")


def print_ratio(title: str, ours_s: Sequence[float], base_s: Sequence[float], bound: float) -> bool:
    """Print the median of the turns' ratios, and the ratio of the best; whether it is in bounds."""
    ratio = median(ours / base for ours, base in zip(ours_s, base_s, strict=True))
    print_figure(title, f"{ratio:.2f} ({min(ours_s) / min(base_s):.2f})", bound, "<=")
    return ratio <= bound


Part = Callable[[World], bool]
PARTS: dict[str, Part] = {"A": part_a, "B": part_b, "C": part_c, "D": part_d}


if __name__ == "__main__":
    sys.exit(main())
