"""`sam-report site`: an offline HTML site."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.spark_jobs.commands.arguments import (
    add_period_options,
    add_report_option,
    asked_period,
)
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report site --from 2026-11-01 --to 2026-11-07 --out report/     then open report/index.html
"""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "site", parents=[common], help="write an offline HTML site", epilog=EXAMPLES
    )
    add_period_options(command)
    command.add_argument("--out", type=Path, required=True, metavar="DIR")
    add_report_option(command)
    command.set_defaults(handler=_site)


def _site(args: argparse.Namespace) -> int:
    from sam_pipeline.spark_jobs.pages.site_tree import write_site  # jinja2 is slow to import

    period = asked_period(args)
    with reading(open_database(args)) as connection:
        written = write_site(connection, args.report, period, args.out)
    index = args.out / "index.html"
    print(to_json({"index": str(index), "pages": written}) if args.json else index)
    return OK
