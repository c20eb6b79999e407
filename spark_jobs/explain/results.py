"""The results that runs read, the status that each of them counted as, and why a metric had its."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.records.plugin_output import Measured
from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    WINDOW,
    Downtime,
    Exclusion,
    count_results,
    of_excluded_hosts,
)
from sam_pipeline.spark_jobs.profiles.profile import Range, Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, moment
from sam_pipeline.spark_jobs.rules.levels import METRIC
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.spark_jobs.runs.due import horizon
from sam_pipeline.spark_jobs.runs.published import PublishedRun, Segment
from sam_pipeline.sql.archive.store import OpenArchive, no_archive

NO_RESULT = "no result"
NOT_STORED = "(its result is no longer stored)"
NOT_READ = "(one of too many to show here: `sam-report explain` shows those of its day)"

Instance = tuple[str, str, str]
"""flavour, host, metric"""

MAX_RESULTS_OF_SITE = 50_000
"""A site that was down all month has more failing results than anyone would read."""

# The query planner is slow with long lists; a site of usual size still needs only one statement.
_MAX_INSTANCES = 1000
_MAX_LAPSES = 200

_INSTANCES = (
    "SELECT instance_id, service_flavour, host_name, metric_name, vo, fqan FROM report_instance"
    " WHERE host_name IN :hosts"
)
# Without names: they are known for the instances, so the database need not look them up per result.
_RESULTS = (
    "SELECT instance_id, measured_at_s, status, coalesce(summary, ''), coalesce(message_id, ''),"
    " source_id, {performance_data}, coalesce(monitoring_host, ''), result_id"
    " FROM report_result"
    " WHERE instance_id IN :instances AND {window}{condition} AND result_id <= :newest"
    " ORDER BY measured_at_s DESC, result_id DESC{limit}"
)
# The last results before some times, whatever their statuses: all of one second (rule 4).
_LAST_RESULTS = (
    "WITH lapse (instance_id, since, before, newest) AS (VALUES {lapses}),"
    # Materialized, or PostgreSQL would look for it again with each result of the instance.
    " last_result AS MATERIALIZED (SELECT instance_id, (SELECT max({time}) FROM report_result"
    " WHERE instance_id = lapse.instance_id AND {window} AND {time} >= {since}"
    " AND {time} < {before} AND result_id <= lapse.newest{condition}) AS measured FROM lapse)"
    " SELECT r.instance_id, r.measured_at_s, r.status, coalesce(r.summary, ''),"
    " coalesce(r.message_id, ''), r.source_id, '', coalesce(r.monitoring_host, ''), r.result_id"
    " FROM last_result AS l JOIN report_result AS r"
    " ON r.instance_id = l.instance_id AND r.{time} = l.measured WHERE {window}"
)
_TIME = {
    "sqlite": {"time": "measured_at_s", "since": "lapse.since", "before": "lapse.before"},
    "postgresql": {
        "time": "measured_at",
        "since": "to_timestamp(lapse.since)",
        "before": "to_timestamp(lapse.before)",
    },
}
_PUBLISHERS = "SELECT source_id, publisher FROM report_source WHERE source_id IN :sources"
_by_time = attrgetter("measured")


@dataclass(frozen=True)
class Result:
    """A metric result as stored in the database; `publisher` is the identity that sent it."""

    host_name: str
    service_flavour: str
    metric_name: str
    measured: int
    status: str
    summary: str
    message_id: str
    publisher: str
    performance_data: str
    monitoring_host: str
    result_id: int = 0
    is_signed: bool = True

    def unsigned(self) -> Result:
        """The result without its message and the identity that sent it, for the public."""
        return replace(self, message_id="", publisher="", is_signed=False)


@dataclass(frozen=True, kw_only=True)
class JudgedResult(Result):
    """A result to which a threshold gave its `status` (availability rule 6)."""

    original_status: str
    threshold: Threshold
    value: Measured


class Ignored(NamedTuple):
    """A result that does not exist for the report: its monitoring host was excluded (rule 7)."""

    result: Result
    exclusion: Exclusion


class Lapse(NamedTuple):
    """The end of a metric's last valid result: the newest one of [since, before) explains it.

    The run knows only results up to the `newest` (a result_id).
    """

    instance: Instance
    since: int
    before: int
    newest: int


class ReadResults(dict[Instance, list[Result]]):
    """The results of instances, oldest first; there are all of them from the second `since` on.

    `archived` are the versions of days that were read from the archive, and `announcers` the
    publishers of the downtimes of these days.
    """

    since = 0
    archived: Mapping[date, int] = {}
    announcers: Mapping[Downtime, str] = {}

    def unsigned(self) -> ReadResults:
        """The same results without their messages and identities, for the public."""
        others = ReadResults(
            {instance: [r.unsigned() for r in results] for instance, results in self.items()}
        )
        others.since, others.archived = self.since, self.archived
        return others


class CountedResults:
    """Results as they count in a run: those it read, judged by the thresholds of its profile.

    Results from an excluded monitoring host are `ignored` instead.
    """

    def __init__(self, run: PublishedRun, results: ReadResults) -> None:
        self.run = run
        self._results = results
        self._judged_metrics = {rule.metric_name for rule in run.profile.thresholds}
        self._exclusions: dict[str, list[Exclusion]] = {}
        for exclusion in run.exclusions:
            if exclusion.kind == MONITORING_HOST:
                self._exclusions.setdefault(exclusion.monitoring_host, []).append(exclusion)

    @property
    def why_none(self) -> str:
        """Why a status has no result behind it although it had one."""
        return NOT_READ if self._results.since > self.run.reads_from else NOT_STORED

    def between(self, instance: Instance, start: int, end: int) -> list[Result]:
        """The results of [start, end), oldest first."""
        return [
            self._judged(result)
            for result in self._read(instance, start, end)
            if self._exclusion(result) is None
        ]

    def last_before(self, instance: Instance, end: int, status: str = "") -> Result | None:
        """The newest result before `end` that counts on this day, with `status` if given.

        If several have the same second, the worst one counted (rule 4).
        """
        last: Result | None = None
        severity = STATUSES.index
        for result in reversed(self._read(instance, first_second(self.run, instance[2]), end)):
            if last and result.measured < last.measured:
                break
            if self._exclusion(result) is None:
                judged = self._judged(result)
                is_worse = last is None or severity(judged.status) > severity(last.status)
                if is_worse and status in ("", judged.status):
                    last = judged
        return last

    def behind(self, segment: Segment) -> list[Result]:
        """The results of the segment's status: the one it began with, and those within."""
        instance = instance_of(segment)
        inside = [
            result
            for result in self.between(instance, segment.start, segment.end)
            if result.status == segment.status
        ]
        if inside and inside[0].measured == segment.start:
            return inside
        # The status continues: from a day before, or from before an exclusion.
        before = self.last_before(instance, segment.start, segment.status)
        return [before, *inside] if before else inside

    def ignored(self, instance: Instance, start: int, end: int) -> list[Ignored]:
        """The results of [start, end) from excluded monitoring hosts."""
        return [
            Ignored(result, exclusion)
            for result in self._read(instance, start, end)
            if (exclusion := self._exclusion(result))
        ]

    def _read(self, instance: Instance, start: int, end: int) -> list[Result]:
        results = self._results.get(instance, ())
        first, after = (bisect_left(results, at, key=_by_time) for at in (start, end))
        return [r for r in results[first:after] if r.result_id <= self.run.newest_result]

    def _exclusion(self, result: Result) -> Exclusion | None:
        return exclusion_of(result, self._exclusions.get(result.monitoring_host, ()))

    def _judged(self, result: Result) -> Result:
        if result.metric_name not in self._judged_metrics:
            return result
        verdict = verdict_of(
            self.run.profile.thresholds,
            result.host_name,
            result.service_flavour,
            result.metric_name,
            result.status,
            result.performance_data,
        )
        if verdict.threshold is None or verdict.value is None:
            return result
        return JudgedResult(
            **{**vars(result), "status": verdict.status},
            original_status=result.status,
            threshold=verdict.threshold,
            value=verdict.value,
        )


