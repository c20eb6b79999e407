"""The statuses of a report at one moment, folded from the newest results (rules 3 to 10).

`spark_jobs.compute` folds the timelines of whole days. Here only their last moment is wanted, so a
fold is a look-up: the states of the children are a set, and an operation has its answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from sam_pipeline.spark_jobs.errors import MixedVOs
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation, Endpoint, EndpointsByName
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, FUNCTION, GROUP, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.statuses import (
    DOWNTIME,
    EXCLUDED,
    MISSING,
    OK,
    STATUSES,
    UNKNOWN,
)
from sam_pipeline.spark_jobs.runs.now.newest import Instance, Newest

# The worst first. An announced downtime is not a failure.
SEVERITY = ("CRITICAL", "MISSING", "UNKNOWN", "WARNING", "DOWNTIME", "EXCLUDED", "OK")

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
                if (e.kind == GROUP and e.site == site)
                or (e.kind == METRIC and any(e.covers(*endpoint) for endpoint in here))
            ],
        )
        sites.append(folded)
    if fold.mixed:
        raise MixedVOs(fold.mixed)
    return sites


def worst_first(sites: Sequence[SiteFolded]) -> list[SiteFolded]:
    """Sorted by status, then by name."""
    return sorted(sites, key=lambda site: (SEVERITY.index(site.thing.status), site.site))


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
