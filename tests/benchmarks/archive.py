"""How fast a day is archived, compared with DuckDB writing the same rows.

    python -m tests.benchmarks.archive [--quick] [--rounds R] [--sites N] …

    ours    the process `sam-db archive --day D --force`: reads the day from a private PostgreSQL,
            sorts it, and writes Parquet files, their digests and a manifest to a directory, fsynced
    DuckDB  a process that runs `COPY (SELECT * … ORDER BY …) TO … (FORMAT parquet)` with the same
            columns, order, compression and row groups, from a table in a file of its own, which has
            the rows in the order in which they were measured

So DuckDB does not read from PostgreSQL, has the names in the rows already, and makes no digests.
The two take turns, so that other load affects both, and the median of the ratios of each turn
counts. First the rows of both files are compared. DuckDB without ORDER BY is shown, too.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import duckdb

from sam_pipeline.sql.archive.layout import ROWS_PER_GROUP, SORTED_BY
from sam_pipeline.sql.archive.manifest import RESULTS, newest
from sam_pipeline.sql.archive.store import LocalStore
from tests.benchmarks import report_process
from tests.benchmarks.load import print_figure, print_load
from tests.benchmarks.report_days import FILL_SETTINGS, Days, Size, fill
from tests.services.postgres import as_role, fresh_database, running_postgres

DUCKDB_BOUND = 3.0
MEMORY_BOUND_MB = 1000.0

SAM_DB = Path(sys.executable).with_name("sam-db")
ROOT = Path(__file__).parents[2]
COPY = (
    "COPY (SELECT * FROM result{order}) TO 'duckdb.parquet'"
    f" (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS_PER_GROUP})"
)
ORDERED = f" ORDER BY {', '.join(SORTED_BY)}, result_id"


def main(argv: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    names = ("duckdb", "pyarrow", "psycopg2-binary")
    programs = ", ".join(f"{name} {version(name)}" for name in names)
    cores = os.cpu_count()
    print(f"Python {platform.python_version()}, {programs}, {cores} cores, {args.rounds} turns")
    print_load()
    sites = max(args.sites // 20, 1) if args.quick else args.sites
    with running_postgres(FILL_SETTINGS) as server, TemporaryDirectory() as name:
        directory = Path(name)
        last_day = datetime.fromtimestamp(time.time(), UTC).date() - timedelta(days=3)
        size = Size(sites, args.endpoints, args.metrics, args.results)
        began = time.perf_counter()
        days = fill(fresh_database(server), directory, size, last_day, parquet=False)
        print(f"{size}, filled in {time.perf_counter() - began:.0f} s", flush=True)
        good = compare(days, directory, args.rounds)
    print_load()
    return 0 if good else 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--endpoints", type=int, default=20, help="of a site (%(default)s)")
    parser.add_argument("--metrics", type=int, default=10, help="of an endpoint (%(default)s)")
    parser.add_argument("--results", type=int, default=48, help="of a metric a day (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (%(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the sites, for a quick check"
    )
    return parser


def compare(days: Days, directory: Path, rounds: int) -> bool:
    root = directory / "archive"
    root.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SAM_")},
        "SAM_DATABASE_URL": as_role(days.url, "archiver"),
        "SAM_ARCHIVE_URL": str(root),
    }
    day = days.period.last
    archiver = [str(SAM_DB), "archive", "--day", str(day), "--force"]
    report_process.run(archiver, environment, directory)
    store = LocalStore(root)

    def files() -> list[Path]:
        manifest = newest(store, day)
        assert manifest is not None
        assert manifest.rows == days.size.rows_a_day
        return [root / file.name for file in manifest.of_kind(RESULTS)]

    fill_duckdb(directory, files())
    ours, sorted_runs, plain = [], [], []
    for _ in range(rounds):
        ours.append(report_process.run(archiver, environment, directory))
        sorted_runs.append(run_duckdb(directory, environment, ORDERED))
        check_same(directory, files())
        plain.append(run_duckdb(directory, environment, ""))
    size = sum(file.stat().st_size for file in files()) / 1e6
    print_figure("files of the archive, MB", f"{size:.1f}")
    print_figure("file of DuckDB, MB", f"{(directory / 'duckdb.parquet').stat().st_size / 1e6:.1f}")
    print_runs("sam-db archive", ours)
    print_runs("DuckDB, sorted", sorted_runs)
    print_runs("DuckDB, in the order of its table", plain)
    ratio = median(a.seconds / b.seconds for a, b in zip(ours, sorted_runs, strict=True))
    print_figure("sam-db archive / DuckDB, sorted", f"{ratio:.2f}", DUCKDB_BOUND, "<=")
    unsorted = median(a.seconds / b.seconds for a, b in zip(ours, plain, strict=True))
    print_figure("sam-db archive / DuckDB, unsorted", f"{unsorted:.2f}")
    memory = max(run.together_mb for run in ours)
    print_figure("memory of sam-db archive, MB", f"{memory:.0f}", MEMORY_BOUND_MB, "<=")
    return ratio <= DUCKDB_BOUND and memory <= MEMORY_BOUND_MB


def fill_duckdb(directory: Path, files: Sequence[Path]) -> None:
    """Store the rows of the archive in a table, in the order in which they were measured."""
    with duckdb.connect(str(directory / "rows.duckdb")) as database:
        database.execute("SET memory_limit = '1GB'")
        database.execute(
            "CREATE TABLE result AS SELECT * FROM read_parquet(?, hive_partitioning = false)"
            " ORDER BY measured_at, result_id",
            [list(map(str, files))],
        )


def run_duckdb(directory: Path, environment: Mapping[str, str], order: str) -> report_process.Run:
    (directory / "duckdb.parquet").unlink(missing_ok=True)
    program = (
        "import duckdb\n"
        "with duckdb.connect('rows.duckdb', read_only=True) as database:\n"
        f"    database.execute({COPY.format(order=order)!r})\n"
    )
    return report_process.run([sys.executable, "-c", program], environment, directory)


def check_same(directory: Path, files: Sequence[Path]) -> None:
    """Stop unless both files have the same rows in the same order."""
    query = (
        "SELECT count(*), sum(hash(columns_of_row) % 1000003 * (n % 1000003)) FROM"
        " (SELECT row_number() OVER () AS n, row(result_id, host_name, status, summary, message_id)"
        " AS columns_of_row FROM read_parquet(?, hive_partitioning = false))"
    )
    with duckdb.connect() as database:
        of_archive = database.execute(query, [list(map(str, files))]).fetchone()
        of_duckdb = database.execute(query, [str(directory / "duckdb.parquet")]).fetchone()
    if of_archive != of_duckdb:
        raise SystemExit(f"the rows differ: {of_archive}, {of_duckdb}")


def print_runs(title: str, runs: Sequence[report_process.Run]) -> None:
    times = ", ".join(f"{run.seconds:.1f}" for run in runs)
    memory = max(run.together_mb for run in runs)
    print(f"  {title:42} {times} s, {memory:.0f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
