"""`sam-report what-if`: published days under another profile; nothing is stored."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path

from sam_pipeline.schema.program.command import text_argument
from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.command_line import (
    ReportTable,
    Row,
    add_period_options,
    add_site_option,
    add_spark_options,
    add_table_option,
    both,
    in_files,
    in_table,
    print_tables,
    requested_period,
)
from sam_pipeline.spark_jobs.config import DATABASE, load_report
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.observed import never_seen
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.in_words import in_words
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, in_ranges
from sam_pipeline.spark_jobs.rules.figures import Figure, Miss
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.rules.seconds import rounded, short
from sam_pipeline.spark_jobs.runs.due import due_days, horizon
from sam_pipeline.spark_jobs.runs.origin import ResultOrigin
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    day_figures,
    published_reports,
    published_runs,
    require_site,
)
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, added_up, period_targets
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
examples:
  sam-report what-if --profile stricter.toml --month 2026-10
  sam-report what-if --profile new.toml --report critical --day 2026-10-14 --site SITE-A
  sam-report what-if --profile stricter.toml --month 2026-10 --format csv > differences.csv

Computes the closed, published days of the period again under the profile, with Spark, and compares
the figures of sites with the published ones. It publishes and stores nothing, and needs no lock.
"""

_SHOWN = ("availability", "reliability", "unknown")
_WOULD_BE = "would be"

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--profile",
        dest="other_profile",
        type=Path,
        required=True,
        metavar="FILE",
        help="the other profile",
    )
    add_period_options(command)
    command.add_argument(
        "--report",
        type=text_argument,
        metavar="NAME",
        help="the published report to compare with (default: the name of the profile)",
    )
    add_site_option(command)
    add_table_option(command)
    add_spark_options(command)
    command.set_defaults(handler=run_what_if)


def run_what_if(args: argparse.Namespace) -> int:
    """Print the sites whose figures or targets differ under the other profile.

    Raises:
        ReportUsage: no closed day of the period is published, or its results were pruned; or no
            such report or site.
    """
    period, other = requested_period(args), read_profile(args.other_profile)
    report = args.report or other.name
    config, engine = load_report(args), open_database(args, READER)
    store = None if config.source == DATABASE else load_archive(args).open()
    origin = ResultOrigin(config.source, store)
    with reading_at_once(engine) as connection:
        published_reports(connection, report, period)  # which refuses unknown names
        runs = [run for run in published_runs(connection, report, period) if run.until is None]
        if not runs:
            raise ReportUsage(
                f"{report}: no closed day is published in {period}: nothing to compare"
            )
        compared = Period(runs[0].day, runs[-1].day)
        archived = origin.archived_days(connection, compared, other.look_back)
        first_day = horizon(connection) or date.min
        if any(run.day < first_day and run.day not in archived for run in runs):
            raise ReportUsage(
                f"results before {first_day} were pruned: choose a period from that day on"
            )
        days = {run.day for run in runs}
        if left_out := [day for day in period.days() if day not in days]:
            logger.warning(
                "%s: not compared, as not published or not over: %s", report, in_ranges(left_out)
            )
        if due := [day for day in due_days(connection, report, utc_today()) if day in days]:
            logger.warning(
                "%s: inputs have changed since, which this comparison includes: %s"
                " (`sam-report run --due` applies them)",
                report,
                in_ranges(due),
            )
        if origin.has_database and (unseen := never_seen(connection, other)):
            logger.warning("%s: never seen, so MISSING: %s", other.name, ", ".join(unseen))
        before = list(day_figures(connection, report, SITE, period))
        targets = period_targets(connection, report, period)
        targets_under_other = period_targets(connection, report, period, other)
    # It is slow to import.
    from sam_pipeline.spark_jobs.compute import job, reports

    with reports.computing(args, engine, config.start_timeout_s) as run:
        after = job.site_days(run, other, compared, archived)
    sites = compare(before, after, days, targets, targets_under_other)
    if args.site is not None:
        sites = [site for site in sites if site.site == args.site]
        if not sites:
            with reading_at_once(engine) as connection:
                require_site(connection, [report], args.site, period)
    return print_tables(args, [WhatIfTable(report, SITE, period, runs, other, sites)])


