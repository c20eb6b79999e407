"""How fast reports are computed, compared with copying results, DuckDB and an empty Spark program.

    python -m tests.benchmarks.report [--part A]... [--quick] [--rounds R] [--sites N] …

    A  in a warm process: the whole run of one day / two psql that only copy its results
    B  the whole process `sam-report run --day` / a DuckDB process, the same figures from Parquet
    C  30 days of a tenth of the size in one run / day by day
    D  the whole process over a handful of results / the smallest program of Spark's DataFrames
    E  ten days in one run, the whole process / one of these days

On a private PostgreSQL, `local[2]`, with the default memory. The contestants take turns, so that
other load affects all of them, and the median of the ratios of each turn counts. First DuckDB's
figures and timelines are compared with the published ones, to the second.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from sqlalchemy import make_url, text

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import prepare_workers
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.benchmarks import report_process
from tests.benchmarks.load import print_figure, print_load, seconds
from tests.benchmarks.report_days import FILL_SETTINGS, REPORT, Days, Size, fill
from tests.oracle.duckdb_report import compute, read_figures, read_timeline
from tests.services.postgres import (
    PostgresServer,
    as_role,
    find_programs,
    fresh_database,
    running_postgres,
)
from tests.support.reports.published import published_figures, published_timeline

COPY_BOUND = 5.0
DUCKDB_BOUND = 5.0
MONTH_BOUND = 0.5
SMALLEST_BOUND = 1.0
TEN_DAYS_BOUND = 8.0
MEMORY_BOUND_MB = 2000.0

MASTER = "local[2]"
DAY, MONTH, HANDFUL, TEN_DAYS = "day", "month", "handful", "ten-days"
COPY = (
    "COPY (SELECT instance_id, measured_at, status_code FROM report_result"
    " WHERE measured_at >= to_timestamp({}) AND measured_at < to_timestamp({}))"
    " TO STDOUT (FORMAT binary)"
)
SAM_REPORT = Path(sys.executable).with_name("sam-report")
ROOT = Path(__file__).parents[2]


class World:
    """The databases of the parts, each filled when it is used first, and a warm Spark."""

    def __init__(
        self, server: PostgresServer, directory: Path, args: argparse.Namespace, spark: SparkContext
    ) -> None:
        self.rounds: int = args.rounds
        self.spark = spark
        self._server, self._directory = server, directory
        self._sizes = sizes(args)
        self._last_day = datetime.fromtimestamp(time.time(), UTC).date() - timedelta(days=1)
        self._filled: dict[str, Days] = {}

    def days(self, name: str) -> Days:
        if name not in self._filled:
            size, directory = self._sizes[name], self._directory / name
            directory.mkdir()
            began = time.perf_counter()
            # DuckDB would need too much memory for ten days at once.
            days = fill(
                fresh_database(self._server),
                directory,
                size,
                self._last_day,
                parquet=name != TEN_DAYS,
            )
            print(f"{size}, filled in {time.perf_counter() - began:.0f} s", flush=True)
            if name != TEN_DAYS:
                check_agreement(days)
            self._filled[name] = days
        return self._filled[name]


def main(argv: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    print_inputs(args.rounds)
    prepare_workers()
    with (
        running_postgres(FILL_SETTINGS) as server,
        TemporaryDirectory() as name,
        Starter().start(MASTER, {}) as spark,
    ):
        world = World(server, Path(name), args, spark)
        good = [PARTS[part](world) for part in args.part or PARTS]
    print_load()
    return 0 if all(good) else 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--sites", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--endpoints", type=int, default=20, help="of a site (%(default)s)")
    parser.add_argument("--metrics", type=int, default=10, help="of an endpoint (%(default)s)")
    parser.add_argument("--results", type=int, default=48, help="of a metric a day (%(default)s)")
    parser.add_argument("--days", type=int, default=30, help="of part C (%(default)s)")
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


def sizes(args: argparse.Namespace) -> dict[str, Size]:
    sites = max(args.sites // 20, 1) if args.quick else args.sites
    day = Size(
        sites, args.endpoints, args.metrics, args.results, whole_day_before=args.whole_day_before
    )
    return {
        DAY: day,
        MONTH: replace(day, sites=max(sites // 10, 1), days=args.days),
        HANDFUL: Size(sites=1, endpoints=2, metrics=1, results=2),
        TEN_DAYS: replace(day, days=10),
    }


def print_inputs(rounds: int) -> None:
    programs = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "duckdb", "pyarrow"))
    print(f"Python {platform.python_version()}, {programs}, {os.cpu_count()} cores, {rounds} turns")
    print_load()


# Runs -------------------------------------------------------------------------------------------


def warm_run(world: World, days: Days, period: Period | None = None) -> float:
    """Seconds of the whole run of a period, as if it were the first one."""
    forget_reports(days)
    return _warm_run(world, days, period or days.period)


def each_day(world: World, days: Days) -> float:
    forget_reports(days)
    return sum(_warm_run(world, days, Period(day, day)) for day in days.period.days())


def _warm_run(world: World, days: Days, period: Period) -> float:
    profile = read_profile(days.profile_file)
    engine = make_engine(as_role(days.url, "reporter"))
    run_s = seconds(
        lambda: job.run(
            world.spark, engine, [profile], period, 0, lambda: int(time.time()), lambda _: None
        )
    )
    engine.dispose()
    return run_s


def copying(days: Days) -> float:
    """Seconds of two parallel psql that copy three columns, of half a day each, to nowhere."""
    url = make_url(days.url).set(drivername="postgresql").render_as_string(hide_password=False)
    start, half = days.period.start, DAY_S // 2

    def copy() -> None:
        processes = [
            subprocess.Popen(
                [find_programs() / "psql", "--no-psqlrc", "-c", COPY.format(low, low + half), url],
                stdout=subprocess.DEVNULL,
            )
            for low in (start, start + half)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("psql failed")

    return seconds(copy)


def forget_reports(days: Days) -> None:
    """Delete all runs, so that the next one finds the database as the first one did."""
    with writing(days.engine) as connection:
        connection.execute(text("TRUNCATE run CASCADE"))


def sam_report(days: Days, *period: str) -> report_process.Run:
    command = [str(SAM_REPORT), "run", "--profile", "profile.toml", "--master", MASTER, *period]
    return report_process.run(
        command, _environment(SAM_DATABASE_URL=as_role(days.url, "reporter")), days.directory
    )


def smallest_program() -> report_process.Run:
    command = [sys.executable, "-m", "tests.benchmarks.report_smallest", MASTER]
    return report_process.run(command, _environment(PYSPARK_PYTHON=sys.executable), ROOT)


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
    day = world.days(DAY)
    warm_run(world, day)
    whole, copied = [], []
    for _ in range(world.rounds):
        whole.append(warm_run(world, day))
        copied.append(copying(day))
    print("A  one day in a warm process")
    print_seconds("whole run, published", whole)
    print_seconds("two psql copying", copied)
    return print_ratio("whole run / two psql copying", whole, copied, COPY_BOUND)


def part_b(world: World) -> bool:
    day = world.days(DAY)
    ours: list[report_process.Run] = []
    of_duckdb: list[report_process.Run] = []
    for _ in range(world.rounds):
        forget_reports(day)
        ours.append(sam_report(day, "--day", str(day.period.last)))
        of_duckdb.append(duckdb(day))
    print("B  one day, processes from start to end")
    return all(
        [
            print_runs("sam-report run --day", ours, MEMORY_BOUND_MB),
            print_runs("DuckDB", of_duckdb),
            print_ratio_of_runs("sam-report / DuckDB", ours, of_duckdb, DUCKDB_BOUND),
        ]
    )


def part_c(world: World) -> bool:
    month = world.days(MONTH)
    last = month.period.last
    warm_run(world, month, Period(last, last))
    at_once, by_day = [], []
    for _ in range(world.rounds):
        at_once.append(warm_run(world, month))
        by_day.append(each_day(world, month))
    print(f"C  {month.size.days} days in a warm process")
    print_seconds("in one run", at_once)
    print_seconds("day by day", by_day)
    return print_ratio("in one run / day by day", at_once, by_day, MONTH_BOUND)


def part_d(world: World) -> bool:
    handful = world.days(HANDFUL)
    ours, smallest = [], []
    for _ in range(world.rounds):
        forget_reports(handful)
        ours.append(sam_report(handful, "--day", str(handful.period.last)))
        smallest.append(smallest_program())
    print(f"D  {handful.size.rows_a_day} results, processes from start to end")
    print_runs("sam-report run --day", ours)
    print_runs("the smallest program of DataFrames", smallest)
    return print_ratio_of_runs("sam-report / the smallest", ours, smallest, SMALLEST_BOUND)


def part_e(world: World) -> bool:
    ten = world.days(TEN_DAYS)
    first, last = str(ten.period.first), str(ten.period.last)
    at_once, one = [], []
    for _ in range(world.rounds):
        forget_reports(ten)
        at_once.append(sam_report(ten, "--from", first, "--to", last))
        forget_reports(ten)
        one.append(sam_report(ten, "--day", last))
    print(f"E  {ten.size.days} days of the full size, processes from start to end")
    return all(
        [
            print_runs("all days in one run", at_once, MEMORY_BOUND_MB),
            print_runs("the last day", one, MEMORY_BOUND_MB),
            print_ratio_of_runs("all days / the last day", at_once, one, TEN_DAYS_BOUND),
        ]
    )


def print_runs(
    title: str, runs: Sequence[report_process.Run], memory_bound_mb: float | None = None
) -> bool:
    """Print seconds, also by stage, and memory; whether the memory is in bounds."""
    print_seconds(title, [run.seconds for run in runs])
    if len(runs[0].stages) > 2:  # only `sam-report run` shows stages
        for stage in runs[0].stages:
            print_seconds(f"  {stage}", [run.stages.get(stage, 0.0) for run in runs])
    largest = max(runs, key=lambda run: run.together_mb)
    peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in sorted(largest.largest_mb.items()))
    memory_mb = largest.together_mb
    print_figure(f"  memory, MB ({peaks})", f"{memory_mb:.0f}", memory_bound_mb, "<=")
    return memory_bound_mb is None or memory_mb <= memory_bound_mb


def print_ratio_of_runs(
    title: str,
    ours: Sequence[report_process.Run],
    base: Sequence[report_process.Run],
    bound: float,
) -> bool:
    return print_ratio(title, [run.seconds for run in ours], [run.seconds for run in base], bound)


def print_seconds(title: str, turns_s: Sequence[float]) -> None:
    """Print the median and the minimum."""
    print_figure(f"{title}, s", f"{median(turns_s):.1f} ({min(turns_s):.1f})")


def print_ratio(title: str, ours_s: Sequence[float], base_s: Sequence[float], bound: float) -> bool:
    """Print the median of the turns' ratios, and the ratio of the best; whether it is in bounds."""
    ratio = median(ours / base for ours, base in zip(ours_s, base_s, strict=True))
    print_figure(title, f"{ratio:.2f} ({min(ours_s) / min(base_s):.2f})", bound, "<=")
    return ratio <= bound


Part = Callable[[World], bool]
PARTS: dict[str, Part] = {"A": part_a, "B": part_b, "C": part_c, "D": part_d, "E": part_e}


if __name__ == "__main__":
    sys.exit(main())
