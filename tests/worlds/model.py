"""The parts of a world: plain values, times in UTC, intervals half-open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta


@dataclass(frozen=True)
class Endpoint:
    """A service of a site, from `valid_from` until `valid_to`; others call it `grid_site`."""

    site: str
    host: str
    flavour: str
    valid_from: datetime
    valid_to: datetime | None = None
    vo: str = ""
    production: str = ""
    monitored: str = ""
    grid_site: str = ""


@dataclass(frozen=True)
class SiteGroup:
    """A site's membership of a federation, a region or a VO."""

    site: str
    group_type: str
    group_name: str
    valid_from: datetime
    valid_to: datetime | None = None
    weight: int | None = None


@dataclass(frozen=True)
class Downtime:
    """What is said about a downtime; of several with one `downtime_id`, or start, the last counts.

    It was said at `announced_at`, and known when it arrived; None: when the world is loaded.
    """

    downtime_id: str
    start: datetime
    end: datetime
    announced_at: datetime
    site: str = ""
    host: str = ""
    flavour: str = ""
    classification: str = "SCHEDULED"
    severity: str = "OUTAGE"
    description: str = ""
    arrived_at: datetime | None = None


@dataclass(frozen=True)
class Exclusion:
    """A time that does not count (rule 7); `kind`: monitoring-host, metric or group (a site)."""

    kind: str
    start: datetime
    end: datetime
    monitoring_host: str = ""
    metric: str = ""
    site: str = ""
    flavour: str = ""
    host: str = ""


@dataclass(frozen=True)
class Result:
    """The result of one probe run."""

    host: str
    flavour: str
    metric: str
    status: str
    measured_at: datetime
    vo: str = "ops"
    fqan: str = ""
    site: str = ""
    gathered_at: str = "wn01.example.org"
    monitoring_host: str = ""
    summary: str = ""
    details: str = ""
    performance_data: str = ""


@dataclass(frozen=True)
class Flavour:
    """The metrics of an endpoint of this flavour, and the operation that folds its endpoints."""

    metrics: tuple[str, ...]
    endpoints_operation: str = "OR"


@dataclass(frozen=True)
class Function:
    """Flavours of a site that stand in for each other."""

    flavours: tuple[str, ...]
    flavours_operation: str = "OR"


@dataclass(frozen=True)
class Threshold:
    """A rule on a value of the performance data; ranges as plugins write them ('' for none)."""

    metric: str
    label: str
    warning: str = ""
    critical: str = ""
    host: str = ""
    flavour: str = ""


@dataclass(frozen=True)
class Profile:
    """What makes a site available; `profile_file.to_toml` writes it as a profile file.

    `operations` are the profile's own tables: triples (a, b, result). A validity of None is "off".
    """

    name: str
    flavours: Mapping[str, Flavour]
    functions: Mapping[str, Function] = field(default_factory=dict)
    metrics_operation: str = "AND"
    functions_operation: str = "AND"
    vo: str | None = None
    fqan: str | None = None
    validity_s: int | None = None
    validity_of: Mapping[str, int | None] = field(default_factory=dict)
    operations: Mapping[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    thresholds: tuple[Threshold, ...] = ()
    downtimes: tuple[str, ...] = ("SCHEDULED/OUTAGE",)
    notice_s: int = 0
    sites: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    weights: str = ""


@dataclass(frozen=True)
class World:
    """Topology, downtimes, exclusions and results of some days; `results` in sending order."""

    first_day: date
    days: int
    endpoints: tuple[Endpoint, ...]
    site_groups: tuple[SiteGroup, ...]
    downtimes: tuple[Downtime, ...]
    results: tuple[Result, ...]
    exclusions: tuple[Exclusion, ...] = ()

    @property
    def all_days(self) -> tuple[date, ...]:
        return tuple(self.first_day + timedelta(days=number) for number in range(self.days))

    @property
    def last_day(self) -> date:
        return self.all_days[-1]


def midnight(day: date) -> datetime:
    """The midnight at which a UTC day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
