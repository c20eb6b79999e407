"""Which identity said what: the publishers of stored records, and what was refused to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnClause, Connection, column, func, literal, null, select, table, text

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.schema.identity.suggestion import Said
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, built_in, column_names
from sam_pipeline.schema.times import format_time, parse_time

PUBLISHER, RECEIVED_AT = "publisher", "receivedAt"
"""The columns of class views that say who sent a record, and when it was loaded."""

SETTLED = timedelta(hours=1)
"""A host that joined the topology less than this before the first record about it is new: another
time, the record may come first."""

DAY_S = 86_400

# The policy believes no site that a result names. Each day is a period of its own.
_RESULTS = text(f"""
    SELECT
        publisher, host_name, '', coalesce(monitoring_host, ''),
        measured_at_s / {DAY_S} * {DAY_S}, measured_at_s / {DAY_S} * {DAY_S} + {DAY_S},
        count(*), min(received_at), max(received_at)
    FROM report_result
    WHERE received_at >= :since
    GROUP BY publisher, host_name, coalesce(monitoring_host, ''), measured_at_s / {DAY_S}
""")
_NAMES = text("SELECT identity, name FROM publisher WHERE name <> identity")
_HOMES = text("SELECT hostName, siteName, validFrom, validTo, receivedAt FROM serviceEndpoint")
_AUDIT = """
    SELECT e.key, sum(CAST(e.value ->> 0 AS bigint)), sum(CAST(e.value ->> 1 AS bigint))
    FROM load_audit CROSS JOIN json_each({publishers}) AS e
    WHERE loaded_at >= :since GROUP BY e.key ORDER BY e.key
"""
_AUDITS = {
    "postgresql": text(_AUDIT.format(publishers="CAST(publishers AS json)")),
    "sqlite": text(_AUDIT.format(publishers="publishers")),
}
_PERIODS = (("validFrom", "validTo"), ("startTime", "endTime"))
_NEVER, _ALWAYS = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Counts(NamedTuple):
    """The records of an identity that were accepted and refused, redelivered ones included."""

    accepted: int
    refused: int


class Home(NamedTuple):
    """A site to which a host belongs during [start, end), known since `received`."""

    site: str
    start: datetime
    end: datetime
    received: datetime


def homes_of(connection: Connection) -> defaultdict[str, list[Home]]:
    """The sites of each host, as announced."""
    homes: defaultdict[str, list[Home]] = defaultdict(list)
    for host, site, start, end, received in connection.execute(_HOMES):
        times = _moment(start, _NEVER), _moment(end, _ALWAYS), _moment(received, _NEVER)
        homes[host].append(Home(site, *times))
    return homes


def said_in_class(
    connection: Connection,
    view: str,
    columns: Iterable[str],
    since: datetime,
    homes: defaultdict[str, list[Home]],
) -> list[Said]:
    """What each identity said in a class, whose view has these columns, since some time.

    A site's own class has no times of reception, so all its records count; those of a class without
    a column for the publisher are unknown.
    """
    names, known = column_names(tuple(columns)), built_in(view)
    if not names[PUBLISHER]:
        return []
    bound = _bound(connection, since)
    if known is METRIC_OUTPUT:
        rows = connection.execute(_RESULTS, {"since": bound})
    else:
        grouped = [PUBLISHER, "hostName", "siteName", "monitoringHost"]
        start, end = next((pair for pair in _PERIODS if names[pair[0]]), ("", ""))
        keys: list[ColumnClause[Any]] = [
            column(names[key]) for key in (*grouped, start, end) if names[key]
        ]
        received = column(RECEIVED_AT.lower()) if known else null()
        selected = [
            column(names[key]) if names[key] else literal("") for key in (*grouped, start, end)
        ]
        statement = select(
            *selected, func.count(), func.min(received), func.max(received)
        ).select_from(table(view))
        if known:
            statement = statement.where(received >= bound)
        rows = connection.execute(statement.group_by(*keys))
    by_identity: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_identity[row[0] or ANONYMOUS].append(row[1:])
    name = known.name if known else view
    return [_said(identity, name, records, homes) for identity, records in by_identity.items()]


def policy_names(connection: Connection) -> dict[str, str]:
    """The names of publishers by identity, as the policy had them when they last sent something."""
    return {row.identity: row.name for row in connection.execute(_NAMES)}


def counts_since(connection: Connection, since: datetime) -> dict[str, Counts]:
    """The records of each identity in the audit of loading."""
    statement = _AUDITS[connection.dialect.name]
    rows = connection.execute(statement, {"since": _bound(connection, since)})
    return {identity: Counts(int(accepted), int(refused)) for identity, accepted, refused in rows}


def _said(
    identity: str, message_class: str, rows: Iterable[Any], homes: defaultdict[str, list[Home]]
) -> Said:
    """What an identity said, from rows of its records: see `said_in_class`."""
    sites: set[str] = set()
    hosts: set[str] = set()
    new_hosts: set[str] = set()
    monitoring_hosts: set[str] = set()
    times: list[datetime] = []
    records = 0
    for host, site, monitoring_host, start, end, number, first, last in rows:
        records += number
        times += (_moment(at, _NEVER) for at in (first, last) if at is not None)
        monitoring_hosts.add((monitoring_host or "").lower())
        sites |= {site} - {None, ""}
        if host:
            begins, ends = _moment(start, _NEVER), _moment(end, _ALWAYS)
            here = [home for home in homes[host] if home.start < ends and begins < home.end]
            sites |= {home.site for home in here}
            hosts.add(host)
            came = _moment(first, _NEVER)
            if not any(home.received + SETTLED <= came for home in here):
                new_hosts.add(host)
    return Said(
        identity,
        message_class,
        frozenset(sites),
        frozenset(hosts),
        frozenset(new_hosts),
        frozenset(monitoring_hosts),
        records,
        min(times, default=None),
        max(times, default=None),
    )


def _bound(connection: Connection, moment: datetime) -> datetime | str:
    """The moment in the form in which views show times."""
    return format_time(moment) if connection.dialect.name == "sqlite" else moment


def _moment(value: datetime | str | int | None, missing: datetime) -> datetime:
    if value is None or value == "":
        return missing
    return value.astimezone(UTC) if isinstance(value, datetime) else parse_time(str(value))
