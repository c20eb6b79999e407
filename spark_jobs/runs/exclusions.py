"""Exclusions (availability rule 7): add, remove and list them, and what one affects.

The database marks the days they overlap, so the next `sam-report run --due` recomputes those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import NoExclusion, ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import (
    EXCLUSION_COLUMNS,
    MONITORING_HOST,
    WINDOW,
    Exclusion,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, as_day, day_start, moment
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import as_moment
from sam_pipeline.spark_jobs.runs.record import stored_time
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.topology.downtime import not_in_topology

_INSERT = text(
    "INSERT INTO exclusion (kind, monitoring_host, metric_name, site, service_flavour, host_name,"
    " start_time, end_time, reason, who, added_at)"
    " VALUES (:kind, :monitoring_host, :metric_name, :site, :service_flavour, :host_name,"
    " :start, :end, :reason, :who, :added_at) RETURNING exclusion_id"
)
_REMOVE = text(
    "UPDATE exclusion SET removed_at = :now, removed_by = :who, removed_because = :reason"
    " WHERE exclusion_id = :exclusion_id AND removed_at IS NULL"
)

# The query planner is slow with long lists.
_MAX_INSTANCES = 1000
_TOPOLOGY = "SELECT DISTINCT site, host_name, service_flavour FROM report_topology"
_INSTANCES = "SELECT instance_id, host_name, service_flavour, metric_name FROM report_instance"
_MARKED = "SELECT day FROM report_changed_day WHERE change_no IS NULL"
_LONGEST = "SELECT max(look_back) FROM report_run WHERE state = 'published'"


@dataclass(frozen=True)
class ExclusionEntry:
    """An exclusion with its history: when it was added, and when, by whom and why removed."""

    exclusion: Exclusion
    added_at: datetime
    removed_at: datetime | None
    removed_by: str | None
    removed_because: str | None


def add(connection: Connection, exclusion: Exclusion, now: int) -> int:
    """Add an exclusion, in force from now on, and return its id (`exclusion_id` is ignored)."""
    row = {
        **asdict(exclusion),
        "start": stored_time(connection, exclusion.start),
        "end": stored_time(connection, exclusion.end),
        "added_at": stored_time(connection, now),
    }
    exclusion_id: int = connection.execute(_INSERT, row).scalar_one()
    given = {**asdict(exclusion), "exclusion_id": exclusion_id}
    given |= {name: format_time(moment(given[name])) for name in ("start", "end")}
    arguments = {name: str(value) for name, value in given.items() if value}
    record_operation(connection, "exclusion add", arguments)
    return exclusion_id


def remove(connection: Connection, exclusion_id: int, who: str, reason: str, now: int) -> Exclusion:
    """Remove an exclusion and return it; its history stays.

    Raises:
        NoExclusion: no exclusion has that id.
        ReportUsage: it was removed before.
    """
    known = {entry.exclusion.exclusion_id: entry for entry in entries(connection)}
    if exclusion_id not in known:
        raise NoExclusion(f"no exclusion {exclusion_id}: `sam-report exclusion list` shows them")
    row = {
        "exclusion_id": exclusion_id,
        "now": stored_time(connection, now),
        "who": who,
        "reason": reason,
    }
    if connection.execute(_REMOVE, row).rowcount != 1:
        by = known[exclusion_id].removed_by
        raise ReportUsage(f"exclusion {exclusion_id} was already removed by {by}")
    arguments = {"exclusion_id": str(exclusion_id), "who": who, "reason": reason}
    record_operation(connection, "exclusion remove", arguments)
    return known[exclusion_id].exclusion


def entries(connection: Connection) -> list[ExclusionEntry]:
    """All exclusions ever added, ordered by their start."""
    rows = connection.execute(
        text(
            f"SELECT {EXCLUSION_COLUMNS}, added_at, removed_at, removed_by, removed_because"
            " FROM exclusion_history ORDER BY start_s, exclusion_id"
        )
    )
    return [
        ExclusionEntry(
            Exclusion(*row[:11]),
            as_moment(row.added_at),
            None if row.removed_at is None else as_moment(row.removed_at),
            row.removed_by,
            row.removed_because,
        )
        for row in rows
    ]


@dataclass(frozen=True)
class ExclusionEffect:
    """`results` are in its time and match its names. `unknown` is a warning about a name."""

    results: int
    unknown: str | None


def effect(
    connection: Connection, exclusion: Exclusion, profiles: Iterable[Profile]
) -> ExclusionEffect:
    """The stored results that an exclusion affects.

    Args:
        profiles: a metric that one of them names is known, even if it never had a result.
    """
    # For a monitoring host the second of the end is excluded as well (rule 7).
    end = exclusion.end + (exclusion.kind == MONITORING_HOST)
    window = {"start": exclusion.start, "end": end}
    within = WINDOW[connection.dialect.name]
    if exclusion.kind == MONITORING_HOST:
        rows = connection.execute(
            text(
                "SELECT coalesce(monitoring_host, ''), count(*) FROM report_result"
                f" WHERE {within} GROUP BY 1"
            ),
            window,
        )
        results = {str(name): int(count) for name, count in rows}
        host, unknown = exclusion.monitoring_host, None
        if host not in results:
            hint = did_you_mean(host, results)
            unknown = f"no result in that time is from monitoring host {host}{hint and f': {hint}'}"
        return ExclusionEffect(results.get(host, 0), unknown)
    topology = [
        {"siteName": site, "hostName": host, "serviceFlavour": flavour}
        for site, host, flavour in connection.execute(text(_TOPOLOGY))
    ]
    instances = connection.execute(text(_INSTANCES)).all()
    at_site = {
        (endpoint["hostName"], endpoint["serviceFlavour"])
        for endpoint in topology
        if exclusion.site in ("", endpoint["siteName"])
    }
    chosen = [
        number
        for number, host, flavour, metric in instances
        if exclusion.metric_name in ("", metric)
        and exclusion.service_flavour in ("", flavour)
        and exclusion.host_name in ("", host)
        and (host, flavour) in at_site
    ]
    statement = text(
        f"SELECT count(*) FROM report_result WHERE instance_id IN :instances AND {within}"
    ).bindparams(bindparam("instances", expanding=True))
    results_affected = sum(
        connection.scalar(
            statement, {"instances": chosen[first : first + _MAX_INSTANCES], **window}
        )
        or 0
        for first in range(0, len(chosen), _MAX_INSTANCES)
    )
    metrics = {metric for *_, metric in instances}
    metrics |= {m for profile in profiles for flavour in profile.flavours for m in flavour.metrics}
    if exclusion.kind != SITE and exclusion.metric_name not in metrics:
        hint = did_you_mean(exclusion.metric_name, metrics)
        unknown = f"no result or profile has metric {exclusion.metric_name}{hint and f': {hint}'}"
    else:
        names = {
            "siteName": exclusion.site,
            "hostName": exclusion.host_name,
            "serviceFlavour": exclusion.service_flavour,
        }
        given = {key: name for key, name in names.items() if name}
        unknown = not_in_topology(given, topology)
    return ExclusionEffect(results_affected, unknown)


def days_made_due(connection: Connection, exclusion: Exclusion) -> list[date]:
    """The days up to today that the exclusion touches and that wait for a run.

    Excluding a monitoring host also touches the days after it on which its results would count.
    """
    is_of_host = exclusion.kind == MONITORING_HOST
    end = exclusion.end + (1 + DAY_S if is_of_host else 0)
    marked = map(as_day, connection.scalars(text(_MARKED)))
    days = {
        day for day in marked if day_start(day) < end and day_start(day) + DAY_S > exclusion.start
    }
    if is_of_host:
        later = range(connection.scalar(text(_LONGEST)) or 1)
        days |= {day + timedelta(days=number) for day in days for number in later}
    return sorted(day for day in days if day <= datetime.now(UTC).date())
