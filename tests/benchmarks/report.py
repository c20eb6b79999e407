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
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from sqlalchemy import Engine, make_url, text

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import prepare_workers
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.benchmarks.common import (
    ROOT,
    Run,
    arguments,
    environment,
    print_figure,
    print_load,
    print_run_times,
    print_runs,
    print_times,
    run,
    seconds,
)
from tests.benchmarks.days import FILL_SETTINGS, REPORT, Days, Size, fill
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
SMALLEST = f"""
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("{MASTER}").config("spark.ui.enabled", "false").getOrCreate()
spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
spark.stop()
"""
SAM_REPORT = Path(sys.executable).with_name("sam-report")


class World:
    """The databases of the parts, each filled when it is used first, and a warm Spark."""

    def __init__(
        self, server: PostgresServer, directory: Path, args: argparse.Namespace, spark: SparkContext
    ) -> None:
        self.rounds: int = args.rounds
        self.spark = spark
        self._server, self._directory = server, directory
        sites = max(args.sites // 20, 1) if args.quick else args.sites
        day = Size(sites, args.endpoints, args.metrics, args.results)
        self._sizes = {
            DAY: day,
            MONTH: replace(day, sites=max(sites // 10, 1), days=args.days),
            HANDFUL: Size(sites=1, endpoints=2, metrics=1, results=2),
            TEN_DAYS: replace(day, days=10),
        }
        self._last_day = datetime.fromtimestamp(time.time(), UTC).date() - timedelta(days=1)
        self._filled: dict[str, Days] = {}

    def days(self, name: str) -> Days:
        if name not in self._filled:
            size, directory = self._sizes[name], self._directory / name
            directory.mkdir()
            # DuckDB would need too much memory for ten days at once.
            parquet = name != TEN_DAYS
            database = fresh_database(self._server)
            days = fill(database, directory, size, self._last_day, parquet=parquet)
            if parquet:
                forget_reports(days)
                first, last = days.period.first, days.period.last
                sam_report(days, "--from", str(first), "--to", str(last))
                compute(directory, first, last)
                check_agreement(days.engine, directory)
            self._filled[name] = days
        return self._filled[name]


def main(argv: Sequence[str] | None = None) -> int:
    sizes = {"sites": 500, "endpoints": 20, "metrics": 10, "results": 48, "days": 30}
    args = arguments(__doc__, argv, parts=PARTS, switches=["quick"], rounds=3, **sizes)
    prepare_workers()
    with (
        running_postgres(FILL_SETTINGS) as server,
        TemporaryDirectory() as name,
        Starter().start(MASTER, {}) as spark,
    ):
        world = World(server, Path(name), args, spark)
        good = [PARTS[part](world) for part in args.part]
    print_load()
    return 0 if all(good) else 1


# Runs -------------------------------------------------------------------------------------------


def warm_run(world: World, days: Days, *periods: Period) -> float:
    """Seconds of the whole runs of some periods, as if the first one were the first ever."""
    forget_reports(days)
    profile = read_profile(days.profile_file)
    engine = make_engine(as_role(days.url, "reporter"))

    def compute_all() -> None:
        for period in periods or [days.period]:
            now = int(time.time())
            job.compute(job.Run(world.spark, engine, lambda: now), [profile], period, 0)  # noqa: B023

    run_s = seconds(compute_all)
    engine.dispose()
    return run_s


def copying(days: Days) -> float:
    """Seconds of two parallel psql that copy three columns, of half a day each, to nowhere."""
    url = make_url(days.url).set(drivername="postgresql").render_as_string(hide_password=False)
    psql = [find_programs() / "psql", "--no-psqlrc", url, "-c"]

    def copy() -> None:
        processes = [
            subprocess.Popen([*psql, COPY.format(low, low + DAY_S // 2)], stdout=subprocess.DEVNULL)
            for low in (days.period.start, days.period.start + DAY_S // 2)
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("psql failed")

    return seconds(copy)


def forget_reports(days: Days) -> None:
    """Delete all runs, so that the next one finds the database as the first one did."""
    with writing(days.engine) as connection:
        connection.execute(text("TRUNCATE run CASCADE"))


def sam_report(days: Days, *period: str) -> Run:
    command = [SAM_REPORT, "run", "--profile", "profile.toml", "--master", MASTER, *period]
    variables = environment(SAM_DATABASE_URL=as_role(days.url, "reporter"))
    return run(command, variables, days.directory)


def duckdb(directory: Path, period: Period, *options: str) -> Run:
    program = [sys.executable, "-m", "tests.oracle.duckdb_report", str(directory)]
    return run([*program, str(period.first), str(period.last), *options], environment(), ROOT)


def check_agreement(engine: Engine, directory: Path) -> None:
    """Stop unless DuckDB and Spark computed the same figures and timelines."""
    for kind, published, of_duckdb in (
        ("figures", published_figures(engine, REPORT), read_figures(directory)),
        ("timelines", published_timeline(engine, REPORT), read_timeline(directory)),
    ):
        if published != of_duckdb or not published:
            differing = sorted(map(str, published ^ of_duckdb))
            raise SystemExit(f"{kind} differ:\n" + "\n".join(differing[:10]))
        print(f"{len(published)} rows of {kind}: DuckDB and Spark agree", flush=True)


# Parts ------------------------------------------------------------------------------------------


def part_a(world: World) -> bool:
    day = world.days(DAY)
    warm_run(world, day)
    turns = [(warm_run(world, day), copying(day)) for _ in range(world.rounds)]
    whole_s, copied_s = zip(*turns, strict=True)
    print_figure("A  one day in a warm process, s", min(whole_s))
    return print_times("whole run / two psql copying", whole_s, copied_s, COPY_BOUND)


def part_b(world: World) -> bool:
    day = world.days(DAY)
    ours, of_duckdb = [], []
    for _ in range(world.rounds):
        forget_reports(day)
        ours.append(sam_report(day, "--day", str(day.period.last)))
        of_duckdb.append(duckdb(day.directory, day.period))
    print_runs("DuckDB", of_duckdb)
    return all(
        [
            print_runs("B  sam-report run --day", ours, MEMORY_BOUND_MB),
            print_run_times("sam-report / DuckDB", ours, of_duckdb, DUCKDB_BOUND),
        ]
    )


def part_c(world: World) -> bool:
    month = world.days(MONTH)
    each_day = [Period(day, day) for day in month.period.days()]
    warm_run(world, month, each_day[-1])
    turns = [
        (warm_run(world, month), warm_run(world, month, *each_day)) for _ in range(world.rounds)
    ]
    at_once_s, by_day_s = zip(*turns, strict=True)
    print_figure(f"C  {month.size.days} days in a warm process, s", min(at_once_s))
    return print_times("in one run / day by day", at_once_s, by_day_s, MONTH_BOUND)


def part_d(world: World) -> bool:
    handful = world.days(HANDFUL)
    ours, smallest = [], []
    for _ in range(world.rounds):
        forget_reports(handful)
        ours.append(sam_report(handful, "--day", str(handful.period.last)))
        variables = environment(PYSPARK_PYTHON=sys.executable)
        smallest.append(run([sys.executable, "-c", SMALLEST], variables, ROOT))
    print_runs(f"D  {handful.size.rows_a_day} results", ours)
    print_runs("the smallest program of DataFrames", smallest)
    return print_run_times("sam-report / the smallest", ours, smallest, SMALLEST_BOUND)


def part_e(world: World) -> bool:
    ten = world.days(TEN_DAYS)
    first, last = str(ten.period.first), str(ten.period.last)
    at_once, one = [], []
    for _ in range(world.rounds):
        forget_reports(ten)
        at_once.append(sam_report(ten, "--from", first, "--to", last))
        forget_reports(ten)
        one.append(sam_report(ten, "--day", last))
    return all(
        [
            print_runs("E  ten days in one run", at_once, MEMORY_BOUND_MB),
            print_runs("the last day", one, MEMORY_BOUND_MB),
            print_run_times("all days / the last day", at_once, one, TEN_DAYS_BOUND),
        ]
    )


PARTS: Mapping[str, Callable[[World], bool]] = {
    "A": part_a,
    "B": part_b,
    "C": part_c,
    "D": part_d,
    "E": part_e,
}


if __name__ == "__main__":
    sys.exit(main())
