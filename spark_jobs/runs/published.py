"""Reads published figures and timelines, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion, recorded_downtime
from sam_pipeline.spark_jobs.profiles.file import recorded_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, as_day, day_start, in_ranges
from sam_pipeline.spark_jobs.rules.figures import Figure, Member, MemberDay, figure_of
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, GROUP, METRIC, NAMES, SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds

# The number of rows of a large result in memory at a time.
_BATCH_ROWS = 10_000

# The epoch second of a time that a view returns as text or timestamptz.
_SECOND = {"sqlite": "unixepoch({})", "postgresql": "extract(epoch FROM {})::bigint"}
# The positions in ALL_NAMES of the names of each level.
_POSITIONS = {
    level: [ALL_NAMES.index(n) for n in NAMES[level]] for level in NAMES if level != GROUP
}

_NEWEST_PROFILES = (
    "SELECT r.report, r.profile FROM report_run AS r"
    " JOIN (SELECT report, max(day) AS day FROM report_run WHERE state = 'published'"
    " GROUP BY report) AS n ON n.report = r.report AND n.day = r.day"
    " WHERE r.state = 'published' ORDER BY r.report"
)

RUNS = {
    False: "state = 'published'",
    True: (
        "run_id IN (SELECT v.run_id FROM report_revision AS v"
        " WHERE v.report = :report AND v.revision = :revision)"
    ),
}
"""The condition for the published runs of a report, and for those of a revision."""

_ARCHIVED = (
    "SELECT run_id, day, version FROM report_archive"
    " WHERE report = :report AND report_day BETWEEN :first AND :last ORDER BY day"
)

Names = tuple[str, ...]


@dataclass(frozen=True)
class DayFigure:
    """The seconds of a site, function, service or endpoint on a day.

    `until` is the end of the data (epoch s) if the day was open.
    """

    day: date
    names: Names
    seconds: Seconds
    until: int | None = None


@dataclass(frozen=True)
class Trend:
    """The status changes of a site or anything below it, without those at midnight (epoch s)."""

    names: Names
    changes: int
    first_change: int | None
    last_change: int | None
    days: int
    seconds: Seconds


@dataclass(frozen=True)
class Segment:
    """A time [start, end) in epoch seconds in which something had one status."""

    day: date
    level: str
    names: Names
    start: int
    end: int
    status: str


@dataclass(frozen=True)
class PublishedRun:
    """The published run of a day.

    `revision` is the newest one of its month that has it, if that is sealed. The run read results
    up to `newest_result` (a result_id). `downtimes` and `exclusions` are all those
    that overlapped the day, even if they changed nothing. `archived` are the versions of days that
    it read from the archive.
    """

    run_id: int
    day: date
    finished_at: str
    until: int | None
    results_read: int
    results_ignored: Mapping[str, int]
    instances: int
    input_digest: str
    software_version: str
    who: str
    profile: Profile
    newest_result: int
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]
    revision: int | None = None
    archived: Mapping[date, int] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return day_start(self.day)

    @property
    def end(self) -> int:
        """The end of the day (epoch s), or of the data if the day was open."""
        return self.start + DAY_S if self.until is None else self.until

    @property
    def reads_from(self) -> int:
        """The epoch second from which results count, those before the day included."""
        return self.start - self.profile.look_back * DAY_S

    def counts(self, downtime: Downtime) -> bool:
        """Whether a downtime changes statuses: the profile chooses the kinds that do (rule 8)."""
        return bool(downtime.counted(self.profile))


@dataclass(frozen=True)
class Candidate:
    """An unpublished run of a sealed day; it would change `figures` of the published figures."""

    report: str
    day: date
    figures: int
    reasons: Sequence[str]


def published_reports(connection: Connection, name: str | None, period: Period) -> list[str]:
    """The reports with figures for some day of the period: all of them, or only `name`.

    Raises:
        ReportUsage: no report was ever run under that name.
    """
    reports = connection.scalars(
        text(
            "SELECT DISTINCT report FROM report_run"
            " WHERE state = 'published' AND day BETWEEN :first AND :last ORDER BY report"
        ),
        period.bounds,
    ).all()
    if name is None:
        return list(reports)
    known = connection.scalars(text("SELECT DISTINCT report FROM report_run ORDER BY report")).all()
    if name not in known:
        raise ReportUsage(f"no report {name}; existing reports: {', '.join(known) or 'none'}")
    return [report for report in reports if report == name]


def published_profiles(connection: Connection) -> list[Profile]:
    """The profile of the newest published day of each report."""
    return [recorded_profile(row[1]) for row in connection.execute(text(_NEWEST_PROFILES))]


def require_site(connection: Connection, reports: Sequence[str], site: str, period: Period) -> None:
    """Check that one of the reports has figures of the site in the period, if they have any.

    Raises:
        ReportUsage: none has; the message says when there are any, or suggests other sites.
    """
    in_period = "SELECT 1 FROM site_availability WHERE report = :report AND site = :site"
    in_period += " AND day BETWEEN :first AND :last LIMIT 1"
    bound = {"site": site, **period.bounds}
    if any(connection.scalar(text(in_period), {**bound, "report": name}) for name in reports):
        return
    ever = "SELECT report, site, min(day), max(day) FROM site_availability GROUP BY report, site"
    known = {row[1]: row[2:] for row in connection.execute(text(ever)) if row[0] in reports}
    if site in known:
        first, last = known[site]
        raise ReportUsage(f"no figures of {site} in {period}; it has some from {first} to {last}")
    if reports:
        raise ReportUsage(f"no site {site} in {period}: {did_you_mean_or_list(site, known)}")


def published_runs(
    connection: Connection, report: str, period: Period, revision: int | None = None
) -> list[PublishedRun]:
    """The published runs, or those of a revision, one for each day that has one, in order."""
    statement = (
        "SELECT run_id, day, finished_at, until, results_read, results_ignored, instances,"
        " input_digest, software_version, who, profile, newest_result, downtimes, exclusions,"
        " (SELECT max(v.revision) FROM report_revision AS v"
        " WHERE v.report = r.report AND v.run_id = r.run_id AND v.sealed) AS revision"
        f" FROM report_run AS r WHERE report = :report AND {RUNS[revision is not None]}"
        " AND day BETWEEN :first AND :last ORDER BY day"
    )
    archived: dict[int, dict[date, int]] = {}
    for run_id, day, version in _rows(connection, _ARCHIVED, report, period):
        archived.setdefault(run_id, {})[as_day(day)] = version
    return [
        PublishedRun(
            run_id=row.run_id,
            day=as_day(row.day),
            finished_at="" if row.finished_at is None else format_time(as_moment(row.finished_at)),
            until=second_or_none(row.until),
            results_read=row.results_read or 0,
            results_ignored=json.loads(row.results_ignored or "{}"),
            instances=row.instances or 0,
            input_digest=row.input_digest or "",
            software_version=row.software_version or "",
            who=row.who or "",
            profile=recorded_profile(row.profile),
            newest_result=row.newest_result,
            downtimes=list(map(recorded_downtime, json.loads(row.downtimes))),
            exclusions=[Exclusion(**exclusion) for exclusion in json.loads(row.exclusions)],
            revision=row.revision,
            archived=archived.get(row.run_id, {}),
        )
        for row in _rows(connection, statement, report, period, revision=revision)
    ]


def until_of(days: Iterable[PublishedRun | DayFigure]) -> int | None:
    """The end of the data (epoch s), if a day was open."""
    return max((day.until for day in days if day.until is not None), default=None)


def days_not_computed(runs: Iterable[PublishedRun], period: Period) -> str:
    """The days of the period without a published run, as text; empty if all have one."""
    published = {run.day for run in runs}
    return in_ranges(day for day in period.days() if day not in published)


def candidates(connection: Connection, report: str | None, period: Period) -> list[Candidate]:
    """The candidates in the period, of all reports or of one; sealing again publishes them."""
    statement = (
        "SELECT c.report, c.day, h.reason, count(*)"
        " FROM report_candidate AS c JOIN report_change AS h ON h.run_id = c.run_id"
        " WHERE c.report = coalesce(:report, c.report) AND c.day BETWEEN :first AND :last"
        " GROUP BY c.report, c.day, h.reason ORDER BY c.report, c.day, h.reason"
    )
    rows = _rows(connection, statement, report, period)
    candidates = []
    for (name, day), by_reason in groupby(rows, key=itemgetter(0, 1)):
        reasons, counts = zip(*((row[2].split(", "), row[3]) for row in by_reason), strict=True)
        different = list(dict.fromkeys(chain.from_iterable(reasons)))
        candidates.append(Candidate(name, as_day(day), sum(counts), different))
    return candidates


def day_figures(
    connection: Connection,
    report: str,
    level: str,
    period: Period,
    site: str | None = None,
    revision: int | None = None,
) -> Iterator[DayFigure]:
    """The stored figures of a level, of all sites or of one, by day and names.

    They are the published ones, or those of a revision, whose days are all over.
    """
    names = NAMES[level]
    source, until, condition = f"{level}_availability", "until", ""
    if revision is not None:
        source, until = "report_revision_figure", "NULL"
        condition = " AND level = :level AND revision = :revision"
    statement = (
        f"SELECT day, {until}, {', '.join((*names, *SECONDS))} FROM {source}"
        f" WHERE report = :report AND day BETWEEN :first AND :last{condition}{_of_site(site)}"
        f" ORDER BY day, {', '.join(names)}"
    )
    end = 2 + len(names)
    bound = {"site": site, "level": level, "revision": revision}
    for row in _rows(connection, statement, report, period, **bound):
        seconds = Seconds(*row[end:])
        yield DayFigure(as_day(row[0]), tuple(row[2:end]), seconds, second_or_none(row[1]))


def totals(
    connection: Connection, report: str, level: str, period: Period, site: str | None = None
) -> Iterator[Figure]:
    """The figures of a level over the period, of all sites or of one.

    They are ordered by names as the database sorts them.
    """
    names = NAMES[level]
    sums = ", ".join(f"sum({name})" for name in SECONDS)
    if level == METRIC:  # metrics have no stored figures
        source, until, condition = "status_trend", "NULL", " AND level = 'metric'"
    else:
        source, until, condition = f"{level}_availability", "max(until)", ""
    statement = (
        f"SELECT count(*), {until}, {sums}, {', '.join(names)} FROM {source}"
        f" WHERE report = :report AND day BETWEEN :first AND :last{condition}"
        f"{_of_site(site)}"
        f" GROUP BY {', '.join(names)} ORDER BY {', '.join(names)}"
    )
    return map(_figure, _rows(connection, statement, report, period, site=site))


def trends(
    connection: Connection, report: str, level: str, period: Period, site: str | None = None
) -> tuple[list[Trend], int]:
    """The trends of a level with any changes, most changes first, and the number of all trends."""
    sums = ", ".join(f"sum({name})" for name in ("changes", *SECONDS))
    names = ", ".join(NAMES[level])
    statement = (
        f"SELECT count(*), min(first_change), max(last_change), {sums}, {names}"
        " FROM status_trend WHERE report = :report AND day BETWEEN :first AND :last"
        f" AND level = :level{_of_site(site)} GROUP BY {names} ORDER BY {names}"
    )
    end = 4 + len(SECONDS)
    all_trends = [
        Trend(
            names=tuple(row[end:]),
            changes=int(row[3]),
            first_change=second_or_none(row[1]),
            last_change=second_or_none(row[2]),
            days=row[0],
            seconds=Seconds(*map(int, row[4:end])),
        )
        for row in _rows(connection, statement, report, period, level=level, site=site)
    ]
    changing = [trend for trend in all_trends if trend.changes]
    return sorted(changing, key=lambda trend: (-trend.changes, trend.names)), len(all_trends)


def group_site_totals(
    connection: Connection,
    report: str,
    period: Period,
    top: tuple[str, str],
    site: str | None = None,
) -> Iterator[Figure]:
    """The figures of the sites of each group, or of one site there, over their days as members.

    The names are the type and the name of the group, then the site. On days when a site was in no
    group, it counts as a member of the group `top` (type, name).
    """
    sums = ", ".join(f"sum(s.{name})" for name in SECONDS)
    statement = (
        f"SELECT count(*), max(s.until), {sums}, coalesce(g.group_type, :top_type),"
        " coalesce(g.group_name, :top_name), s.site FROM site_availability AS s"
        " LEFT JOIN report_group_site AS g"
        " ON g.report = s.report AND g.day = s.day AND g.site = s.site"
        " WHERE s.report = :report AND s.day BETWEEN :first AND :last"
        f"{'' if site is None else ' AND s.site = :site'}"
        " GROUP BY 10, 11, 12 ORDER BY 10, 11, 12"
    )
    names = {"top_type": top[0], "top_name": top[1], "site": site}
    rows = _rows(connection, statement, report, period, **names)
    return map(_figure, rows)


def day_members(
    connection: Connection, report: str, period: Period, revision: int | None = None
) -> Iterator[tuple[date, Member]]:
    """The members of all groups on each day, as published or in a revision."""
    source, condition = "report_group_site", ""
    if revision is not None:
        source, condition = "report_revision_group_site", " AND revision = :revision"
    statement = (
        f"SELECT day, group_type, group_name, site, weight FROM {source}"
        f" WHERE report = :report AND day BETWEEN :first AND :last{condition} ORDER BY day"
    )
    rows = _rows(connection, statement, report, period, revision=revision)
    return ((as_day(row[0]), Member(row[1], row[2], row[3], row[4])) for row in rows)


def members_of_group(
    connection: Connection, report: str, period: Period, group: tuple[str, str]
) -> Iterator[MemberDay]:
    """The members of one group on each day, with their seconds, in order."""
    statement = (
        f"SELECT day, site, weight, {', '.join(SECONDS)} FROM report_group_site"
        " WHERE report = :report AND day BETWEEN :first AND :last"
        " AND group_type = :type AND group_name = :name ORDER BY day, site"
    )
    rows = _rows(connection, statement, report, period, type=group[0], name=group[1])
    for day, site, weight, *seconds in rows:
        yield MemberDay(as_day(day), Member(*group, site, weight), Seconds(*seconds))


def groups_with_members(
    connection: Connection, report: str, period: Period
) -> list[tuple[str, str]]:
    """The groups (type, name) that have members on any day."""
    statement = (
        "SELECT DISTINCT group_type, group_name FROM report_group_site"
        " WHERE report = :report AND day BETWEEN :first AND :last"
    )
    return sorted(tuple(row) for row in _rows(connection, statement, report, period))


def timeline(
    connection: Connection,
    report: str,
    period: Period,
    *,
    site: str | None = None,
    level: str | None = None,
    ok_metrics: bool = True,
) -> Iterator[Segment]:
    """The segments of the report, or of one site or level, ordered by day, level and names.

    Without `ok_metrics`, segments of metrics that were OK are left out.
    """
    conditions = []
    if site is not None:
        # The list of all levels looks redundant, but lets the database find the site by its index.
        levels = ", ".join(f"'{name}'" for name in NAMES if name != GROUP)
        conditions += ["site = :site", f"level IN ({levels})"]
    if level is not None:
        conditions.append("level = :level")
    if not ok_metrics:
        conditions.append(f"(level <> '{METRIC}' OR status <> 'OK')")
    second = _SECOND[connection.dialect.name]
    statement = (
        f"SELECT day, level, {', '.join(ALL_NAMES)}, {second.format('start_time')},"
        f" {second.format('end_time')}, status FROM status_timeline"
        " WHERE report = :report AND day BETWEEN :first AND :last"
        f"{''.join(f' AND {condition}' for condition in conditions)}"
        f" ORDER BY day, level, {', '.join(ALL_NAMES)}, start_time"
    )
    for row in _rows(connection, statement, report, period, site=site, level=level):
        day, segment_level, *all_names, start, end, status = row
        names = tuple(all_names[position] for position in _POSITIONS[segment_level])
        yield Segment(as_day(day), segment_level, names, start, end, status)


def as_moment(value: str | datetime) -> datetime:
    """A time read from a view; SQLite returns text."""
    return parse_time(value) if isinstance(value, str) else value


def _rows(
    connection: Connection, statement: str, report: str | None, period: Period, **parameters: object
) -> Iterable[Any]:
    """The rows of a statement about a report and a period, fetched in batches."""
    bound = {"report": report, **period.bounds, **parameters}
    return connection.execute(text(statement), bound, execution_options={"yield_per": _BATCH_ROWS})


def _of_site(site: str | None) -> str:
    """The condition that selects one site."""
    return "" if site is None else " AND site = :site"


def _figure(row: Any) -> Figure:
    """The figure of a row (number of days, until, seconds per status, names)."""
    end = 2 + len(SECONDS)
    seconds = Seconds(*map(int, row[2:end]))
    return figure_of(tuple(row[end:]), seconds, row[0], second_or_none(row[1]))


def second_of(value: str | datetime) -> int:
    """The epoch second of a time read from a view."""
    return int(as_moment(value).timestamp())


def second_or_none(value: str | datetime | None) -> int | None:
    """`second_of`, if there is a time."""
    return None if value is None else second_of(value)
