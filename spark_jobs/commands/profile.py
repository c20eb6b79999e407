"""`sam-report profile`: check profiles, and show in words what published days counted."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import (
    OK,
    add_action,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.moments import day_argument, utc_today
from sam_pipeline.schema.program.wording import did_you_mean_or_list, plural
from sam_pipeline.schema.settings import show
from sam_pipeline.schema.settings.section import examine
from sam_pipeline.spark_jobs.command_line import add_published_options, published, requested_period
from sam_pipeline.spark_jobs.config import ReportConfig
from sam_pipeline.spark_jobs.inputs import observed
from sam_pipeline.spark_jobs.inputs.observed import Observed
from sam_pipeline.spark_jobs.profiles.file import read_profiles
from sam_pipeline.spark_jobs.profiles.in_words import Words, in_words, words_by_day
from sam_pipeline.spark_jobs.profiles.profile import OFF, Profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.published import published_runs
from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.database.config import DatabaseConfig, open_if_configured
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.errors import DatabaseAway, DatabaseMissing, SchemaMismatch

DAYS = 7
"""How many days of results are examined by default, up to the newest one."""
NO_DATABASE = "no [database] is configured: only the files were checked"
EXAMPLES = """\
examples:
  sam-report profile check critical.toml
  sam-report profile check /etc/sam/*.toml --since 30d

Each profile is shown in words: what is up, which results and downtimes count, and the targets.
Every problem is printed with its line. If a database is configured, each metric is listed with the
99th percentile of the intervals between two results of one instance (nearest rank); the proposed
validity is three times that. At most 50 instances of a metric are sampled.
"""
SHOW_EXAMPLES = """\
examples:
  sam-report profile show --month 2026-10
  sam-report profile show --day 2026-10-31 --report critical

A run keeps the profile it was computed with. If the profile changed within the period, the
differences on earlier days follow.
"""
_COUNTED = ("flavour", "metric", "function")
COLUMNS = ["metric", "instances", "asked", "intervals", "p99 interval", "validity", "proposed"]


@dataclass(frozen=True)
class Checked:
    """A valid profile; `metrics` and `period` are None without a database."""

    profile: Profile
    warnings: list[str]
    metrics: list[Observed] | None = None
    period: Period | None = None


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = f"{EXAMPLES}\n{SHOW_EXAMPLES}"
    actions = command.add_subparsers()
    check = add_action(actions, "check", run_check, "list all problems of profiles", EXAMPLES)
    check.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a profile")
    check.add_argument(
        "--since",
        type=day_argument,
        metavar="DAY",
        help=f"the first day of results to examine (default: the newest {DAYS} days)",
    )
    show = add_action(
        actions, "show", run_show, "show in words what published days counted", SHOW_EXAMPLES
    )
    add_published_options(show, site=False)


def add_config_options(command: argparse.ArgumentParser) -> None:
    """The command `config`."""

    sections = (ReportConfig, DatabaseConfig, ArchiveConfig)
    show.add_options(command, lambda args: [examine(one, args.config) for one in sections])


def run_check(args: argparse.Namespace) -> int:
    """Check the files, and print how each profile fits the database."""
    profiles = read_profiles(args.files)
    checked = [Checked(profile, _idle_flavours(profile)) for profile in profiles]
    unchecked = ""  # why the database was not consulted
    try:
        if engine := open_if_configured(args):
            with reading(engine) as connection:
                today = utc_today()
                checked = [check(connection, profile, today, args.since) for profile in profiles]
        else:
            unchecked = NO_DATABASE
    except (DatabaseAway, DatabaseMissing, SchemaMismatch) as error:
        unchecked = f"{error}: only the files were checked"
    documents = [_as_json(f, of) for f, of in zip(args.files, checked, strict=True)]
    if args.json:
        print_json(documents)
        return OK
    for document, of in zip(documents, checked, strict=True):
        counts = ", ".join(plural(document[f"{name}s"], name) for name in _COUNTED)
        print_lines(f"{document['file']}: OK, report {document['name']}: {counts}")
        print_lines(*word_lines(in_words(of.profile)))
        if of.period and of.metrics:
            print_lines(f"results of {of.period}, at most {observed.SAMPLE} instances per metric:")
            rows = [
                [*names, "-" if p99_s is None else p99_s, validity_s or OFF, proposed_s or "-"]
                for *names, p99_s, validity_s, proposed_s in map(dict.values, document["observed"])
            ]
            print_lines(*text_table(COLUMNS, rows))
        elif of.metrics is not None:
            print_lines("the database has no results yet")
        print_lines(*(f"warning: {warning}" for warning in of.warnings))
    if unchecked:
        print_lines(unchecked)
    return OK


def run_show(args: argparse.Namespace) -> int:
    """Print what each report counted, from the profiles that its runs kept."""
    period = requested_period(args)
    with published(args, period) as (connection, names):
        reports = {
            report: words_by_day(
                (run.day, run.profile) for run in published_runs(connection, report, period)
            )
            for report in names
        }
    if args.json:
        print_json(
            [
                {
                    "report": report,
                    "first_day": entry.days.first,
                    "last_day": entry.days.last,
                    "counts": words_json(entry.words),
                }
                for report, entries in reports.items()
                for entry in entries
            ]
        )
        return OK
    for number, (report, (newest, *others)) in enumerate(reports.items()):
        print_lines(*[""] * bool(number), f"{report}, {newest.days}", *word_lines(newest.words))
        for entry in others:
            print_lines(f"different on {entry.days}", *word_lines(entry.words))
    return OK


def check(
    connection: Connection, profile: Profile, today: date, since: date | None = None
) -> Checked:
    """Check a profile against the topology of `today` and the results `since` a day."""
    warnings = _idle_flavours(profile)
    vos = observed.known_vos(connection) if profile.vo else []
    if profile.vo and profile.vo not in vos:
        hint = did_you_mean_or_list(profile.vo, vos)
        warnings.append(f"no result and no endpoint is of VO {profile.vo}: {hint}")
    for flavour in observed.without_endpoints(connection, profile, today):
        of_vo = f" for VO {profile.vo}" if profile.vo else ""
        warnings.append(f"flavour {flavour} has no endpoint{of_vo} in the topology of {today}")
    warnings += observed.idle_patterns(connection, profile, today)
    for unknown in observed.unknown_names(connection, profile):
        warnings.append(f"targets of an unknown {unknown}")
    for metric_of_flavour in observed.never_seen(connection, profile):
        warnings.append(f"{metric_of_flavour} was never seen: the database has no result for it")
    newest = observed.newest_day(connection, today)
    if newest is None:
        return Checked(profile, warnings, [], None)
    first = newest - timedelta(days=DAYS - 1) if since is None else min(since, newest)
    period = Period(first, newest)
    metrics = observed.observe(connection, profile, period, today)
    for metric in metrics:
        p99_s, validity_s = metric.p99_interval_s, metric.validity_s
        if metric.instances and not metric.sampled:
            warnings.append(f"{metric.metric_name} has no result in {period}")
        elif validity_s is not None and p99_s is not None and validity_s < p99_s:
            warnings.append(
                f"{metric.metric_name}: its validity of {validity_s} s is below its p99 interval"
                f" of {p99_s} s, so it will be MISSING between results"
            )
    return Checked(profile, warnings, metrics, period)


def _idle_flavours(profile: Profile) -> list[str]:
    return [
        f"flavour {flavour.name} belongs to no function: it doesn't count for its sites"
        for flavour in profile.flavours
        if not profile.functions_of(flavour.name)
    ]


def _as_json(file: Path, checked: Checked) -> dict[str, Any]:
    profile, period = checked.profile, checked.period
    observations = [
        {
            "metric_name": metric.metric_name,
            "instances": metric.instances,
            "instances_asked": metric.sampled,
            "intervals": metric.intervals,
            "p99_interval_s": metric.p99_interval_s,
            "validity_s": metric.validity_s,
            "proposed_validity_s": metric.proposed_validity_s,
        }
        for metric in checked.metrics or ()
    ]
    return {
        "file": str(file),
        "name": profile.name,
        "flavours": len(profile.flavours),
        "metrics": len({name for flavour in profile.flavours for name in flavour.metrics}),
        "functions": len(profile.functions),
        "counts": words_json(in_words(profile)),
        "first_day": period.first if period else None,
        "last_day": period.last if period else None,
        "observed": None if checked.metrics is None else observations,
        "warnings": checked.warnings,
    }


def word_lines(words: Words) -> Iterator[str]:
    """The sentences, next to their headings."""
    width = max(len(heading) for heading, _ in words)
    return (f"  {heading:{width}}  {sentence}" for heading, sentence in words)


def words_json(words: Words) -> list[dict[str, str]]:
    return [{"what": heading, "text": sentence} for heading, sentence in words]
