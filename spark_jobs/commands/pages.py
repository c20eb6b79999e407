"""`sam-report pages`: write the HTML pages of reports."""

from __future__ import annotations

import argparse
import re
from datetime import date
from pathlib import Path

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.spark_jobs.command_line import add_published_options, requested_period
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.pages.tree import write_pages, write_years
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
The pages of a month always show the whole month: the period only chooses the months. With --site,
only the page of that site is written, in each month; links to other pages lead nowhere until these
have been written.

With --public no page has contacts, persons, identities of publishers or ids of messages. Sites,
endpoints, monitoring hosts and texts stay: what probes report, and the reasons and descriptions of
exclusions, seals and downtimes, is printed as it was written.

examples:
  sam-report pages --month 2026-11 --out report/                    then open report/index.html
  sam-report pages --from 365d --to yesterday --out report/         the last twelve months
  sam-report pages --month 2026-11 --site SITE-A --out report/      only the page of SITE-A
  sam-report pages --month 2026-11 --out public/ --public           for a public web server
  sam-report pages --year 2026 --out report/    one page for each report: REPORT/2026.html
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the output directory"
    )
    add_published_options(command)
    command.add_argument(
        "--year",
        type=year_argument,
        metavar="YEAR",
        help="instead of months: a page of this year for each report, to print",
    )
    command.add_argument(
        "--public",
        action="store_true",
        help="leave out contacts, persons, identities of publishers and ids of messages",
    )
    command.set_defaults(handler=run_pages)


def year_argument(text: str) -> date:
    """The argparse `type` of a year: its first day."""
    if not re.fullmatch("[12][0-9]{3}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a year (expected YYYY)")
    return date(int(text), 1, 1)


def run_pages(args: argparse.Namespace) -> int:
    """Write the pages, and print the path of the start page, or of the pages of one site.

    Raises:
        ReportUsage: see requested_period; or --year with --site.
    """

    def archive() -> Store | None:
        return load_archive(args).open()

    period = requested_period(args)
    if args.year is not None and args.site is not None:
        raise ReportUsage("--year does not go with --site: its pages show all sites")
    with reading_at_once(open_database(args, READER)) as connection:
        if args.year is not None:
            written = write_years(
                connection, args.report, period, args.out, archive, public=args.public
            )
        else:
            written = write_pages(
                connection, args.report, period, args.out, args.site, archive, public=args.public
            )
    index = args.out / "index.html"
    if args.json:
        print_json({"index": str(index) if args.site is None else None, "pages": written})
    else:
        for path in [index] if args.site is None else [args.out / page for page in written]:
            print_done(args, path)
    return OK
