"""The figures of a group of sites over a period, traced back to the days of its members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import groupby
from operator import attrgetter
from textwrap import wrap
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import did_you_mean_or_list, plural
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.profiles.in_words import ARGO_WEIGHTS
from sam_pipeline.spark_jobs.profiles.profile import ARGO, Group
from sam_pipeline.spark_jobs.rules.days import Period, in_ranges, periods
from sam_pipeline.spark_jobs.rules.figures import (
    Figure,
    GroupTotal,
    MemberDay,
    MemberTotal,
    group_figures,
    group_totals,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES
from sam_pipeline.spark_jobs.rules.seconds import percent, rounded, short
from sam_pipeline.spark_jobs.runs.published import (
    PublishedRun,
    groups_with_members,
    members_of_group,
    published_runs,
)

# A formula has the numbers of up to this many members; of more, it has their sums.
_MAX_TERMS = 6


@dataclass(frozen=True)
class Part:
    """The part of a member in the mean of a figure: its weight there, and its value."""

    member: MemberTotal
    weight: int
    up: int
    of: int

    @property
    def value(self) -> Fraction | None:
        return percent(self.up, self.of)

    @property
    def term(self) -> str:
        return f"{self.weight} x {self.up} / {self.of}"


@dataclass(frozen=True)
class GroupExplanation:
    """A group over the days of a period on which it had members, and the runs of all days."""

    report: str
    period: Period
    total: GroupTotal
    days: Sequence[MemberDay]
    runs: Sequence[PublishedRun]

    @property
    def run_of(self) -> Mapping[date, PublishedRun]:
        return {run.day: run for run in self.runs}

    @property
    def argo_days(self) -> list[date]:
        """The days on which sites counted with their weight + 1."""
        with_members = {day.day for day in self.days}
        return [
            run.day for run in self.runs if run.day in with_members and run.profile.weights == ARGO
        ]

    @property
    def availability_parts(self) -> list[Part]:
        return [
            Part(member, member.weight, member.seconds.up, member.seconds.known)
            for member in self.total.members
        ]

    @property
    def reliability_parts(self) -> list[Part]:
        return [
            Part(member, member.reliability_weight, member.seconds.up, member.seconds.in_service)
            for member in self.total.members
        ]

    @property
    def by_day(self) -> list[tuple[date, Figure, list[MemberDay]]]:
        """Each day with its figure and its members."""
        days = []
        for day, of_day in groupby(self.days, attrgetter("day")):
            members = list(of_day)
            [figure] = group_figures(members)
            days.append((day, figure, members))
        return days


def read_groups(
    connection: Connection, reports: Sequence[str], group: Group, period: Period
) -> list[GroupExplanation]:
    """The explanations of a group in those of the reports in which it has members.

    Raises:
        ReportUsage: it has none in any of them.
    """
    explanations = []
    for report in reports:
        days = list(members_of_group(connection, report, period, group))
        if days:
            [total] = group_totals(days)
            runs = published_runs(connection, report, period)
            explanations.append(GroupExplanation(report, period, total, days, runs))
    if reports and not explanations:
        name = "/".join(group)
        known = {"/".join(g) for r in reports for g in groups_with_members(connection, r, period)}
        hint = did_you_mean_or_list(name, sorted(known)) if known else "no group has any"
        raise ReportUsage(f"no members of {name} in {period}: {hint}")
    return explanations


def group_lines(of: GroupExplanation) -> list[str]:
    """The explanation as text."""
    figure = of.total.figure
    sites = f"{figure.sites_known} of {plural(len(of.total.members), 'site')} with a figure"
    lines = [f"{of.report}, {of.period}: {' '.join(of.total.names)}, {sites}"]
    if argo := of.argo_days:
        on_days = "" if len(argo) == figure.days else f" (on {in_ranges(argo)})"
        lines.append(f"  {ARGO_WEIGHTS}{on_days}")
    if figure.has_no_weight:
        lines.append("  no figure: all sites with a figure have the weight 0")
    lines += ["", *_figure_lines("availability", "known", figure.availability, of)]
    if of.availability_parts == of.reliability_parts:
        lines += ["", "reliability: the same, as no member was in downtime"]
    else:
        lines += ["", *_figure_lines("reliability", "in service", figure.reliability, of)]
    if changes := list(_changes(of)):
        lines += ["", "members and weights", *(f"  {change}" for change in changes)]
    lines += ["", "figures of the sites", *(f"  {line}" for line in _origins(of))]
    return lines


def group_json(of: GroupExplanation) -> dict[str, Any]:
    """The explanation as JSON, with every day."""
    return {
        "report": of.report,
        "first_day": of.period.first,
        "last_day": of.period.last,
        **dict(zip(NAMES[GROUP], of.total.names, strict=True)),
        **_figure_json(of.total.figure),
        "argo_weights": bool(of.argo_days),
        "members": [
            {
                "site": availability.member.site,
                "days": len(availability.member.days),
                "weight": availability.weight,
                "reliability_weight": reliability.weight,
                "up_s": availability.up,
                "known_s": availability.of,
                "in_service_s": reliability.of,
                "availability": rounded(availability.value),
                "reliability": rounded(reliability.value),
                "share": rounded(_share(availability, of.availability_parts)),
                "reliability_share": rounded(_share(reliability, of.reliability_parts)),
            }
            for availability, reliability in zip(
                of.availability_parts, of.reliability_parts, strict=True
            )
        ],
        "changes": list(_changes(of)),
        "by_day": [
            {
                "day": day,
                "run_id": of.run_of[day].run_id,
                **_figure_json(figure),
                "argo_weights": of.run_of[day].profile.weights == ARGO,
                "members": [
                    {
                        "site": member.site,
                        "weight": member.weight,
                        **{f"{status}_s": s for status, s in vars(seconds).items()},
                        "availability": rounded(seconds.availability),
                        "reliability": rounded(seconds.reliability),
                    }
                    for _, member, seconds in members
                ],
            }
            for day, figure, members in of.by_day
        ],
    }


def _figure_json(figure: Figure) -> dict[str, Any]:
    return {
        "availability": rounded(figure.availability),
        "reliability": rounded(figure.reliability),
        "sites_expected": figure.sites_expected,
        "sites_known": figure.sites_known,
    }


def _figure_lines(
    name: str, seconds: str, value: Fraction | None, of: GroupExplanation
) -> Iterator[str]:
    """A row for each member, and the formula with the numbers of all."""
    parts = of.availability_parts if name == "availability" else of.reliability_parts
    columns = (
        "site",
        "days",
        "weight",
        "sum of weights",
        "up (s)",
        f"{seconds} (s)",
        name,
        "share",
    )
    rows = [
        [
            part.member.site,
            len(part.member.days),
            ", ".join(map(str, dict.fromkeys(day.member.weight for day in part.member.days))),
            part.weight,
            part.up,
            part.of,
            "-" if part.value is None else str(rounded(part.value)),
            short(_share(part, parts)),
        ]
        for part in parts
    ]
    yield from text_table(columns, rows)
    counted = [part for part in parts if part.weight]
    weights = sum(part.weight for part in counted)
    if len(counted) > _MAX_TERMS:
        total = sum((part.weight * (part.value or Fraction()) for part in counted), Fraction())
        terms, divisor = f"sum of weight x up / {seconds} x 100: {rounded(total)}", f"{weights}"
    else:
        terms = f"100 x ({' + '.join(part.term for part in counted)})"
        divisor = f"({' + '.join(str(part.weight) for part in counted)})"
    if counted:
        formula = f"{name} = {terms} / {divisor} = {rounded(value)}"
        yield from wrap(formula, 100, subsequent_indent="    ")


def _share(part: Part, parts: Sequence[Part]) -> Fraction | None:
    """The percentage of a member in the mean."""
    return percent(part.weight, sum(each.weight for each in parts))


def _changes(of: GroupExplanation) -> Iterator[str]:
    """When members came and went, how their weights changed, and when they did not count."""
    computed = [run.day for run in of.runs]
    for member in of.total.members:
        days = [day.day for day in member.days]
        if len(days) < len(computed):
            yield f"{member.site}: a member on {in_ranges(days)}"
        by_weight: dict[int, list[date]] = {}
        for day in member.days:
            by_weight.setdefault(day.member.weight, []).append(day.day)
        if len(by_weight) > 1:
            weights = (f"{weight} on {in_ranges(on)}" for weight, on in by_weight.items())
            yield f"{member.site}: weight {', '.join(weights)}"
        if unknown := [day.day for day in member.days if not day.seconds.known]:
            yield f"{member.site}: no figure on {in_ranges(unknown)}, so no weight"
        only_down = [d.day for d in member.days if d.seconds.known and not d.seconds.in_service]
        if only_down:
            yield f"{member.site}: no reliability on {in_ranges(only_down)}, so no weight in it"


def _origins(of: GroupExplanation) -> Iterator[str]:
    """The runs that computed the figures of the sites, and how to explain these."""
    for period in periods([day for day, _, _ in of.by_day]):
        runs = [of.run_of[day].run_id for day in period.days()]
        numbers = ", ".join(map(str, runs))
        if len(runs) > 2 and runs == list(range(runs[0], runs[-1] + 1)):
            numbers = f"{runs[0]} to {runs[-1]}"
        yield f"{period}: run{'s' if len(runs) > 1 else ''} {numbers}"
    first, last = of.period.first, of.period.last
    of_period = f"--day {first}" if first == last else f"--from {first} --to {last}"
    yield f"sam-report explain --report {of.report} {of_period} --site SITE"
