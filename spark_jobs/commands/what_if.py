"""`sam-report what-if`: published days under another profile; nothing is stored."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

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
from sam_pipeline.spark_jobs.rules.figures import Figure, MemberDay, Miss, figure_of, group_figures
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE, rounded, short
from sam_pipeline.spark_jobs.runs.due import due_days, horizon
from sam_pipeline.spark_jobs.runs.origin import ResultOrigin
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    Names,
    day_figures,
    day_members,
    published_reports,
    published_runs,
    require_site,
)
from sam_pipeline.spark_jobs.runs.summary import (
    PeriodTargets,
    added_up,
    member_days,
    period_targets,
)
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
the figures of sites and groups with the published ones. It publishes and stores nothing, and needs
no lock.
"""

_SHOWN = ("availability", "reliability", "unknown")
_OF_GROUPS = ("sites_expected", "sites_known")
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
    """Print the sites and groups whose figures or targets differ under the other profile.

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
        figures = list(day_figures(connection, report, SITE, period))
        members = member_days(day_members(connection, report, period), figures)
        targets = period_targets(connection, report, period)
        targets_under_other = period_targets(connection, report, period, other)
    # It is slow to import.
    from sam_pipeline.spark_jobs.compute import job, reports

    with reports.computing(args, engine, config.start_timeout_s) as run:
        computed = job.unpublished_days(run, other, compared, archived)
    before = ComparedDays(figures, members, targets)
    after = ComparedDays(computed.sites, computed.members, targets_under_other)
    sites = compare(before.of_sites(days), after.of_sites(days))
    groups = compare(before.of_groups(days), after.of_groups(days))
    if args.site is not None:
        groups, sites = [], [site for site in sites if site.names == (args.site,)]
        if not sites:
            with reading_at_once(engine) as connection:
                require_site(connection, [report], args.site, period)
    tables = [WhatIfTable(report, SITE, period, runs, other, sites)]
    if groups:
        tables.append(WhatIfTable(report, GROUP, period, runs, other, groups))
    return print_tables(args, tables)


@dataclass(frozen=True)
class WhatIfTable(ReportTable):
    """The sites, or the groups, that differ under another profile."""

    profile: Profile
    things: Sequence[Comparison]

    def rows(self) -> Iterator[Row]:
        for thing in self.things:
            if not thing.differs:
                continue
            before, after = (
                {name: getattr(figure, name, None) for name in (*_SHOWN, *_OF_GROUPS)}
                for figure in (thing.before, thing.after)
            )
            verdict = "newly met" if thing.newly_meets else None
            if thing.newly_misses:
                verdict = "newly missed"
            names = dict(zip(NAMES[self.level], thing.names, strict=True))
            shown = _SHOWN if self.level == SITE else _SHOWN[:2]
            yield [
                *self.about,
                *in_files(level=self.level),
                # Files have the same columns for both levels.
                *in_files(**{name: names.get(name) for name in (*NAMES[SITE], *NAMES[GROUP])}),
                *in_table(**names),
                *in_files(profile=self.profile.name),
                *in_files(**{f"{name}_before": rounded(before[name]) for name in _SHOWN}),
                *in_files(**{f"{name}_after": rounded(after[name]) for name in _SHOWN}),
                *in_files(**{f"{name}_before": before[name] for name in _OF_GROUPS}),
                *in_files(**{f"{name}_after": after[name] for name in _OF_GROUPS}),
                *chain.from_iterable(
                    in_table(**{name: short(before[name]), "would_be": short(after[name])})
                    for name in shown
                ),
                *(
                    in_table(sites=_sites(before), would_be=_sites(after))
                    if self.level == GROUP
                    else ()
                ),
                *both(days=len(thing.days)),
                *in_files(
                    days_that_differ=[day.isoformat() for day in thing.days],
                    missed_before=[miss.figure for miss in thing.missed_before],
                    missed_after=[miss.figure for miss in thing.missed_after],
                    verdict=verdict,
                ),
                *in_table(target=verdict or ("missed" if thing.missed_after else "met")),
            ]

    def lines(self) -> Iterator[str]:
        heading, blank, *others = super().lines()
        yield from (heading, blank)
        # What the two profiles count differently, in words; once, above the sites.
        old, new = dict(in_words(self.runs[-1].profile)), dict(in_words(self.profile))
        headings = [name for name in old | new if old.get(name) != new.get(name)]
        headings = headings if self.level == SITE else []
        width = max(map(len, [_WOULD_BE, *headings]))
        for heading in headings:
            yield f"  {heading:{width}}  {old.get(heading, 'none')}"
            yield f"  {_WOULD_BE:{width}}  {new.get(heading, 'none')}"
        if headings:
            yield ""
        yield from others

    def notes(self) -> Iterator[str]:
        different = [thing for thing in self.things if thing.differs]
        if not different:
            number = plural(len(self.things), self.level)
            yield f"nothing differs: {number} with the same figures, and targets as before"
            return
        number = plural(len(different), self.level)
        miss = sum(bool(thing.missed_before) for thing in self.things)
        would = sum(bool(thing.missed_after) for thing in self.things)
        yield f"{number} of {len(self.things)} would differ; {miss} miss a target, {would} would"
        for thing in different:
            days = in_ranges(thing.days) if self.period.first < self.period.last else ""
            misses = "; ".join(map(str, thing.missed_after)) if thing.newly_misses else ""
            if days or misses:
                yield f"  {' '.join(thing.names)}: {'; '.join(filter(None, (days, misses)))}"

    @property
    def heading(self) -> str:
        of_groups = ", groups" if self.level == GROUP else ""
        profile = self.profile.name
        return f"{self.report}, {self.period}{of_groups}, as the profile {profile} would count"


def _sites(figure: Mapping[str, object]) -> str:
    known, expected = figure["sites_known"], figure["sites_expected"]
    return NO_FIGURE if expected is None else f"{known} of {expected}"


@dataclass(frozen=True)
class Comparison:
    """A site or group over a period, before and after; None if nothing of it was or is expected.

    `days` are those on which a figure differs, in order.
    """

    names: Names
    before: Figure | None
    after: Figure | None
    days: Sequence[date]
    missed_before: Sequence[Miss]
    missed_after: Sequence[Miss]

    @property
    def differs(self) -> bool:
        return bool(self.days) or self.newly_misses or self.newly_meets or self._moved

    @property
    def _moved(self) -> bool:
        """Whether only the period differs: by a weight that changes the figure of no day."""
        return _shown(self.before) != _shown(self.after)

    @property
    def newly_misses(self) -> bool:
        return bool(self.missed_after) and not self.missed_before

    @property
    def newly_meets(self) -> bool:
        """It missed a target, and now has figures that meet all."""
        is_known = self.after is not None and self.after.availability is not None
        return bool(self.missed_before) and not self.missed_after and is_known


class Side(NamedTuple):
    """Things of a level under one profile: their figures of the period and of each day."""

    level: str
    figures: Mapping[Names, Figure]
    days: Mapping[Names, Mapping[date, Figure]]
    targets: PeriodTargets

    def misses(self, names: Names) -> Sequence[Miss]:
        figure = self.figures.get(names)
        return figure.misses(self.targets.of(self.level, names)) if figure else ()


@dataclass(frozen=True)
class ComparedDays:
    """The sites and the members of groups under one profile, and its targets."""

    sites: Sequence[DayFigure]
    members: Sequence[MemberDay]
    targets: PeriodTargets

    def of_sites(self, days: Collection[date]) -> Side:
        figures: dict[Names, dict[date, DayFigure]] = {}
        for figure in self.sites:
            if figure.day in days:
                figures.setdefault(figure.names, {})[figure.day] = figure
        return Side(
            SITE,
            {names: added_up([*of_site.values()]) for names, of_site in figures.items()},
            {
                names: {day: figure_of(names, figure.seconds) for day, figure in of_site.items()}
                for names, of_site in figures.items()
            },
            self.targets,
        )

    def of_groups(self, days: Collection[date]) -> Side:
        members = [member for member in self.members if member.day in days]
        of_days: dict[Names, dict[date, Figure]] = {}
        for day, of_day in groupby(members, attrgetter("day")):
            for figure in group_figures(of_day):
                of_days.setdefault(figure.names, {})[day] = figure
        period = {figure.names: figure for figure in group_figures(members)}
        return Side(GROUP, period, of_days, self.targets)


def compare(before: Side, after: Side) -> list[Comparison]:
    """All things of a level, by name."""
    comparisons = []
    for names in sorted(before.figures.keys() | after.figures.keys()):
        old, new = before.days.get(names, {}), after.days.get(names, {})
        differing = [day for day in {*old, *new} if _shown(old.get(day)) != _shown(new.get(day))]
        comparisons.append(
            Comparison(
                names,
                before.figures.get(names),
                after.figures.get(names),
                sorted(differing),
                before.misses(names),
                after.misses(names),
            )
        )
    return comparisons


def _shown(figure: Figure | None) -> object:
    """What tables show of a figure."""
    return figure and [getattr(figure, name) for name in (*_SHOWN, *_OF_GROUPS)]
