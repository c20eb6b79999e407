"""`sam-report status`: which days of each report are published, due and sealed."""

from __future__ import annotations

import argparse

from sqlalchemy import text

from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_table
from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.config import load_report
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges
from sam_pipeline.spark_jobs.runs.due import due_days
from sam_pipeline.spark_jobs.runs.published import as_moment, candidates
from sam_pipeline.spark_jobs.runs.seal import seals
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.roles import READER

ABOUT = """\
The reports are those of the profiles in [report] of sam.toml, which `sam-report run --due`
computes, and all others with published days. A day that is due is computed again only if its inputs
are not the same. Candidates are days of sealed months that were computed again.
"""
_PUBLISHED = (
    "SELECT report, count(*), min(day), max(day), max(finished_at) FROM report_run"
    " WHERE state = 'published' GROUP BY report"
)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = ABOUT
    command.set_defaults(handler=run_status)


def run_status(args: argparse.Namespace) -> int:
    """Print a line for each report."""
    configured = {profile.name for profile in read_profiles(load_report(args).profiles)}
    today = utc_today()
    documents, rows = [], []
    with reading_at_once(open_database(args, READER)) as connection:
        published = {name: row for name, *row in connection.execute(text(_PUBLISHED))}
        for report in sorted(configured | published.keys()):
            days, first, last, computed_at = published.get(report, (0, today, today, None))
            period = Period(as_day(first), as_day(last))
            finished = computed_at and format_time(as_moment(computed_at))
            due = due_days(connection, report, today) if report in configured else []
            months = [seal.month for seal in seals(connection, report)]
            waiting = [candidate.day for candidate in candidates(connection, report, period)]
            documents.append(
                {
                    "report": report,
                    "configured": report in configured,
                    "days": days,
                    "first_day": period.first if days else None,
                    "last_day": period.last if days else None,
                    "computed_at": finished,
                    "due_days": due,
                    "sealed_months": months,
                    "candidate_days": waiting,
                }
            )
            rows.append(
                [
                    report,
                    f"{period} ({days})" if days else "none",
                    finished,
                    in_ranges(due) or ("none" if report in configured else "not configured"),
                    months[-1] if months else "none",
                    in_ranges(waiting) or "none",
                ]
            )
    if args.json:
        print_json({"reports": documents})
    elif rows:
        columns = ["report", "published days", "computed at", "due", "sealed up to", "candidates"]
        print_lines(*text_table(columns, rows))
    else:
        print_lines("no reports: none is configured or published")
    return OK
