"""Reads the input views: topology, groups, downtimes, exclusions and the number of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_start, moment
from sam_pipeline.spark_jobs.rules.levels import METRIC, SITE

MONITORING_HOST = "monitoring-host"
EXCLUSION_KINDS = (MONITORING_HOST, METRIC, SITE)
EXCLUSION_COLUMNS = (
    "exclusion_id, kind, monitoring_host, metric_name, site, service_flavour, host_name, start_s,"
    " end_s, reason, who"
)

# Conditions on time that the index supports: a timestamp in PostgreSQL, seconds in SQLite.
WINDOW = {
    "sqlite": "measured_at_s >= :start AND measured_at_s < :end",
    "postgresql": "measured_at >= to_timestamp(:start) AND measured_at < to_timestamp(:end)",
}
_DOWNTIMES = (
    "SELECT coalesce(downtime_id, ''), site, host_name, service_flavour, start_s, end_s,"
    " classification, severity, coalesce(description, ''), announced_s{} FROM report_downtime"
    # The times of the whole downtime, which the database finds first.
    " WHERE whole_start_s < :end AND whole_end_s > :start AND start_s < :end AND end_s > :start"
)
# The time column of `report_result` that the index supports.
TIME = {"sqlite": "measured_at_s", "postgresql": "measured_at"}
# A JSON list as a table of its values, so that one parameter binds any number of names.
VALUES = {
    "sqlite": "value FROM json_each(:names)",
    "postgresql": "value FROM json_array_elements_text(:names) AS value",
}


@dataclass(frozen=True)
class Membership:
    """An announced endpoint of a site; its flags are as they were sent, and None means yes.

    `grid_site` is the site that others know it by, where a VO names sites of its own.
    """

    site: str
    service_flavour: str
    host_name: str
    vo: str
    production: str | None
    monitored: str | None
    valid_from: int
    valid_to: int | None
    grid_site: str | None = None

    def is_valid(self, at: int) -> bool:
        return self.valid_from <= at and (self.valid_to is None or self.valid_to > at)


class Announcement:
    """A downtime or an exclusion in [start, end); an empty name stands for any.

    `by_grid_site` are the endpoints (site, flavour, host) whose grid site it names.
    """

    site: str
    service_flavour: str
    host_name: str
    start: int
    end: int
    by_grid_site: Sequence[tuple[str, str, str]] = ()

    def covers(self, site: str, service_flavour: str, host_name: str) -> bool:
        """Whether it applies to this endpoint (availability rules 7 and 8)."""
        return (
            (self.site in ("", site) or (site, service_flavour, host_name) in self.by_grid_site)
            and self.service_flavour in ("", service_flavour)
            and self.host_name in ("", host_name)
        )

    def touches(self, start: int, end: int) -> bool:
        """Whether it overlaps [start, end)."""
        return self.start < end and self.end > start


@dataclass(frozen=True)
class Downtime(Announcement):
    """An announced downtime of an endpoint, a host or a site, or a part of one.

    `announced` is when it was announced; None in runs that did not record it.
    """

    downtime_id: str
    site: str
    host_name: str
    service_flavour: str
    start: int
    end: int
    classification: str
    severity: str
    description: str
    announced: int | None = None
    # It is the same downtime, whichever endpoints its site has.
    by_grid_site: Sequence[tuple[str, str, str]] = field(default=(), compare=False)

    def counted(self, profile: Profile) -> list[tuple[int, int]]:
        """The parts that change statuses in a report (rule 8); the others are only drawn."""
        return profile.counted(
            self.classification, self.severity, self.start, self.end, self.announced
        )

    @property
    def is_late(self) -> bool:
        """Whether it was announced after it had begun."""
        return self.announced is not None and self.announced > self.start


@dataclass(frozen=True)
class Exclusion(Announcement):
    """A time that does not count (availability rule 7).

    `kind` is one of EXCLUSION_KINDS. Results that a monitoring host measured in [start, end] do not
    exist. A metric is EXCLUDED, and a group (a site) UNKNOWN, in [start, end).
    """

    exclusion_id: int
    kind: str
    monitoring_host: str
    metric_name: str
    site: str
    service_flavour: str
    host_name: str
    start: int
    end: int
    reason: str
    who: str

    def unsigned(self) -> Exclusion:
        """The exclusion without the person behind it, for the public."""
        return replace(self, who="")


class GroupMember(NamedTuple):
    """A site that is announced as a member of a group, with its weight, if it has one."""

    group_type: str
    group_name: str
    site: str
    weight: int | None


@dataclass(frozen=True)
class Announced:
    """Everything about a day except results; rows that do not touch the day may be among them.

    `members` are the members of groups.
    """

    memberships: Sequence[Membership]
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]
    members: Sequence[GroupMember]


def announcement_json(announcement: Downtime | Exclusion) -> dict[str, Any]:
    """A downtime or an exclusion as JSON, with times instead of epoch seconds."""
    document = dict(vars(announcement))
    document.pop("by_grid_site", None)
    start, end = document.pop("start"), document.pop("end")
    times: dict[str, Any] = {"start_time": moment(start), "end_time": moment(end)}
    if isinstance(announcement, Downtime):
        announced = document.pop("announced")
        times["announced_at"] = None if announced is None else moment(announced)
        times["is_late"] = announcement.is_late
    return {**document, **times}


def read_announced(connection: Connection, period: Period, look_back: int) -> dict[date, Announced]:
    """Read topology, downtimes, exclusions and groups of each day of the period."""
    of_period = (
        memberships(connection, period),
        downtimes(connection, period),
        exclusions(connection, period.with_days_before(look_back)),
    )
    return {day: Announced(*of_period, members(connection, day)) for day in period.days()}


def count_results(connection: Connection, period: Period, at_most: int) -> int:
    """The number of results in the period, counted up to `at_most`."""
    window = WINDOW[connection.dialect.name]
    statement = f"SELECT 1 FROM report_result WHERE {window} LIMIT :at_most"
    count = connection.scalar(
        text(f"SELECT count(*) FROM ({statement}) AS counted"),
        {"at_most": at_most, "start": period.start, "end": period.end},
    )
    return count or 0


def memberships(
    connection: Connection, period: Period, site: str | None = None
) -> list[Membership]:
    """The topology of the period, for all sites or for one."""
    only = "" if site is None else " AND site = :site"
    rows = connection.execute(
        text(
            "SELECT site, service_flavour, host_name, vo, production, monitored, valid_from_s,"
            " valid_to_s, grid_site FROM report_topology"
            f" WHERE valid_from_s < :end AND (valid_to_s IS NULL OR valid_to_s > :start){only}"
        ),
        {"start": period.start, "end": period.end, "site": site},
    )
    return [Membership(*row) for row in rows]


def of_excluded_hosts(exclusions: Iterable[Exclusion]) -> tuple[str, dict[str, str]]:
    """The condition for results of excluded monitoring hosts (rule 7), and its parameters.

    It is empty if no monitoring host is excluded.
    """
    hosts = [exclusion for exclusion in exclusions if exclusion.kind == MONITORING_HOST]
    condition = " OR ".join(
        f"monitoring_host = :host_{n} AND measured_at_s BETWEEN {host.start} AND {host.end}"
        for n, host in enumerate(hosts)
    )
    return condition, {f"host_{n}": host.monitoring_host for n, host in enumerate(hosts)}


def validity_of_site(connection: Connection, site: str) -> tuple[int, int | None] | None:
    """When the site's first endpoint entered the topology, and when its last one left it, if so.

    None if the site was never in the topology.
    """
    first, last, open_ends = connection.execute(
        text(
            "SELECT min(valid_from_s), max(valid_to_s), count(*) - count(valid_to_s)"
            " FROM report_topology WHERE site = :site"
        ),
        {"site": site},
    ).one()
    return None if first is None else (first, None if open_ends else last)


def members(connection: Connection, day: date) -> list[GroupMember]:
    """The sites of every group on a day, sorted; of several rows for a site the newest counts."""
    rows = connection.execute(
        text(
            "SELECT group_type, group_name, site, weight FROM report_site_group"
            " WHERE valid_from_s <= :at AND (valid_to_s IS NULL OR valid_to_s > :at)"
            " ORDER BY valid_from_s"
        ),
        {"at": day_start(day)},
    )
    return newest_members(GroupMember(*row) for row in rows)


def newest_members(members: Iterable[GroupMember]) -> list[GroupMember]:
    """The members, sorted; of several of one site in a group the last one."""
    newest = {member[:3]: member for member in members}
    return [member for _, member in sorted(newest.items())]


def downtimes(connection: Connection, period: Period) -> list[Downtime]:
    """All announced downtimes that overlap the period, even those that do not count."""
    rows = connection.execute(
        text(_DOWNTIMES.format("")), {"start": period.start, "end": period.end}
    )
    return in_order(Downtime(*row) for row in rows)


def recorded_downtime(row: Mapping[str, Any]) -> Downtime:
    """The downtime that a run recorded."""
    return Downtime(**{**row, "by_grid_site": tuple(map(tuple, row.get("by_grid_site", ())))})


def in_order(downtimes: Iterable[Downtime]) -> list[Downtime]:
    """Downtimes by start and end, in an order that depends on nothing else than they do."""
    return sorted(
        downtimes, key=lambda downtime: (downtime.start, downtime.end, repr(astuple(downtime)))
    )


def announcers(connection: Connection, period: Period) -> dict[Downtime, str]:
    """The publishers of the downtimes of a period, as far as these are still announced."""
    rows = connection.execute(
        text(_DOWNTIMES.format(", publisher")), {"start": period.start, "end": period.end}
    )
    return {Downtime(*row[:-1]): row[-1] or "" for row in rows}


def exclusions(connection: Connection, period: Period) -> list[Exclusion]:
    """The exclusions that overlap the period."""
    rows = connection.execute(
        text(
            f"SELECT {EXCLUSION_COLUMNS} FROM report_exclusion"
            " WHERE start_s < :end AND end_s >= :start ORDER BY exclusion_id"
        ),
        {"start": period.start, "end": period.end},
    )
    return [Exclusion(*row) for row in rows]


def site_contacts(connection: Connection) -> dict[str, str]:
    """The contacts of all sites that have one."""
    rows = connection.execute(text("SELECT site, contact FROM report_site_contact"))
    return {row.site: row.contact for row in rows}
