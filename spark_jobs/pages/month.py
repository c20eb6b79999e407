"""The pages of a month with a cell for each day: of the sites, and of each type of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.inputs.announced import Downtime
from sam_pipeline.spark_jobs.pages.navigation import Neighbours, YearView, year_view
from sam_pipeline.spark_jobs.pages.verdict import (
    NO_WEIGHT,
    OF_FIGURES,
    Cell,
    PeriodTotals,
    Verdict,
    availability_cell,
    empty_cell,
    totals_of,
    worst_first,
)
from sam_pipeline.spark_jobs.pages.writer import group_anchor, group_page, site_page
from sam_pipeline.spark_jobs.profiles.in_words import WordsOfDays, own_targets, words_by_day
from sam_pipeline.spark_jobs.profiles.profile import ARGO
from sam_pipeline.spark_jobs.rules.days import Period, month_of
from sam_pipeline.spark_jobs.rules.figures import (
    Figure,
    GroupTotal,
    Member,
    MemberTotal,
    Targets,
    figure_of,
    group_figures,
    group_totals,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.rules.seconds import short, short_change
from sam_pipeline.spark_jobs.runs.months import ReportHistory
from sam_pipeline.spark_jobs.runs.published import DayFigure, Names, PublishedRun, until_of
from sam_pipeline.spark_jobs.runs.seal import Seal
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, added_up, member_days


@dataclass(frozen=True)
class Day:
    """A column of the matrix; `until` is set if the day was open. A computed one has a page."""

    day: date
    until: int | None
    is_computed: bool = True

    @property
    def weekday(self) -> str:
        return f"{self.day:%a}"

    @property
    def number(self) -> str:
        return f"{self.day:%d}"


@dataclass(frozen=True)
class MemberRow:
    """A site of a group over its `days` as a member: its figures and weights there.

    `share` is the percentage that it has in the mean.
    """

    site: str
    total: PeriodTotals
    weights: str
    days: int
    share: str


@dataclass(frozen=True)
class MatrixRow:
    """A site or a group: the period's figures, then a cell for each day.

    `change` is that of the availability against the month before. The filter of the table looks for
    the name of a site and those of its `groups`, with their types. A group has its `members`, with
    their figures over the period.
    """

    name: str
    total: PeriodTotals
    targets: Targets
    change: str
    days: Sequence[Cell]
    groups: Sequence[str] = ()
    members: Sequence[MemberRow] = ()
    has_no_weight: bool = False

    @property
    def verdict(self) -> Verdict:
        return self.total.availability.verdict

    @property
    def anchor(self) -> str:
        """The id of a group on the page of its type."""
        return group_anchor(self.name)


@dataclass(frozen=True)
class Matrix:
    """All sites, or all groups of a type, the worst first."""

    rows: Sequence[MatrixRow]
    group_type: str = ""

    @property
    def missed(self) -> list[MatrixRow]:
        return [row for row in self.rows if row.total.misses]

    @property
    def met(self) -> list[MatrixRow]:
        return [row for row in self.rows if not row.total.misses]

    @property
    def verdicts(self) -> list[tuple[Verdict, int]]:
        """The number of rows with each verdict."""
        counts = Counter(row.verdict for row in self.rows)
        return [(kind, counts[kind]) for kind in OF_FIGURES]

    @property
    def no_weight(self) -> Verdict | None:
        """The verdict on groups whose weights are all 0, if there is one on any day."""
        cells = (cell for row in self.rows for cell in (row.total.availability, *row.days))
        return next((cell.verdict for cell in cells if cell.verdict is NO_WEIGHT), None)

    @property
    def link(self) -> str:
        """The path of the page of a type of groups, relative to the index of the month."""
        return group_page(self.group_type)


@dataclass(frozen=True)
class Month:
    """A report over a whole month; all its pages need this.

    `in_bad_row` are the sites that were below a target in this month and in the two before. Pages
    for the `public` name no persons, publishers or messages.
    """

    report: str
    period: Period
    path: str
    runs: Sequence[PublishedRun]
    seal: Seal | None
    period_targets: PeriodTargets
    beside: Neighbours = field(default_factory=Neighbours)
    history: ReportHistory = field(default_factory=lambda: ReportHistory({}))
    contacts: Mapping[str, str] = field(default_factory=dict)
    in_bad_row: Collection[str] = ()
    announcers: Mapping[Downtime, str] = field(default_factory=dict)
    public: bool = False

    def for_the_public(self) -> Month:
        """The month without contacts, persons and identities."""
        seal = self.seal
        if seal:
            seal = replace(seal, revisions=[of.unsigned() for of in seal.revisions])
        runs = [
            replace(run, who="", exclusions=[exclusion.unsigned() for exclusion in run.exclusions])
            for run in self.runs
        ]
        return replace(self, runs=runs, seal=seal, contacts={}, announcers={}, public=True)

    @property
    def sealed(self) -> str:
        """The newest revision, by whom and when; empty if the month is not sealed."""
        return str(self.seal.newest) if self.seal else ""

    @property
    def is_complete(self) -> bool:
        """Whether all its days are over and were computed, so that it can be sealed."""
        return self.until is None and len(self.runs) == self.period.last.day

    @property
    def waiting(self) -> str:
        """What the next seal would change; empty if no candidate changes a figure."""
        if not self.seal or not self.seal.figures:
            return ""
        days = plural(len(self.seal.candidates), "day")
        return f"{plural(self.seal.figures, 'figure')} of {days} would change"

    @property
    def targets(self) -> Targets:
        """The targets of all sites and groups that have none of their own."""
        return self.period_targets.everywhere

    @property
    def own_targets(self) -> list[tuple[str, str]]:
        """The targets that differ for some groups and sites."""
        return list(own_targets(self.period_targets.profile))

    @cached_property
    def what_counts(self) -> list[WordsOfDays]:
        """What the report counts, by the profiles that its runs kept."""
        return words_by_day((run.day, run.profile) for run in self.runs)

    @property
    def has_argo_weights(self) -> bool:
        """Whether sites count in groups with their weight + 1 on any day."""
        return any(run.profile.weights == ARGO for run in self.runs)

    @property
    def name(self) -> str:
        return f"{self.period.first:%B %Y}"

    @property
    def name_before(self) -> str:
        return f"{self.period.first - timedelta(days=1):%B}"

    @property
    def days(self) -> list[Day]:
        until = {run.day: run.until for run in self.runs}
        return [Day(day, until.get(day), day in until) for day in self.period.days()]

    @property
    def computed_at(self) -> str:
        """When the newest run finished (UTC): the date of the figures."""
        newest = max((run.finished_at for run in self.runs), default="")
        return newest.replace("T", " ")[:16]

    @property
    def until(self) -> int | None:
        """The end of the data (epoch s), if a day was open."""
        return until_of(self.runs)

    def change(self, level: str, figure: Figure) -> str:
        """The change of an availability against the month before; empty without one."""
        before = self._before[level].get(figure.names)
        return short_change(figure.availability, before.availability) if before else ""

    @cached_property
    def _before(self) -> Mapping[str, Mapping[Names, Figure]]:
        """The figures of the month before by level and names."""
        first = month_of(self.period.first - timedelta(days=1)).first
        return {
            level: {figure.names: figure for figure in self.history.in_month(level, first)}
            for level in (SITE, GROUP)
        }

    def year_of(self, level: str, names: Names, page: str) -> YearView | None:
        """The year of a site or group up to the month, and where its `page` is in each month."""
        figures = self.history.year(level, names, self.period.first)
        targets = self.period_targets.of(level, names)
        return year_view(figures, self.period.first, targets, self.beside, page)


def site_matrix(
    month: Month, figures: Mapping[str, Sequence[DayFigure]], groups: Sequence[Matrix]
) -> Matrix:
    """The matrix of a month, from the figures of each site's days."""
    computed = {run.day for run in month.runs}
    groups_of: dict[str, list[str]] = {}
    for of_type in groups:
        for group in (*of_type.missed, *of_type.met):
            for member in group.members:
                group_name = f"{of_type.group_type} {group.name}"
                groups_of.setdefault(member.site, []).append(group_name)
    rows = []
    for total in _worst_first(month, SITE, map(added_up, figures.values())):
        [site] = total.names
        targets, figure_on = month.period_targets.of_site(site), {f.day: f for f in figures[site]}
        cells = []
        for day in month.period.days():
            if figure := figure_on.get(day):
                # A day that was OK all the time needs no explanation, and gets no link.
                all_ok = figure.seconds.ok == figure.seconds.total
                link = "" if all_ok else f"{site_page(site)}#{day}"
                shown = figure_of(figure.names, figure.seconds)
                cells.append(availability_cell(shown, targets, 0, link))
            else:
                cells.append(empty_cell(day in computed))
        change = month.change(SITE, total)
        of_site = groups_of.get(site, ())
        rows.append(MatrixRow(site, totals_of(total, targets), targets, change, cells, of_site))
    return Matrix(rows)