@dataclass(frozen=True)
class Evidence:
    """Why a metric had its status during a segment of its endpoint.

    `decides` is whether the endpoint's status follows from it. `results` are those with the status,
    oldest first, and `why_none` is why there are none. A MISSING metric has none, but may have a
    `last` earlier result, which was valid for `validity_s` seconds. `since` is the second from
    which results count. `ignored` are results that would have counted if their monitoring hosts
    were not excluded. `exclusions` are those that made the metric EXCLUDED.
    """

    metric_name: str
    start: int
    end: int
    status: str
    results: Sequence[Result]
    decides: bool = True
    last: Result | None = None
    validity_s: int | None = None
    since: int = 0
    ignored: Sequence[Ignored] = ()
    exclusions: Sequence[Exclusion] = ()
    why_none: str = ""


def evidence_of(segment: Segment, results: CountedResults) -> Evidence:
    """The evidence for the status of a metric's segment."""
    site, flavour, host, metric = segment.names
    of_segment = (metric, segment.start, segment.end, segment.status)
    if segment.status == "EXCLUDED":
        exclusions = [
            exclusion
            for exclusion in results.run.exclusions
            if exclusion.kind == METRIC
            and exclusion.metric_name == metric
            and exclusion.covers(site, flavour, host)
            and exclusion.touches(segment.start, segment.end)
        ]
        return Evidence(*of_segment, (), exclusions=exclusions)
    if segment.status != "MISSING":
        return Evidence(*of_segment, results.behind(segment), why_none=results.why_none)
    instance, validity_s = instance_of(segment), results.run.profile.validity(metric)
    last = None if validity_s is None else results.last_before(instance, segment.start)
    since = last.measured if last else first_second(results.run, metric)
    ignored = results.ignored(instance, since, segment.end)
    validity_s = validity_s if last else None
    return Evidence(*of_segment, (), last=last, validity_s=validity_s, since=since, ignored=ignored)


