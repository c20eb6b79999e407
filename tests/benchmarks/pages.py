"""How fast `sam-report pages` writes pages: the whole process, on SQLite and PostgreSQL.

    python -m tests.benchmarks.pages [--part A]... [--sites N]

    A  a month of 500 sites, 5 endpoints each
    B  a year of months of 60 sites, 5 endpoints each

Each part is written twice: the second time nothing has changed, and no file may be replaced. The
figures, timelines and results are made up, but always the same (tests/support/reports/month.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import writing
from tests.benchmarks.common import arguments, environment, print_figure, print_load, seconds
from tests.services.postgres import as_role, fresh_database, running_postgres
from tests.support.reports.database import Grid, profile
from tests.support.reports.month import Size, write_month, write_results

UNCHANGED_BOUND_S = 2.0
INDEX_BOUND_MB = 0.5
SAM_REPORT = Path(sys.executable).with_name("sam-report")
PARTS = {
    "A": (Period(date(2025, 10, 1), date(2025, 10, 31)), 10.0),
    "B": (Period(date(2025, 1, 1), date(2025, 12, 31)), 30.0),
}
"""The days, and the seconds that writing their pages may take."""


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, parts=PARTS, sites=500, year_sites=60, endpoints=5)
    good = [
        measure(part, args.sites if part == "A" else args.year_sites, args.endpoints, database)
        for database in ("sqlite", "postgresql")
        for part in args.part
    ]
    print_load()
    return 0 if all(good) else 1


def measure(part: str, sites: int, endpoints: int, database: str) -> bool:
    """Print the seconds of the first and of the second writing; whether the bounds are met."""
    period, bound_s = PARTS[part]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        url = f"sqlite:///{directory}/sam.db"
        if database == "postgresql":
            url = fresh_database(stack.enter_context(running_postgres()))
        results = fill(url, period, sites, endpoints, directory)
        out = directory / "out"
        command = [SAM_REPORT, "-q", "pages", "--from", str(period.first), "--to", str(period.last)]
        reader = environment(SAM_DATABASE_URL=as_role(url, "reader"))

        def write() -> None:
            subprocess.run([*command, "--out", out], env=reader, check=True)

        first_s = seconds(write)
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*.html")}
        second_s = seconds(write)
        replaced = [path for path in before if path.stat().st_mtime_ns != before[path]]
        largest_mb = max(path.stat().st_size for path in out.glob("*/*/index.html")) / 1e6
    print(f"{part}: {sites} sites on {database}, {results} results, {len(before)} pages")
    return all(
        [
            print_figure("writing them, s", first_s, most=bound_s),
            print_figure("writing them again, s", second_s, most=UNCHANGED_BOUND_S),
            print_figure("pages replaced the second time", len(replaced), 0, most=0),
            print_figure("the largest page of a month, MB", largest_mb, 2, most=INDEX_BOUND_MB),
        ]
    )


def fill(url: str, period: Period, sites: int, endpoints: int, directory: Path) -> int:
    """Store figures, timelines and results, and return the number of results."""
    grid = Grid(url)
    results = 0
    for month in period.months():
        size = Size(sites, len(list(month.days())), endpoints)
        first_run = 1 + (month.first - period.first).days
        with writing(grid.engine) as connection:
            write_month(connection, profile(directory), month.first, size, first_run)
        with writing(grid.loader) as connection:
            results += write_results(connection, month, size)
    grid.dispose()
    return results


if __name__ == "__main__":
    sys.exit(main())