@dataclass(frozen=True)
class WhatIfTable(ReportTable):
    """The sites that differ under another profile."""

    profile: Profile
    sites: Sequence[SiteComparison]

    def rows(self) -> Iterator[Row]:
        for site in self.sites:
            if not site.differs:
                continue
            before, after = (
                {name: getattr(figure, name, None) for name in _SHOWN}
                for figure in (site.before, site.after)
            )
            verdict = "newly met" if site.newly_meets else None
            if site.newly_misses:
                verdict = "newly missed"
            yield [
                *self.named((site.site,)),
                *in_files(profile=self.profile.name),
                *in_files(**{f"{name}_before": rounded(before[name]) for name in _SHOWN}),
                *in_files(**{f"{name}_after": rounded(after[name]) for name in _SHOWN}),
                *chain.from_iterable(
                    in_table(**{name: short(before[name]), "would_be": short(after[name])})
                    for name in _SHOWN
                ),
                *both(days=len(site.days)),
                *in_files(
                    days_that_differ=[day.isoformat() for day in site.days],
                    missed_before=[miss.figure for miss in site.missed_before],
                    missed_after=[miss.figure for miss in site.missed_after],
                    verdict=verdict,
                ),
                *in_table(target=verdict or ("missed" if site.missed_after else "met")),
            ]

    def lines(self) -> Iterator[str]:
        heading, blank, *others = super().lines()
        yield from (heading, blank)
        # What the two profiles count differently, in words.
        old, new = dict(in_words(self.runs[-1].profile)), dict(in_words(self.profile))
        headings = [name for name in old | new if old.get(name) != new.get(name)]
        width = max(map(len, [_WOULD_BE, *headings]))
        for heading in headings:
            yield f"  {heading:{width}}  {old.get(heading, 'none')}"
            yield f"  {_WOULD_BE:{width}}  {new.get(heading, 'none')}"
        if headings:
            yield ""
        yield from others

    def notes(self) -> Iterator[str]:
        different = [site for site in self.sites if site.differs]
        if not different:
            number = plural(len(self.sites), "site")
            yield f"nothing differs: {number} with the same figures, and targets as before"
            return
        yield f"{plural(len(different), 'site')} of {len(self.sites)} would differ, on these days:"
        for site in different:
            misses = "; ".join(map(str, site.missed_after)) if site.newly_misses else ""
            yield f"  {site.site}: {in_ranges(site.days)}{f' ({misses})' if misses else ''}"

    @property
    def heading(self) -> str:
        return f"{self.report}, {self.period}, as the profile {self.profile.name} would count"


@dataclass(frozen=True)
class SiteComparison:
    """A site over a period, before and after; None if nothing of it was or is expected.

    `days` are those on which a figure differs, in order.
    """

    site: str
    before: Figure | None
    after: Figure | None
    days: Sequence[date]
    missed_before: Sequence[Miss]
    missed_after: Sequence[Miss]

    @property
    def differs(self) -> bool:
        return bool(self.days) or self.newly_misses or self.newly_meets

    @property
    def newly_misses(self) -> bool:
        return bool(self.missed_after) and not self.missed_before

    @property
    def newly_meets(self) -> bool:
        """It missed a target, and now has figures that meet all."""
        is_known = self.after is not None and self.after.availability is not None
        return bool(self.missed_before) and not self.missed_after and is_known


def compare(
    before: Iterable[DayFigure],
    after: Iterable[DayFigure],
    days: Collection[date],
    targets_before: PeriodTargets,
    targets_after: PeriodTargets,
) -> list[SiteComparison]:
    """All sites over these days, by name."""
    sides: list[dict[str, dict[date, DayFigure]]] = [{}, {}]
    for side, figures in zip(sides, (before, after), strict=True):
        for figure in figures:
            if figure.day in days:
                side.setdefault(figure.names[0], {})[figure.day] = figure
    comparisons = []
    for site in sorted(sides[0].keys() | sides[1].keys()):
        old, new = (side.get(site, {}) for side in sides)
        old_figure, new_figure = (added_up([*of.values()]) if of else None for of in (old, new))
        differing = [day for day in old | new if _shown(old.get(day)) != _shown(new.get(day))]
        comparisons.append(
            SiteComparison(
                site,
                old_figure,
                new_figure,
                sorted(differing),
                old_figure.misses(targets_before.of_site(site)) if old_figure else (),
                new_figure.misses(targets_after.of_site(site)) if new_figure else (),
            )
        )
    return comparisons


def _shown(figure: DayFigure | None) -> object:
    if figure is None:
        return None
    seconds = figure.seconds
    return seconds.availability, seconds.reliability, seconds.unknown_share
