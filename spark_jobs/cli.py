"""`sam-report`: availability and reliability on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program import command

PROGRAM = "sam-report"
EXAMPLES = """\
examples:
  sam-report profile check critical.toml
  sam-report run --profile critical.toml --from 2026-11-01 --to 2026-11-07
  sam-report show --month 2026-11
  sam-report now --site SITE-A
  sam-report explain --day yesterday --site SITE-A --flavour CE
  sam-report incidents --month last-month
  sam-report pages --from 30d --to yesterday --out report/
  sam-report exclusion add --site SITE-A --start 2026-11-07T08:00Z --end 2026-11-07T12:00Z \\
      --reason "agreed with the site"
  sam-report seal add --month last-month --who "Jane Doe"
"""


COMMANDS = {
    "compute": {
        "run": ("run", "compute reports with Spark and store them"),
        "warm-up": ("warm_up", "make later runs start sooner"),
    },
    "read": {
        "show": ("show", "print stored figures"),
        "explain": ("explain", "explain the figures of a site on a day"),
        "now": ("now", "print the current status of every metric, and silent instances"),
        "incidents": ("incidents", "print how often sites failed, for how long, and why"),
        "trends": ("trends", "print what changed its status most often"),
        "pages": ("pages", "write offline HTML pages"),
        "export": ("export", "write figures and timelines as files for other programs"),
        "what-if": (
            "what_if",
            "compute published days under another profile, and show what differs",
        ),
    },
    "correct": {
        "exclusion": ("exclusion", "exclude wrong measurements from reports"),
        "seal": ("seal", "freeze the published figures of a month"),
    },
    "maintain": {
        "status": ("status", "print which days of each report are published, due and sealed"),
        "profile": ("profile", "check profiles, and show in words what they count"),
        "config": (
            "profile:add_config_options",
            "show each key of the configuration, and where its value comes from",
        ),
    },
}
"""The module in `commands` and the help text of each command, in groups."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code."""
    return command.run(make_parser(), argv)


def make_parser() -> command.CommandParser:
    description = "Compute and show availability and reliability of sites, from metric results."
    return command.program_parser(
        PROGRAM, description, EXAMPLES, "sam_pipeline.spark_jobs.commands", COMMANDS
    )