def threshold_text(result: JudgedResult) -> str:
    """The status that was sent, and the threshold that changed it."""
    rule, value = result.threshold, result.value
    limits = rule.critical if result.status == "CRITICAL" else rule.warning
    of = " ".join(filter(None, (rule.metric_name, rule.service_flavour, rule.host_name)))
    return (
        f"sent as {result.original_status}; {value.label}={value.number}{value.unit} triggers"
        f" the threshold {result.status.lower()} {range_text(limits)} of {of}"
    )


def range_text(limits: Range | None) -> str:
    """The range as a profile writes it."""
    if limits is None:
        return ""
    low = "~" if limits.low is None else f"{float(limits.low):.12g}"
    high = "" if limits.high is None else f"{float(limits.high):.12g}"
    start = "" if low == "0" and high else f"{low}:"
    return f"{'@' if limits.inside else ''}{start}{high}"


def instance_of(segment: Segment) -> Instance:
    """The instance of a segment of a metric, regardless of its site."""
    _, flavour, host, metric = segment.names
    return flavour, host, metric


def first_second(run: PublishedRun, metric: str) -> int:
    """The second from which results of a metric count, those before the day included."""
    return run.start - run.profile.look_back_of(metric) * DAY_S


def lapse_of(segment: Segment, run: PublishedRun) -> Lapse | None:
    """The lapse of a metric that was MISSING because its last result was no longer valid."""
    instance = instance_of(segment)
    if segment.status != "MISSING" or run.profile.validity(instance[2]) is None:
        return None
    return Lapse(instance, first_second(run, instance[2]), segment.start, run.newest_result)


