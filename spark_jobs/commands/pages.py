"""`sam-report pages`: write the HTML pages of reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.spark_jobs.command_line import add_published_options, requested_period
from sam_pipeline.spark_jobs.pages.tree import write_pages
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
The pages of a month always show the whole month: the period only chooses the months. With --site,
only the page of that site is written, in each month; links to other pages lead nowhere until these
have been written.

examples:
  sam-report pages --month 2026-11 --out report/                    then open report/index.html
  sam-report pages --from 365d --to yesterday --out report/         the last twelve months
  sam-report pages --month 2026-11 --site SITE-A --out report/      only the page of SITE-A
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the output directory"
    )
    add_published_options(command)
    command.set_defaults(handler=run_pages)


def run_pages(args: argparse.Namespace) -> int:
    """Write the pages, and print the path of the start page, or of the pages of one site."""
    period = requested_period(args)
    with reading_at_once(open_database(args, READER)) as connection:
        written = write_pages(
            connection,
            args.report,
            period,
            args.out,
            args.site,
            lambda: load_archive(args).open(),
        )
    index = args.out / "index.html"
    if args.json:
        print_json({"index": str(index) if args.site is None else None, "pages": written})
    else:
        for path in [index] if args.site is None else [args.out / page for page in written]:
            print_done(args, path)
    return OK
