"""How fast a day is archived and reports are computed from the archive, compared with DuckDB.

    python -m tests.benchmarks.archive [--part A]... [--quick] [--rounds R] [--sites N] …

    A  the process `sam-db archive write --day D --force`: reads a day from a private PostgreSQL,
       sorts it, and writes Parquet files, their digests and a manifest to a directory, fsynced / a
       process that runs `COPY (SELECT * … ORDER BY …) TO … (FORMAT parquet)` with the same columns,
       order, compression and row groups, from a table in a file of its own
    B  the process `sam-report run --day --source archive` / a DuckDB process on the same files

In part A, DuckDB does not read from PostgreSQL, has the names in the rows already, and makes no
digests; the rows of both files are compared. The figures of part B go to a new SQLite database; no
other database exists; first DuckDB's figures and timelines are compared with the published ones.
The two of a comparison take turns, and the median of the ratios counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.archive.layout import ROWS_PER_GROUP, SORTED_BY
from sam_pipeline.sql.archive.manifest import RESULTS, require_day
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from tests.benchmarks import report
from tests.benchmarks.common import (
    Run,
    arguments,
    check,
    environment,
    print_load,
    print_run_times,
    print_runs,
    run,
)
from tests.benchmarks.days import FILL_SETTINGS, Days, Size, fill
from tests.oracle.duckdb_report import compute
from tests.services.postgres import as_role, fresh_database, running_postgres
from tests.services.process import HOST

WRITING_BOUND = 3.0
WRITING_MEMORY_BOUND_MB = 1000.0
READING_BOUND = 4.0

SAM_DB = Path(sys.executable).with_name("sam-db")
COPY = f"""
import duckdb
with duckdb.connect("rows.duckdb", read_only=True) as database:
    database.execute(
        "COPY (SELECT * FROM result ORDER BY {", ".join(SORTED_BY)}, result_id) TO 'duckdb.parquet'"
        " (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROWS_PER_GROUP})"
    )
"""
CONTENT = """
SELECT count(*), sum(hash(columns_of_row) % 1000003 * (n % 1000003)) FROM (
    SELECT row_number() OVER () AS n,
        row(result_id, host_name, status, summary, message_id) AS columns_of_row
    FROM read_parquet(?, hive_partitioning = false)
)
"""


@dataclass(frozen=True)
class Archive:
    """An archive of the last of these days."""

    root: Path
    days: Days
    rounds: int

    @property
    def day(self) -> date:
        return self.days.period.last

    @property
    def directory(self) -> Path:
        return self.root.parent

    def write(self, day: date | None = None) -> Run:
        variables = {"SAM_DATABASE_URL": as_role(self.days.url, "archiver")}
        command = [SAM_DB, "archive", "write", "--day", str(day or self.day), "--force"]
        variables["SAM_ARCHIVE_URL"] = str(self.root)
        return run(command, environment(**variables), self.directory)

    def files(self) -> list[str]:
        manifest = require_day(LocalStore(self.root), self.day)
        check("rows", manifest.rows, self.days.size.rows_a_day)
        return [str(self.root / file.name) for file in manifest.of_kind(RESULTS)]


def main(argv: Sequence[str] | None = None) -> int:
    sizes = {"sites": 500, "endpoints": 20, "metrics": 10, "results": 48}
    args = arguments(__doc__, argv, parts=PARTS, switches=["quick"], rounds=3, **sizes)
    sites = max(args.sites // 20, 1) if args.quick else args.sites
    size = Size(sites, args.endpoints, args.metrics, args.results)
    last_day = datetime.fromtimestamp(time.time(), UTC).date() - timedelta(days=3)
    with running_postgres(FILL_SETTINGS) as server, TemporaryDirectory() as name:
        days = fill(fresh_database(server), Path(name), size, last_day, parquet=False)
        archive = Archive(Path(name, "archive"), days, args.rounds)
        archive.root.mkdir()
        archive.write()
        good = [PARTS[part](archive) for part in args.part]
    print_load()
    return 0 if all(good) else 1


def writing(archive: Archive) -> bool:
    """Part A; DuckDB's table has the rows in the order in which they were measured."""
    with duckdb.connect(str(archive.directory / "rows.duckdb")) as database:
        database.execute("SET memory_limit = '1GB'")
        database.execute(
            "CREATE TABLE result AS SELECT * FROM read_parquet(?, hive_partitioning = false)"
            " ORDER BY measured_at, result_id",
            [archive.files()],
        )
    ours, of_duckdb = [], []
    for _ in range(archive.rounds):
        ours.append(archive.write())
        of_duckdb.append(run([sys.executable, "-c", COPY], environment(), archive.directory))
        with duckdb.connect() as database:
            by_us = database.execute(CONTENT, [archive.files()]).fetchone()
            by_duckdb = database.execute(CONTENT, [str(archive.directory / "duckdb.parquet")])
            check("the rows", by_us, by_duckdb.fetchone())
    print_runs("A  DuckDB", of_duckdb)
    return all(
        [
            print_runs("sam-db archive", ours, WRITING_MEMORY_BOUND_MB),
            print_run_times("sam-db archive / DuckDB", ours, of_duckdb, WRITING_BOUND),
        ]
    )


def reading(archive: Archive) -> bool:
    """Part B."""
    archive.write(archive.day - timedelta(days=1))  # the results that the day begins with
    day = Period(archive.day, archive.day)
    options = ("--archive", str(archive.root))
    sam_report(archive, report.MASTER, day)
    compute(archive.directory, day.first, day.last, archive=archive.root)
    engine = make_engine(f"sqlite:///{archive.directory}/figures.db")
    report.check_agreement(engine, archive.directory)
    engine.dispose()
    ours, of_duckdb = [], []
    for _ in range(archive.rounds):
        ours.append(sam_report(archive, report.MASTER, day))
        of_duckdb.append(report.duckdb(archive.directory, day, *options))
    print_runs("B  DuckDB", of_duckdb)
    print_runs("sam-report run --source archive", ours)
    return print_run_times("sam-report / DuckDB", ours, of_duckdb, READING_BOUND)


PARTS: Mapping[str, Callable[[Archive], bool]] = {"A": writing, "B": reading}


def sam_report(archive: Archive, master: str, period: Period) -> Run:
    """Compute the period into a new database beside the archive."""
    for old in archive.directory.glob("figures.db*"):
        old.unlink()
    url = f"sqlite:///{archive.directory}/figures.db"
    engine = make_engine(url, create=True)
    upgrade(engine)
    engine.dispose()
    options = [
        "--source",
        "archive",
        "--from",
        str(period.first),
        "--to",
        str(period.last),
    ]
    variables = {"SAM_ARCHIVE_URL": f"file://{archive.root}", "SPARK_LOCAL_IP": HOST}
    return run(
        [report.SAM_REPORT, "run", "--profile", "profile.toml", "--master", master, *options],
        environment(SAM_DATABASE_URL=url, **variables),
        archive.directory,
    )


if __name__ == "__main__":
    sys.exit(main())