def read_results(
    connection: Connection,
    runs: Sequence[PublishedRun],
    instances: Collection[Instance],
    *,
    with_ok: bool = True,
    lapses: Sequence[Lapse] = (),
    at_most: int | None = None,
    archive: OpenArchive = no_archive,
) -> ReadResults:
    """The results of the instances on the days of the runs and before them, oldest first.

    Only results whose VO and FQAN count (rule 2); with `at_most`, only the newest ones. Without
    `with_ok`, results sent as OK are left out, unless they are the last before one of the `lapses`,
    a threshold may have made them worse, or they don't exist because their monitoring host was
    excluded. Days that the database no longer has are read from the archive.
    """
    with_ok = with_ok or any(run.profile.thresholds for run in runs)
    lapses = () if with_ok else lapses
    read = ReadResults()
    results, last = _stored(connection, runs, instances, with_ok, lapses, at_most)
    if instances and (gone := _days_gone(connection, runs)):
        from sam_pipeline.spark_jobs.inputs.archive import reading  # slow to import

        versions = {day: version for run in runs for day, version in run.archived.items()}
        archived = reading.find_days(archive, gone, versions)
        read.archived = archived.versions(gone)
        read.announcers = reading.archived_announcers(archived)
        results, last = (
            [r for r in of_database if moment(r.measured).date() not in archived]
            for of_database in (results, last)
        )
        found = reading.results_of_hosts(archived, {host for _, host, _ in instances})
        of_archive, last_of_archive = _archived(found, runs, instances, with_ok, lapses)
        results += of_archive
        last += last_of_archive
    results.sort(key=_in_order, reverse=True)
    if at_most is not None and len(results) >= at_most:
        results = results[:at_most]
        read.since = results[-1].measured + 1
    for result in sorted({*results, *last} if last else results, key=_in_order):
        instance = result.service_flavour, result.host_name, result.metric_name
        read.setdefault(instance, []).append(result)
    return read


def _in_order(result: Result) -> tuple[int, int]:
    return result.measured, result.result_id


def exclusion_of(result: Result, exclusions: Iterable[Exclusion]) -> Exclusion | None:
    """The exclusion of its monitoring host, from start to end (both included), if any."""
    return next(
        (
            exclusion
            for exclusion in exclusions
            if exclusion.kind == MONITORING_HOST
            and exclusion.monitoring_host == result.monitoring_host
            and exclusion.start <= result.measured <= exclusion.end
        ),
        None,
    )


def _reads_from(runs: Iterable[PublishedRun]) -> int:
    return min(run.reads_from for run in runs)


def _days_gone(connection: Connection, runs: Sequence[PublishedRun]) -> list[date]:
    """The days that were pruned, or that runs read from the archive and the database never had."""
    first_kept = horizon(connection) or date.min
    from_archive = {day for run in runs for day in run.archived}
    return [
        day
        for day in Period(moment(_reads_from(runs)).date(), runs[-1].day).days()
        if day < first_kept
        or (day in from_archive and not count_results(connection, Period(day, day), at_most=1))
    ]


def _archived(
    all_found: Iterable[Any],
    runs: Sequence[PublishedRun],
    instances: Collection[Instance],
    with_ok: bool,
    lapses: Sequence[Lapse],
) -> tuple[list[Result], list[Result]]:
    """The results that the archive has, and the last before lapses.

    Without `with_ok` the former are only those not OK, or excluded.
    """
    profile = runs[-1].profile
    exclusions = [exclusion for run in runs for exclusion in run.exclusions]
    results, last = [], dict[Lapse, Result]()
    lapses_of: dict[Instance, list[Lapse]] = {}
    for lapse in lapses:
        lapses_of.setdefault(lapse.instance, []).append(lapse)
    for host, flavour, metric, vo, fqan, *others in all_found:
        instance = (flavour, host, metric)
        if instance in instances and profile.vo in (None, vo) and profile.fqan in (None, fqan):
            result = Result(host, flavour, metric, *others)
            if with_ok or result.status != "OK" or exclusion_of(result, exclusions):
                results.append(result)
            else:
                for lapse in lapses_of.get(instance, ()):
                    newest = last[lapse].measured if lapse in last else lapse.since
                    if newest <= result.measured < lapse.before:
                        last[lapse] = result
    return results, list(last.values())


