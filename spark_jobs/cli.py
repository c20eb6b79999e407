"""`sam-report`: availability and reliability on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program import command
from sam_pipeline.spark_jobs.commands import (
    exclusion,
    explain,
    export,
    now,
    profile,
    run,
    seal,
    show,
    site,
    trends,
)

PROGRAM = "sam-report"
EXAMPLES = """\
examples:
  sam-report profile check critical.toml
  sam-report run --profile critical.toml --from 2026-11-01 --to 2026-11-07
  sam-report show --month 2026-11
  sam-report now --site SITE-A
  sam-report explain --day 2026-11-07 --site SITE-A --flavour CE
  sam-report site --from 2026-11-01 --to 2026-11-07 --out report/
  sam-report exclusion add --group SITE-A --start 2026-11-07T08:00Z --end 2026-11-07T12:00Z \\
      --reason "agreed with the site"
  sam-report seal --month 2026-10 --who "Jane Doe"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    return command.run(PROGRAM, make_parser(), argv, lambda args: int(args.handler(args)))


def make_parser() -> command.CommandParser:
    common = command.common_options()
    description = "Compute and show availability and reliability of sites, from metric results."
    parser = command.program_parser(PROGRAM, description, EXAMPLES, common)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (run, show, now, explain, site, profile, exclusion, seal, export, trends):
        module.add(commands, common)
    return parser