def group_matrices(
    month: Month,
    members: Sequence[tuple[date, Member]],
    figures: Mapping[str, Sequence[DayFigure]],
) -> list[Matrix]:
    """A matrix for each type of groups, from the figures of each site's days."""
    targets = month.period_targets
    days = member_days(members, chain.from_iterable(figures.values()))
    with_members = {day.day for day in days}
    figure_on: dict[tuple[object, ...], Figure] = {
        (day, *group.names): group
        for day, of_day in groupby(days, attrgetter("day"))
        for group in group_figures(of_day)
    }
    groups = {group.names: group for group in group_totals(days)}
    rows: dict[str, list[MatrixRow]] = {group_type: [] for group_type, _ in groups}
    for total in _worst_first(month, GROUP, (group.figure for group in groups.values())):
        group_type, name = total.names
        own_targets = targets.of(GROUP, total.names)
        cells = [
            availability_cell(figure, own_targets, 0)
            if (figure := figure_on.get((day, group_type, name)))
            else empty_cell(day in with_members)
            for day in month.period.days()
        ]
        group = groups[group_type, name]
        of_group = [_member_row(month, group, member) for member in group.members]
        row = MatrixRow(
            name,
            totals_of(total, own_targets),
            own_targets,
            month.change(GROUP, total),
            cells,
            members=of_group,
            has_no_weight=total.has_no_weight,
        )
        rows[group_type].append(row)
    return [Matrix(of_type, group_type) for group_type, of_type in rows.items()]


def _member_row(month: Month, group: GroupTotal, member: MemberTotal) -> MemberRow:
    figure = figure_of((member.site,), member.seconds)
    weights = dict.fromkeys(day.member.weight for day in member.days)
    return MemberRow(
        member.site,
        totals_of(figure, month.period_targets.of_site(member.site)),
        ", ".join(map(str, weights)),
        len(member.days),
        short(group.share(member), 1),
    )


def _worst_first(month: Month, level: str, figures: Iterable[Figure]) -> list[Figure]:
    targets = month.period_targets
    return sorted(figures, key=lambda figure: worst_first(figure, targets.of(level, figure.names)))


def by_site(figures: Iterable[DayFigure]) -> dict[str, list[DayFigure]]:
    """The days of each site, sorted by site."""
    days: dict[str, list[DayFigure]] = {}
    for figure in figures:
        days.setdefault(figure.names[0], []).append(figure)
    return dict(sorted(days.items()))