def _stored(
    connection: Connection,
    runs: Sequence[PublishedRun],
    instances: Collection[Instance],
    with_ok: bool,
    lapses: Sequence[Lapse],
    at_most: int | None,
) -> tuple[list[Result], list[Result]]:
    """The results that the database has, and the last before lapses.

    Without `with_ok` the former are only those not OK, or excluded.
    """
    profile = runs[-1].profile
    hosts = sorted({host for _, host, _ in instances})
    statement = text(_INSTANCES).bindparams(bindparam("hosts", expanding=True))
    instance_of: dict[int, Instance] = {
        row[0]: (row[1], row[2], row[3])
        for row in (connection.execute(statement, {"hosts": hosts}) if hosts else ())
        if (row[1], row[2], row[3]) in instances
        and profile.vo in (None, row[4])
        and profile.fqan in (None, row[5])
    }
    excluded, of_hosts = of_excluded_hosts({e for run in runs for e in run.exclusions})
    is_bad = f" AND (status <> 'OK'{f' OR {excluded}' if excluded else ''})"
    has_thresholds = any(run.profile.thresholds for run in runs)
    statement = text(
        _RESULTS.format(
            window=WINDOW[connection.dialect.name],
            performance_data="coalesce(performance_data, '')" if has_thresholds else "''",
            condition="" if with_ok else is_bad,
            limit="" if at_most is None else f" LIMIT {at_most}",
        )
    ).bindparams(bindparam("instances", expanding=True))
    bounds: dict[str, Any] = {
        "start": _reads_from(runs),
        "end": runs[-1].start + DAY_S,
        "newest": max(run.newest_result for run in runs),
    }
    if not with_ok:
        bounds |= of_hosts
    rows: list[Any] = []
    for chunk in _chunks(instance_of):
        rows += connection.execute(statement, {"instances": chunk, **bounds})
    last_rows = _last_rows(connection, instance_of, lapses, excluded, of_hosts)
    # Far fewer than the results that have them.
    statement = text(_PUBLISHERS).bindparams(bindparam("sources", expanding=True))
    publishers = {
        row.source_id: row.publisher
        for chunk in _chunks({row[5] for row in (*rows, *last_rows)})
        for row in connection.execute(statement, {"sources": chunk})
    }
    results, last = (
        [
            Result(host, flavour, metric, measured, status, *texts, *more)
            for instance_id, measured, status, summary, message_id, source_id, *more in found
            for flavour, host, metric in [instance_of[instance_id]]
            for texts in [(summary, message_id, publishers.get(source_id, ""))]
        ]
        for found in (rows, last_rows)
    )
    return results, last


def _last_rows(
    connection: Connection,
    instance_of: Mapping[int, Instance],
    lapses: Iterable[Lapse],
    excluded: str,
    of_hosts: Mapping[str, str],
) -> list[Any]:
    """The rows of the last results before lapses, without those of excluded monitoring hosts."""
    ids_of: dict[Instance, list[int]] = {}
    for instance_id, instance in instance_of.items():
        ids_of.setdefault(instance, []).append(instance_id)
    with_ids = [(i, *lapse[1:]) for lapse in lapses for i in ids_of.get(lapse.instance, ())]
    rows: list[Any] = []
    for at in range(0, len(with_ids), _MAX_LAPSES):
        chunk = with_ids[at : at + _MAX_LAPSES]
        # The window of all lapses, by which PostgreSQL chooses partitions before it starts.
        bound: dict[str, Any] = {"start": min(lapse[1] for lapse in chunk), **of_hosts}
        bound["end"] = max(lapse[2] for lapse in chunk)
        values = []
        for number, lapse in enumerate(chunk):
            names = [f"{name}_{number}" for name in Lapse._fields]
            bound |= dict(zip(names, lapse, strict=True))
            values.append(f"({', '.join(f':{name}' for name in names)})")
        statement = _LAST_RESULTS.format(
            lapses=", ".join(values),
            window=WINDOW[connection.dialect.name],
            condition=f" AND coalesce(NOT ({excluded}), true)" if excluded else "",
            **_TIME[connection.dialect.name],
        )
        rows += connection.execute(text(statement), bound)
    return rows


def _chunks(numbers: Collection[int]) -> Iterator[list[int]]:
    ordered = sorted(numbers)
    return (ordered[at : at + _MAX_INSTANCES] for at in range(0, len(ordered), _MAX_INSTANCES))
