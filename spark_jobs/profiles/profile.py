"""A profile: metrics, operations, validity and targets of one report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from fractions import Fraction

from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.figures import Targets, weight_used
from sam_pipeline.spark_jobs.rules.statuses import Operation

OFF = "off"
ARGO = "argo"
SCHEDULED, UNSCHEDULED = "SCHEDULED", "UNSCHEDULED"

Group = tuple[str, str]
"""A group of sites: its type and its name."""


@dataclass(frozen=True)
class Flavour:
    """A service flavour: the metrics of its endpoints, and how the endpoints of a site fold."""

    name: str
    metrics: tuple[str, ...]
    endpoints_operation: str


@dataclass(frozen=True)
class Function:
    """A function of a site, served by one or several flavours (computing, storage …)."""

    name: str
    flavours: tuple[str, ...]
    flavours_operation: str


@dataclass(frozen=True)
class Range:
    """A range of the monitoring plugins: it alerts outside [low, high], or within if `inside`."""

    low: Fraction | None
    high: Fraction | None
    inside: bool = False


@dataclass(frozen=True)
class Threshold:
    """A rule on a value of the performance data (rule 6); an empty host or flavour means any."""

    metric_name: str
    label: str
    warning: Range | None
    critical: Range | None
    host_name: str = ""
    service_flavour: str = ""


@dataclass(frozen=True)
class Profile:
    """The profile of one report. `document` is its content as JSON, which each run records.

    `weights` are those that were announced, or ARGO's, which are higher by 1 (rule 13).
    `sites` are patterns for names of sites, and `groups` for `TYPE/NAME` of groups.
    The targets of groups and sites are those that differ from `targets`.
    """

    name: str
    validity_s: int | None
    validity_of: Mapping[str, int | None]
    vo: str | None
    fqan: str | None
    downtimes: tuple[str, ...]
    metrics_operation: str
    functions_operation: str
    flavours: tuple[Flavour, ...]
    functions: tuple[Function, ...]
    targets: Targets
    operations: tuple[Operation, ...]
    document: str
    thresholds: tuple[Threshold, ...] = ()
    targets_of_groups: Mapping[Group, Mapping[str, Fraction]] = field(default_factory=dict)
    targets_of_sites: Mapping[str, Mapping[str, Fraction]] = field(default_factory=dict)
    notice_s: int = 0
    weights: str = ""
    sites: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, whatever its comments and layout."""
        return hashlib.sha256(self.document.encode()).hexdigest()

    def expects(self, site: str, groups: Iterable[Group]) -> bool:
        """Whether a site, a member of these groups, is in the report; without patterns, each is."""
        if not self.sites and not self.groups:
            return True
        names = ("/".join(group) for group in groups)
        return any(fnmatchcase(site, pattern) for pattern in self.sites) or any(
            fnmatchcase(name, pattern) for name in names for pattern in self.groups
        )

    def operation_number(self, name: str) -> int:
        """The index of the operation in `operations`."""
        return [operation.name for operation in self.operations].index(name)

    def validity(self, metric_name: str) -> int | None:
        """The seconds for which a result is valid; None: until the next one (rule 5)."""
        return self.validity_of.get(metric_name, self.validity_s)

    @property
    def validities(self) -> set[int | None]:
        """The validity of every metric."""
        return {self.validity_s, *self.validity_of.values()}

    def look_back_of(self, metric_name: str) -> int:
        """How many days before a day a metric's results count: at least one (rules 3 and 5)."""
        return _look_back(self.validity(metric_name))

    @property
    def look_back(self) -> int:
        """How many days before a day the results of any metric count."""
        return max(map(_look_back, self.validities))

    def metrics_of(self, service_flavour: str) -> tuple[str, ...]:
        """The metrics of a flavour; none if the profile does not name it."""
        return next((f.metrics for f in self.flavours if f.name == service_flavour), ())

    def functions_of(self, service_flavour: str) -> tuple[str, ...]:
        """The functions that a flavour serves."""
        return tuple(f.name for f in self.functions if service_flavour in f.flavours)

    def weight_of(self, weight: int | None) -> int:
        """The weight with which a member of a group counts, from its announced one (rule 13)."""
        return weight_used(weight, argo=self.weights == ARGO)

    def targets_of_group(self, group: Group) -> Targets:
        """The targets of a group, compared with its mean."""
        return replace(self.targets, **self.targets_of_groups.get(group, {}))

    def targets_of_site(self, site: str, groups: Iterable[Group]) -> Targets:
        """The targets of a member of these groups.

        Each target is that of the site, else the strictest of its groups, else the profile's.
        """
        own: dict[str, Fraction] = {}
        for group in groups:
            for name, value in self.targets_of_groups.get(group, {}).items():
                stricter = min if name == "unknown" else max
                own[name] = stricter(value, own.get(name, value))
        return replace(self.targets, **{**own, **self.targets_of_sites.get(site, {})})

    def counts(self, classification: str, severity: str) -> bool:
        """Whether a downtime of this kind changes statuses, and is not only drawn (rule 8)."""
        return f"{classification}/{severity}".upper() in self.downtimes

    def counted(
        self, classification: str, severity: str, start: int, end: int, announced: int | None
    ) -> list[tuple[int, int]]:
        """The parts of a downtime that change statuses (rule 8).

        One that is announced less than `notice_s` before its start is unscheduled until then.
        """
        scheduled_from = start
        if self.notice_s and announced is not None and classification.upper() == SCHEDULED:
            scheduled_from = min(max(start, announced + self.notice_s), end)
        parts = ((UNSCHEDULED, start, scheduled_from), (classification, scheduled_from, end))
        return [
            (first, last)
            for kind, first, last in parts
            if first < last and self.counts(kind, severity)
        ]


def _look_back(validity_s: int | None) -> int:
    return max(1, -(-(validity_s or 0) // DAY_S))
