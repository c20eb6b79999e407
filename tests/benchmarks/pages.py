"""How fast `sam-report site` writes pages: the whole process, on SQLite and PostgreSQL.

    python -m tests.benchmarks.pages [--part A]... [--database sqlite] [--sites N]

    A  a month of 500 sites, 5 endpoints each
    B  a year of months of 60 sites, 5 endpoints each

Each part is written twice: the second time nothing has changed, and no file may be replaced. The
figures, timelines and results are made up, but always the same (tests/support/reports/month.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.sql.database.engine import writing
from tests.benchmarks.load import print_figure, print_load
from tests.services.postgres import as_role, fresh_database, running_postgres
from tests.support.reports.database import Grid, profile
from tests.support.reports.month import Size, write_month, write_results

MONTH_BOUND_S = 10.0
YEAR_BOUND_S = 30.0
UNCHANGED_BOUND_S = 2.0
INDEX_BOUND_MB = 0.5

SAM_REPORT = Path(sys.executable).with_name("sam-report")
DATABASES = ("sqlite", "postgresql")


@dataclass(frozen=True)
class Part:
    """Months to write, their size, and the seconds that this may take."""

    title: str
    period: Period
    size: Size
    bound_s: float


def main(argv: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(argv)
    parts = {
        "A": Part("a month", _days(31), Size(args.sites, 31, args.endpoints), MONTH_BOUND_S),
        "B": Part("a year", _days(365), Size(args.year_sites, 365, args.endpoints), YEAR_BOUND_S),
    }
    print(
        f"Python {platform.python_version()}, jinja2 {version('jinja2')}, {os.cpu_count()} cores,"
        f" {args.endpoints} endpoints a site"
    )
    print_load()
    good = [
        measure(parts[name], database)
        for database in args.database or DATABASES
        for name in args.part or parts
    ]
    print_load()
    return 0 if all(good) else 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=("A", "B"), help="default: both")
    parser.add_argument("--database", action="append", choices=DATABASES, help="default: both")
    parser.add_argument("--sites", type=int, default=500, help="of part A (%(default)s)")
    parser.add_argument("--year-sites", type=int, default=60, help="of part B (%(default)s)")
    parser.add_argument("--endpoints", type=int, default=5, help="of a site (%(default)s)")
    return parser


def measure(part: Part, database: str) -> bool:
    """Print the seconds of the first and of the second writing; whether the bounds are met."""
    with TemporaryDirectory() as name, empty_database(database, Path(name)) as url:
        results = fill(url, part, Path(name))
        out = Path(name) / "out"
        print(
            f"{part.title} of {part.size.sites} sites on {database}, {results} results", flush=True
        )
        first_s = write(url, part.period, out)
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*.html")}
        second_s = write(url, part.period, out)
        replaced = [path for path in before if path.stat().st_mtime_ns != before[path]]
        largest_mb = max(path.stat().st_size for path in out.glob("*/*/index.html")) / 1e6
        total_mb = sum(path.stat().st_size for path in before) / 1e6
        print_figure(f"{len(before)} pages, MB", f"{total_mb:.0f}")
    print_figure("writing them, s", f"{first_s:.1f}", part.bound_s, "<=")
    print_figure("writing them again, s", f"{second_s:.1f}", UNCHANGED_BOUND_S, "<=")
    print_figure("pages replaced the second time", str(len(replaced)), 0, "<=")
    print_figure("the largest page of a month, MB", f"{largest_mb:.2f}", INDEX_BOUND_MB, "<=")
    return (
        first_s <= part.bound_s
        and second_s <= UNCHANGED_BOUND_S
        and largest_mb <= INDEX_BOUND_MB
        and not replaced
    )


@contextmanager
def empty_database(kind: str, directory: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{directory}/sam.db"
        return
    with running_postgres() as server:
        yield fresh_database(server)


def fill(url: str, part: Part, directory: Path) -> int:
    """Store the figures, timelines and results of a part, and return the number of results."""
    grid = Grid(url)
    results = 0
    for month in part.period.months():
        size = Size(part.size.sites, len(list(month.days())), part.size.endpoints)
        first_run = 1 + (month.first - part.period.first).days
        with writing(grid.engine) as connection:
            write_month(connection, profile(directory), month.first, size, first_run)
        with writing(grid.loader) as connection:
            results += write_results(connection, month, size)
    grid.dispose()
    return results


def write(url: str, period: Period, out: Path) -> float:
    """Seconds of the process `sam-report site`."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    command = [SAM_REPORT, "-q", "site", "--from", str(period.first), "--to", str(period.last)]
    started = time.perf_counter()
    subprocess.run(
        [*command, "--out", out],
        env={**others, "SAM_DATABASE_URL": as_role(url, "reader")},
        check=True,
    )
    return time.perf_counter() - started


def _days(number: int) -> Period:
    first = date(2025, 10, 1) if number == 31 else date(2025, 1, 1)
    return Period(first, first + timedelta(days=number - 1))


if __name__ == "__main__":
    sys.exit(main())
