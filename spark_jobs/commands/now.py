"""`sam-report now`: the current status of every metric, before the nightly report."""

from __future__ import annotations

import argparse
import time

from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_argument
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.runs import current_status as now
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report now                      all sites: the number of instances by status, the worst first
  sam-report now --site SITE-A        every status at the site, and the silent instances
  sam-report now --site SITE-A --report critical --format json

A silent instance is expected by the topology and a profile, but has had no result for longer than
the profile's validity (two days if that is off). The profiles are those in [report] of sam.toml, or
without any, those of the newest published days.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--site", type=text_argument, help="this site in detail (default: a line for each site)"
    )
    command.add_argument(
        "--format", choices=["table", "json"], help="the output format (default: table)"
    )
    command.add_argument(
        "--report",
        type=text_argument,
        metavar="NAME",
        help="silent means expected by this report (default: by any report)",
    )
    command.set_defaults(handler=run_now)


def run_now(args: argparse.Namespace) -> int:
    """Print the current status of a site, or a line for each site."""
    configured, at = read_profiles(load_report(args).profiles), int(time.time())
    as_json = args.json or args.format == "json"
    with reading(open_database(args)) as connection:
        known = configured
        # A report that is not configured here may have been published from elsewhere.
        if not known or args.report not in (None, *(profile.name for profile in known)):
            known = [*configured, *now.published_profiles(connection)]
        profiles = now.of_report(known, args.report)
        if args.site is None:
            sites = now.read_sites(connection, profiles, at)
            if as_json:
                print_json([now.summary_json(site_now) for site_now in sites])
            else:
                print_lines(*now.sites_lines(sites, profiles))
        else:
            site = now.read_site(connection, args.site, profiles, at)
            if as_json:
                print_json(now.site_json(site))
            else:
                print_lines(*now.site_lines(site, profiles))
    return OK
