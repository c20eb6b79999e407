"""`sam-report now`: the newest status of everything, before the nightly report."""

from __future__ import annotations

import argparse
import time
from typing import Any

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.runs import current_status as now
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report now                      all sites: how many statuses of each kind, the worst first
  sam-report now --site SITE-A        everything at the site, and what is silent
  sam-report now --site SITE-A --report critical --format json

Silent: expected by the topology and the profile, but without a result for longer than the
profile's validity (off: two days). The profiles are those of [report] in sam.toml, else those of
the newest published days; --report chooses one.
"""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "now",
        parents=[common],
        help="print the newest status of everything, and what is silent",
        epilog=EXAMPLES,
    )
    command.add_argument("--site", help="only this site, in full (default: all sites, counted)")
    command.add_argument("--format", choices=["table", "json"])
    command.add_argument(
        "--report", metavar="NAME", help="whose expectations (default: all reports)"
    )
    command.set_defaults(handler=_now)


def _now(args: argparse.Namespace) -> int:
    configured, at = read_profiles(load_report(args).profiles), int(time.time())
    as_json = args.json or args.format == "json"
    with reading(open_database(args)) as connection:
        known = configured
        # A report that isn't configured here may have been published elsewhere.
        if not known or args.report not in (None, *(profile.name for profile in known)):
            known = [*configured, *now.published_profiles(connection)]
        profiles = now.of_report(known, args.report)
        if args.site is None:
            sites = now.read_sites(connection, profiles, at)
            rows = [now.summary_json(site_now) for site_now in sites]
            print(to_json(rows) if as_json else now.sites_text(sites, profiles))
        else:
            site = now.read_site(connection, args.site, profiles, at)
            print(to_json(now.site_json(site)) if as_json else now.site_text(site, profiles))
    return OK
