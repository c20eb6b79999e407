"""How fast reports are computed from the archive, compared with DuckDB on the same files.

    python -m tests.benchmarks.archive_report [--part A]... [--quick] [--rounds R] [--sites N] …

    A  the whole process `sam-report run --day --source archive` / a DuckDB process
    B  5, 10 and 30 days in one run each: the time per day, and the memory

The figures go to a new SQLite database; no other database exists. Part A uses `local[2]`; first
DuckDB's figures and timelines are compared with the published ones, to the second. Part B runs on a
standalone cluster of two workers of one core each, so its executors are processes of their own: an
executor's memory is that of its Java process and of its Python workers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from tests.benchmarks import report_process
from tests.benchmarks.archive_files import GeneratedDays, generate
from tests.benchmarks.load import print_figure, print_load
from tests.benchmarks.report import (
    SAM_REPORT,
    print_inputs,
    print_ratio_of_runs,
    print_runs,
    print_seconds,
)
from tests.benchmarks.report_days import REPORT, Size
from tests.oracle.duckdb_report import compute, read_figures, read_timeline
from tests.services.process import HOST, descendants
from tests.services.spark_cluster import running_cluster
from tests.support.reports.published import published_figures, published_timeline

DUCKDB_BOUND = 4.0
EXECUTOR_BOUND_MB = 4000.0
GROWTH_BOUND = 1.1
"""The most time per day in the longest run, compared with that of the shortest."""

MASTER = "local[2]"
_EXECUTOR = "CoarseGrainedExecutorBackend"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Settings:
    directory: Path
    size: Size
    lengths: Sequence[int]
    rounds: int


def main(argv: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    print_inputs(args.rounds)
    sites = max(args.sites // 20, 1) if args.quick else args.sites
    size = Size(sites, args.endpoints, args.metrics, args.results)
    lengths = (2, 4, 6) if args.quick else (5, 10, 30)
    with TemporaryDirectory() as directory:
        settings = Settings(Path(directory), size, lengths, args.rounds)
        good = [PARTS[part](settings) for part in args.part or PARTS]
    print_load()
    return 0 if all(good) else 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--sites", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--endpoints", type=int, default=20, help="of a site (%(default)s)")
    parser.add_argument("--metrics", type=int, default=10, help="of an endpoint (%(default)s)")
    parser.add_argument("--results", type=int, default=48, help="of a metric a day (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of part A (%(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the sites and few days"
    )
    return parser


def part_a(settings: Settings) -> bool:
    with generated(settings, days=1) as archive:
        compare_with_duckdb(archive)
        ours, of_duckdb = [], []
        for _ in range(settings.rounds):
            ours.append(sam_report(archive, MASTER))
            of_duckdb.append(duckdb(archive))
        print("A  one day, processes from start to end")
        print_runs("sam-report run --source archive", ours)
        print_runs("DuckDB", of_duckdb)
        return print_ratio_of_runs("sam-report / DuckDB", ours, of_duckdb, DUCKDB_BOUND)


def part_b(settings: Settings) -> bool:
    longest = max(settings.lengths)
    with generated(settings, days=longest) as archive, running_cluster(2) as cluster:
        per_day, memory_mb = [], []
        print(f"B  {settings.lengths} days in one run, two executors")
        for days in settings.lengths:
            period = replace(archive.period, first=archive.period.last - timedelta(days=days - 1))
            with ExecutorMemory() as memory:
                run = sam_report(replace(archive, period=period), cluster.url)
            print_seconds(f"{days} days", [run.seconds])
            print_figure("  per day, s", f"{run.seconds / days:.1f}")
            print_figure("  of all processes of the driver, MB", f"{run.together_mb:.0f}")
            per_day.append(run.seconds / days)
            memory_mb.append(memory.largest_mb)
        print_figure("largest executor, MB", f"{max(memory_mb):.0f}", EXECUTOR_BOUND_MB, "<=")
        growth = per_day[-1] / per_day[0]
        print_figure("time per day, longest / shortest run", f"{growth:.2f}", GROWTH_BOUND, "<=")
        return max(memory_mb) <= EXECUTOR_BOUND_MB and growth <= GROWTH_BOUND


@contextmanager
def generated(settings: Settings, days: int) -> Iterator[GeneratedDays]:
    """An archive of these days, deleted at the end of the block."""
    size = replace(settings.size, days=days)
    last_day = datetime.fromtimestamp(time.time(), UTC).date() - timedelta(days=1)
    began = time.perf_counter()
    archive = generate(settings.directory / "generated" / "archive", size, last_day)
    print(f"{size}, generated in {time.perf_counter() - began:.0f} s", flush=True)
    try:
        yield archive
    finally:
        shutil.rmtree(archive.root.parent)


def sam_report(archive: GeneratedDays, master: str) -> report_process.Run:
    """Compute the period into a new database beside the archive."""
    database = _new_database(archive)
    command = [
        *(str(SAM_REPORT), "run", "--profile", "profile.toml", "--master", master),
        *("--source", "archive", "--from", str(archive.period.first)),
        *("--to", str(archive.period.last)),
    ]
    environment = _environment(
        SAM_DATABASE_URL=f"sqlite:///{database}",
        SAM_ARCHIVE_URL=f"file://{archive.root}",
        SPARK_LOCAL_IP=HOST,
    )
    return report_process.run(command, environment, archive.root.parent)


def duckdb(archive: GeneratedDays) -> report_process.Run:
    command = [
        *(sys.executable, "-m", "tests.oracle.duckdb_report", str(archive.root.parent)),
        *map(str, (archive.period.first, archive.period.last)),
        *("--archive", str(archive.root)),
    ]
    return report_process.run(command, _environment(), ROOT)


def compare_with_duckdb(archive: GeneratedDays) -> None:
    """Stop unless DuckDB and Spark compute the same figures and timelines."""
    sam_report(archive, MASTER)
    directory = archive.root.parent
    compute(directory, archive.period.first, archive.period.last, archive=archive.root)
    engine = make_engine(f"sqlite:///{directory}/figures.db")
    for kind, published, of_duckdb in (
        ("figures", published_figures(engine, REPORT), read_figures(directory)),
        ("timelines", published_timeline(engine, REPORT), read_timeline(directory)),
    ):
        if published != of_duckdb or not published:
            differing = sorted(map(str, published ^ of_duckdb))
            raise SystemExit(f"{kind} differ:\n" + "\n".join(differing[:10]))
        print(f"{len(published)} rows of {kind}: DuckDB and Spark agree", flush=True)
    engine.dispose()


class ExecutorMemory:
    """Samples the memory of executors, each with its Python workers, while the block runs."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="executors")
        self.largest_mb = 0.0

    def __enter__(self) -> ExecutorMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample_until_over(self) -> None:
        while not self._over.wait(report_process.EVERY_S):
            for pid in descendants(os.getpid()):
                if _EXECUTOR in _command_line(pid):
                    family = [pid, *descendants(pid)]
                    together_mb = sum(map(report_process.resident_mb, family))
                    self.largest_mb = max(self.largest_mb, together_mb)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _new_database(archive: GeneratedDays) -> Path:
    path = archive.root.parent / "figures.db"
    for old in path.parent.glob("figures.db*"):
        old.unlink()
    engine = make_engine(f"sqlite:///{path}", create=True)
    upgrade(engine)
    engine.dispose()
    return path


def _environment(**more: str) -> Mapping[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    return {**others, **more}


PARTS = {"A": part_a, "B": part_b}


if __name__ == "__main__":
    sys.exit(main())
