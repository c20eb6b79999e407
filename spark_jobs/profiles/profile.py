"""What a report is computed from besides the data: metrics, operations, validity, targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sam_pipeline.spark_jobs.rules.statuses import Operation

OFF = "off"


@dataclass(frozen=True)
class Flavour:
    """A service flavour: the metrics of its endpoints, and how its endpoints at a site fold."""

    name: str
    metrics: tuple[str, ...]
    endpoints_operation: str


@dataclass(frozen=True)
class Function:
    """What a site offers by one or several flavours (computing, storage …)."""

    name: str
    flavours: tuple[str, ...]
    flavours_operation: str


@dataclass(frozen=True)
class Targets:
    """The values a report wants, in percent (availability rule 15)."""

    availability: Fraction = Fraction(80)
    reliability: Fraction = Fraction(85)
    unknown: Fraction = Fraction(10)
    coverage: Fraction = Fraction(90)


@dataclass(frozen=True)
class Range:
    """A range as plugins write it: it alerts outside [low, high], or inside if `inside` is set."""

    low: Fraction | None
    high: Fraction | None
    inside: bool = False


@dataclass(frozen=True)
class Threshold:
    """A rule on a value of the performance data; empty host and flavour mean any (rule 6)."""

    metric_name: str
    label: str
    warning: Range | None
    critical: Range | None
    host_name: str = ""
    service_flavour: str = ""


@dataclass(frozen=True)
class Profile:
    """One report. `document` is the profile as a JSON text: what a run records and reads back."""

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

    @property
    def digest(self) -> str:
        """Changes when anything in the profile does; comments and layout are not in it."""
        return hashlib.sha256(self.document.encode()).hexdigest()

    def operation_number(self, name: str) -> int:
        """The place of the operation in `operations`."""
        return [operation.name for operation in self.operations].index(name)

    def validity(self, metric_name: str) -> int | None:
        """Seconds a result of this metric is believed; None: until the next one (rule 5)."""
        return self.validity_of.get(metric_name, self.validity_s)

    @property
    def validities(self) -> set[int | None]:
        """All that occur."""
        return {self.validity_s, *self.validity_of.values()}

    def metrics_of(self, service_flavour: str) -> tuple[str, ...]:
        """The metrics of a flavour; none if the profile doesn't name it."""
        found = (flavour for flavour in self.flavours if flavour.name == service_flavour)
        return next((flavour.metrics for flavour in found), ())

    def functions_of(self, service_flavour: str) -> tuple[str, ...]:
        """The functions that a flavour takes part in."""
        return tuple(
            function.name for function in self.functions if service_flavour in function.flavours
        )

    def counts(self, classification: str, severity: str) -> bool:
        """Whether such a downtime changes states; the others are only drawn (rule 8)."""
        return f"{classification}/{severity}".upper() in self.downtimes
