"""The statuses of a report at one moment, folded from the newest results (rules 2 to 10).

`spark_jobs.compute` folds the timelines of whole days. Here only their last moment is wanted, so a
fold is a look-up: the states of the children are a set, and an operation has its answer.

The newest result that counts is nearly always the newest status which the database keeps for each
instance. Where it may differ, the results themselves are read: if a threshold may judge them, if
the profile names an FQAN, if the newest result is from the future, or may come from an excluded
monitoring host.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, bindparam, text

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.spark_jobs.errors import MixedVOs, ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    TIME,
    VALUES,
    WINDOW,
    Announced,
    Downtime,
    Exclusion,
    Membership,
    downtimes,
    exclusions,
    members,
    memberships,
    of_excluded_hosts,
)
from sam_pipeline.spark_jobs.inputs.expected import (
    DayExpectation,
    Endpoint,
    EndpointsByName,
    expect,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, as_day, day_start, moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.statuses import (
    DOWNTIME,
    EXCLUDED,
    MISSING,
    OK,
    STATUSES,
    UNKNOWN,
)
from sam_pipeline.spark_jobs.runs.published import published_runs

_NAMES = "service_flavour, host_name, metric_name, vo"

Instance = tuple[str, str, str]
"""flavour, host, metric"""
InstanceOfVO = tuple[str, str, str, str]

# The worst first. An announced downtime is not a failure.
SEVERITY = ("CRITICAL", "MISSING", "UNKNOWN", "WARNING", "DOWNTIME", "EXCLUDED", "OK")


class Newest(NamedTuple):
    """The newest result of an instance; `since` when its status holds (epoch s), if known."""

    status: str
    measured: int
    since: int | None
    summary: str
    publisher: str


NewestByVO = Mapping[Instance, Mapping[str, Newest]]


@dataclass(frozen=True)
class ThingNow:
    """The folded status of a thing, and the things it is folded from.

    If it is `covered`, a downtime or an exclusion overrides the fold. `last` is the newest result
    of a metric, which may have expired; then `since` (epoch s) is the time of expiry.
    """

    level: str
    names: tuple[str, ...]
    code: int
    children: Sequence[ThingNow] = ()
    covered: bool = False
    last: Newest | None = None
    since: int | None = None

    @property
    def status(self) -> str:
        return STATUSES[self.code]

    @property
    def deciding(self) -> Sequence[ThingNow]:
        """The children that the status follows from.

        They have the same status. An operation of the profile's own may return a status that no
        child has: then all children that are not OK, or all.
        """
        if self.covered:
            return ()
        same = [child for child in self.children if child.code == self.code]
        return same or [child for child in self.children if child.code != OK] or self.children


@dataclass(frozen=True)
class SiteFolded:
    """A site at the time `at` (epoch s), as the report of a profile folds it.

    `in_downtime` of its `endpoints` are in a downtime that counts. `downtimes` and `exclusions` are
    all that apply to it now, including those that change nothing.
    """

    profile: Profile
    at: int
    thing: ThingNow
    endpoints: int
    in_downtime: int
    downtimes: Sequence[Downtime] = ()
    exclusions: Sequence[Exclusion] = ()

    @property
    def site(self) -> str:
        return self.thing.names[0]

    @property
    def downtime_until(self) -> int | None:
        """When the last of the downtimes that count ends, as announced."""
        ends = [downtime.end for downtime in self.downtimes if self.counts(downtime)]
        return max(ends, default=None)

    def counts(self, downtime: Downtime) -> bool:
        return bool(downtime.counted(self.profile))


def read_sites_folded(
    connection: Connection, profile: Profile, now: int, site: str | None = None
) -> list[SiteFolded]:
    """The sites of a report as it folds them now, the worst first; or only one site.

    Only the one site has the summaries of its results.

    Raises:
        ReportUsage: the site was never in the topology.
        MixedVOs: several VOs measured one instance, and the profile names none.
    """
    day = moment(now).date()
    today = Period(day, day)
    topology = read_topology(connection, today, site)
    announced = Announced(
        topology,
        downtimes(connection, today),
        exclusions(connection, today.with_days_before(profile.look_back)),
        members(connection, day),
    )
    # A run at `now` would cover only the seconds before.
    expected = expect(day, announced, profile, now + 1)
    hosts = None if site is None else sorted({row.host_name for row in topology})
    newest = read_newest(connection, profile, announced.exclusions, now, hosts)
    sites = fold_now(profile, expected, newest, now)
    return sorted(sites, key=lambda site: (SEVERITY.index(site.thing.status), site.site))


def profile_at(connection: Connection, profile: Profile, at: int) -> Profile:
    """The profile that counts at an earlier time: that of the published day, if there is one.

    Raises:
        ReportUsage: results that counted then have been pruned.
    """
    day = moment(at).date()
    runs = published_runs(connection, profile.name, Period(day, day))
    counting = runs[0].profile if runs else profile
    horizon = connection.scalar(text("SELECT min(day) FROM report_horizon"))
    if horizon is not None and day < as_day(horizon):
        problem = (
            f"results before {horizon} were pruned; `sam-report explain` has what is published"
        )
        raise ReportUsage(f"{moment(at):%Y-%m-%d}: {problem}")
    return counting


def read_topology(connection: Connection, period: Period, site: str | None) -> Sequence[Membership]:
    """The topology of all sites, or of one, which may have been closed.

    Raises:
        ReportUsage: the site was never in the topology.
    """
    topology = memberships(connection, period, site)
    if site is not None and not topology:
        known = connection.scalars(text("SELECT DISTINCT site FROM report_topology")).all()
        if site not in known:
            raise ReportUsage(f"no site {site}: {did_you_mean_or_list(site, known)}")
    return topology


def fold_now(
    profile: Profile, expected: DayExpectation, newest: NewestByVO, now: int
) -> list[SiteFolded]:
    """The sites of the report.

    Args:
        expected: of the day of `now`, with covers that hold at `now`.
    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
    """
    covered = {cover[:5] for cover in expected.covers if cover.start <= now < cover.end}
    by_name = EndpointsByName(expected.endpoints)
    downtimes: dict[str, list[Downtime]] = defaultdict(list)
    for downtime in expected.downtimes:
        if downtime.touches(now, now + 1):
            for site in {endpoint.site for endpoint in by_name.covered(downtime)}:
                downtimes[site].append(downtime)
    exclusions = [e for e in expected.exclusions if e.touches(now, now + 1)]
    fold = _Fold(profile, newest, now)
    sites = []
    for site, here in by_name.of_site.items():
        endpoints = [fold.endpoint(endpoint, covered) for endpoint in here]
        functions = fold.functions(site, endpoints)
        if not functions:  # none of its flavours serves a function (rule 9)
            continue
        excluded = (SITE, site, "", "", "") in covered
        code = UNKNOWN if excluded else fold.of(profile.functions_operation, functions)
        folded = SiteFolded(
            profile,
            now,
            ThingNow(SITE, (site,), code, functions, excluded),
            len(here),
            sum(endpoint.covered for endpoint in endpoints),
            downtimes[site],
            [
                e
                for e in exclusions
                if (e.kind == SITE and e.site == site)
                or (e.kind == METRIC and any(e.covers(*endpoint) for endpoint in here))
            ],
        )
        sites.append(folded)
    if fold.mixed:
        raise MixedVOs(fold.mixed)
    return sites


class _Fold:
    """Folds the things of a site, from its metrics upwards."""

    def __init__(self, profile: Profile, newest: NewestByVO, now: int) -> None:
        self.mixed: dict[str, list[str]] = {}
        self._profile = profile
        self._answers = {operation.name: operation.answers for operation in profile.operations}
        self._metrics_of = {flavour.name: flavour.metrics for flavour in profile.flavours}
        self._newest = newest
        self._now = now
        self._today = day_start(moment(now).date())

    def of(self, operation: str, children: Sequence[ThingNow]) -> int:
        """The folded status of the children."""
        states = 0
        for child in children:
            if child.code != EXCLUDED:
                states |= 1 << child.code
        return self._answers[operation][states]

    def functions(self, site: str, endpoints: Sequence[ThingNow]) -> list[ThingNow]:
        profile, services = self._profile, []
        for flavour in profile.flavours:
            here = [endpoint for endpoint in endpoints if endpoint.names[1] == flavour.name]
            if here:
                code = self.of(flavour.endpoints_operation, here)
                services.append(ThingNow(SERVICE, (site, flavour.name), code, here))
        functions = []
        for function in profile.functions:
            here = [service for service in services if service.names[1] in function.flavours]
            if here:
                code = self.of(function.flavours_operation, here)
                functions.append(ThingNow(FUNCTION, (site, function.name), code, here))
        return functions

    def endpoint(self, endpoint: Endpoint, covered: Collection[tuple[str, ...]]) -> ThingNow:
        metrics = [
            ThingNow(METRIC, (*endpoint, metric), EXCLUDED, covered=True)
            if (METRIC, *endpoint, metric) in covered
            else self._metric(endpoint, metric)
            for metric in self._metrics_of[endpoint.service_flavour]
        ]
        if (ENDPOINT, *endpoint, "") in covered:
            return ThingNow(ENDPOINT, endpoint, DOWNTIME, metrics, covered=True)
        return ThingNow(
            ENDPOINT, endpoint, self.of(self._profile.metrics_operation, metrics), metrics
        )

    def _metric(self, endpoint: Endpoint, metric: str) -> ThingNow:
        names = (*endpoint, metric)
        by_vo = self._newest.get((endpoint.service_flavour, endpoint.host_name, metric), {})
        oldest = self._today - self._profile.look_back_of(metric) * DAY_S
        counting = [vo for vo, last in by_vo.items() if last.measured >= oldest]
        if len(counting) > 1:
            instance = f"{endpoint.host_name} {endpoint.service_flavour} {metric}"
            self.mixed[instance] = counting
        if not by_vo:
            return ThingNow(METRIC, names, MISSING)
        last = max(by_vo.values(), key=attrgetter("measured"))
        validity_s = self._profile.validity(metric)
        if validity_s is None:  # a report looks back to the start of the day before (rule 3)
            expiry = day_start(moment(last.measured).date()) + 2 * DAY_S
        else:
            expiry = last.measured + validity_s
        if expiry <= self._now:
            return ThingNow(METRIC, names, MISSING, last=last, since=expiry)
        return ThingNow(METRIC, names, STATUSES.index(last.status), last=last, since=last.since)


def read_newest(
    connection: Connection,
    profile: Profile,
    exclusions: Iterable[Exclusion],
    now: int,
    hosts: Sequence[str] | None = None,
) -> dict[Instance, dict[str, Newest]]:
    """The newest results by instance and VO, those included that are too old to count.

    Only results of `hosts`, if given, have their summaries and publishers.
    """
    metrics = sorted({metric for flavour in profile.flavours for metric in flavour.metrics})
    conditions = ["metric_name IN :metrics"]
    if profile.vo is not None:
        conditions.append("vo = :vo")
    if hosts is not None:
        conditions.append("host_name IN :hosts")
    where = " AND ".join(conditions)
    parameters = {"metrics": metrics, "vo": profile.vo, "hosts": hosts or []}
    newest: dict[InstanceOfVO, Newest] = {}
    if profile.fqan is None:
        texts = "'', ''" if hosts is None else "coalesce(summary, ''), coalesce(publisher, '')"
        statement = (
            f"SELECT {_NAMES}, status, measured_at_s, since_s, {texts} FROM report_status"
            f" WHERE {where}"
        )
        for row in _rows(connection, statement, parameters):
            newest[row[0], row[1], row[2], row[3]] = Newest(*row[4:])
    judged = {threshold.metric_name for threshold in profile.thresholds}
    hidden = [(e.start, e.end) for e in exclusions if e.kind == MONITORING_HOST]
    doubtful = {
        names
        for names, last in newest.items()
        if names[2] in judged
        or last.measured > now
        or any(start <= last.measured <= end for start, end in hidden)
    }
    if doubtful or profile.fqan is not None:
        statement = f"SELECT instance_id, fqan, {_NAMES} FROM report_instance WHERE {where}"
        names_of: dict[int, InstanceOfVO] = {
            number: (flavour, host, metric, vo)
            for number, fqan, flavour, host, metric, vo in _rows(connection, statement, parameters)
            if (fqan == profile.fqan or (flavour, host, metric, vo) in doubtful)
        }
        for names in doubtful:
            del newest[names]
        counting = _counting(connection, profile, exclusions, now, names_of)
        for number, result in counting:
            names = names_of[number]
            if names not in newest or _rank(result) > _rank(newest[names]):
                newest[names] = result
    by_instance: dict[Instance, dict[str, Newest]] = {}
    for (flavour, host, metric, vo), last in newest.items():
        by_instance.setdefault((flavour, host, metric), {})[vo] = last
    return by_instance


def _counting(
    connection: Connection,
    profile: Profile,
    exclusions: Iterable[Exclusion],
    now: int,
    instances: Mapping[int, InstanceOfVO],
) -> Iterator[tuple[int, Newest]]:
    """The results of the newest second of each instance that has one, judged by the thresholds."""
    dialect = connection.dialect.name
    excluded, of_hosts = of_excluded_hosts(exclusions)
    exists = f"{WINDOW[dialect]} AND NOT ({excluded})" if excluded else WINDOW[dialect]
    # Each instance costs one index lookup for its newest second, and one for the results there.
    statement = (
        f"WITH given AS (SELECT {VALUES[dialect]}), newest AS MATERIALIZED ("
        f" SELECT CAST(value AS integer) AS number, (SELECT {TIME[dialect]} FROM report_result"
        f" WHERE instance_id = CAST(value AS integer) AND {exists}"
        f" ORDER BY {TIME[dialect]} DESC LIMIT 1) AS second FROM given)"
        " SELECT number, status, performance_data, measured_at_s, coalesce(summary, ''),"
        " coalesce(publisher, '') FROM newest"
        f" JOIN report_result ON instance_id = number AND {TIME[dialect]} = second AND {exists}"
    )
    start = day_start(moment(now).date()) - profile.look_back * DAY_S
    window = {**of_hosts, "start": start, "end": now + 1}
    rows = _rows(connection, statement, {**window, "names": json.dumps(list(instances))})
    for number, status, performance_data, measured, *texts in rows:
        flavour, host, metric, _ = instances[number]
        verdict = verdict_of(profile.thresholds, host, flavour, metric, status, performance_data)
        yield number, Newest(verdict.status, measured, None, *texts)


def _rank(result: Newest) -> tuple[int, int]:
    """Of two results the newer one counts, and at one second the worse (rule 4)."""
    return result.measured, STATUSES.index(result.status)


def _rows(
    connection: Connection, statement: str, parameters: Mapping[str, object]
) -> Iterable[Any]:
    used = {name: value for name, value in parameters.items() if f":{name}" in statement}
    lists: list[BindParameter[Any]] = [
        bindparam(name, expanding=True) for name, value in used.items() if isinstance(value, list)
    ]
    return connection.execute(text(statement).bindparams(*lists), used)
