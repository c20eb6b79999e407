"""`sam-report now`: the status of every metric now, or of a report at an earlier time."""

from __future__ import annotations

import argparse
import time
from typing import Any

from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_argument
from sam_pipeline.schema.program.moments import moment_argument
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import site_contacts
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.profiles.in_words import expected_sites
from sam_pipeline.spark_jobs.runs.now import as_text, instances
from sam_pipeline.spark_jobs.runs.now.folding import profile_at, read_sites_folded
from sam_pipeline.spark_jobs.runs.published import published_profiles
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
examples:
  sam-report now --report critical    is each site up, as this report counts? the worst first
  sam-report now --report critical --site SITE-A
                                      the functions, endpoints and metrics that make it so
  sam-report now --report critical --at 2026-11-12T14:30Z
                                      the same at that time, from the results that are stored now
  sam-report now                      all sites: the number of instances by status, the worst first
  sam-report now --site SITE-A        every status at the site, and the silent instances

With --report, statuses are folded exactly as the report folds them: only results of its VO, metrics
and endpoints count, and thresholds, validity, downtimes, exclusions and operations apply. A metric
without a valid result is MISSING. An announced downtime is not a failure.

Without --report, every status is counted, of any VO and metric. A silent instance is expected by
the topology and a profile, but has had no result for longer than the profile's validity (two days
if that is off). The profiles are those in [report] of sam.toml, or without any, those of the newest
published days.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--site", type=text_argument, help="this site in detail (default: a line for each site)"
    )
    command.add_argument(
        "--report",
        type=text_argument,
        metavar="NAME",
        help="the statuses as this report folds them (default: those of all instances)",
    )
    command.add_argument(
        "--at",
        type=moment_argument,
        metavar="TIME",
        help="the statuses of --report at an earlier time (default: now)",
    )
    command.set_defaults(handler=run_now)


def run_now(args: argparse.Namespace) -> int:
    """Print the current status of a site, or a line for each site.

    Raises:
        ReportUsage: no such report or site, the report expects nothing of the site, or --at is
            without --report, in the future, or before the oldest results.
    """
    configured, now = read_profiles(load_report(args).profiles), int(time.time())
    at = now if args.at is None else int(args.at.timestamp())
    if args.at is not None and args.report is None:
        raise ReportUsage("--at goes with --report: only a report has statuses of earlier times")
    if at > now:
        raise ReportUsage(f"{format_time(args.at)} is in the future")
    documents: list[dict[str, Any]]
    with reading(open_database(args, READER)) as connection:
        known = configured
        # A report that is not configured here may have been published from elsewhere.
        if not known or args.report not in (None, *(profile.name for profile in known)):
            known = [*configured, *published_profiles(connection)]
        profiles = instances.of_report(known, args.report)
        contacts = site_contacts(connection)
        contact = contacts.get(args.site, "")
        if args.report is None:
            sites = instances.read_sites(connection, profiles, at, args.site)
        else:
            profile = profiles[0] if args.at is None else profile_at(connection, profiles[0], at)
            folded = read_sites_folded(connection, profile, at, args.site)
    if args.report is None and args.site is None:
        documents = list(map(instances.summary_json, sites))
        lines = instances.sites_lines(sites, profiles)
    elif args.report is None:
        documents = [instances.site_json(sites[0])]
        lines = instances.site_lines(sites[0], profiles)
    elif args.site is None:
        documents = list(map(as_text.folded_summary_json, folded))
        lines = as_text.folded_sites_lines(folded, args.report, args.at)
    elif folded:
        documents = [as_text.folded_site_json(folded[0])]
        lines = as_text.folded_site_lines(folded[0], args.at)
    else:
        only = expected_sites(profiles[0])
        why = f"; it expects {only}" if only else ""
        raise ReportUsage(f"{args.site}: {args.report} expects nothing there on that day{why}")
    if args.json:
        documents = [{**of, "contact": contacts.get(of["site"])} for of in documents]
        print_json(documents[0] if args.site is not None else documents)
    else:
        print_lines(*lines[:1], *([f"contact: {contact}"] if contact else []), *lines[1:])
    return OK
