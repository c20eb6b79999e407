"""Which identity said what: the publishers of stored records, and their refused records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnClause,
    Connection,
    Engine,
    column,
    func,
    literal,
    null,
    select,
    table,
    text,
)

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.schema.identity.suggestion import Said
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, column_names
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.partitions import MAX_DAYS, partitions
from sam_pipeline.sql.database.statements import HISTORIES
from sam_pipeline.sql.loading.authorise import LAST_DAY, HostMembership
from sam_pipeline.sql.loading.catalogue import RECEIVED_AT, ClassView

SETTLED = timedelta(hours=1)
"""A host that joined the topology less than this before the first record about it is new: another
time, the record may come first."""

# The policy trusts no site that a result names. Each day is a period of its own.
_RESULTS = """
    SELECT
        publisher, hostName, '', coalesce(monitoringHost, ''), {day}, {day}, count(*),
        min(receivedAt), max(receivedAt)
    FROM metricOutput
    WHERE receivedAt >= :since AND timestamp >= :start AND timestamp < :stop
    GROUP BY publisher, hostName, coalesce(monitoringHost, ''), {day}
"""
_DAY = {
    "postgresql": "CAST(CAST(timestamp AT TIME ZONE 'UTC' AS date) AS text)",
    "sqlite": "substr(timestamp, 1, 10)",
}
_HOMES = text("SELECT hostName, siteName, validFrom, validTo, receivedAt FROM serviceEndpoint")
_NAMES = text("SELECT identity, name FROM publisher WHERE name <> identity")
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


class Judged(NamedTuple):
    """The records of an identity that were accepted and refused, redelivered ones included."""

    accepted: int
    refused: int


class Home(NamedTuple):
    """That a host belongs to a site, known since `received`."""

    membership: HostMembership
    received: datetime


Homes = defaultdict[str, list[Home]]
"""By host."""


def homes_of(connection: Connection) -> Homes:
    """The sites of each host, as announced."""
    homes: Homes = defaultdict(list)
    for host, site, start, end, received in connection.execute(_HOMES):
        end_s = None if end is None else int(_moment(end).timestamp())
        membership = HostMembership.during(site, int(_moment(start).timestamp()), end_s)
        homes[host].append(Home(membership, _moment(received)))
    return homes


def said_in_class(engine: Engine, view: ClassView, since: datetime, homes: Homes) -> list[Said]:
    """What each identity said in a class since some time.

    A site's own class has no times of reception, so all its records count; those of a class without
    a column for the publisher are unknown.
    """
    if not view.publisher_column:
        return []
    read = _results if view.known is METRIC_OUTPUT else _records
    by_identity: dict[str, list[Any]] = defaultdict(list)
    for identity, *values in read(engine, view, since):
        by_identity[identity or ANONYMOUS].append(values)
    return [
        _said(identity, view.class_name, records, homes)
        for identity, records in by_identity.items()
    ]


def _results(engine: Engine, _: ClassView, since: datetime) -> Iterator[Any]:
    """Rows for `_said` of metric results, some days at a time."""
    statement = text(_RESULTS.format(day=_DAY[engine.dialect.name]))
    with reading(engine) as connection:
        days = sorted({partition.day for partition in partitions(connection)})
    periods = [(days[at], days[at : at + MAX_DAYS][-1]) for at in range(0, len(days), MAX_DAYS)]
    if engine.dialect.name == "sqlite":
        periods = [(date.min, date.max - timedelta(days=1))]
    for first, last in periods:
        moments = (first, last + timedelta(days=1))
        start, stop = (_bound(engine, datetime.combine(day, time(), UTC)) for day in moments)
        values = {"since": _bound(engine, since), "start": start, "stop": stop}
        with reading(engine) as connection:
            yield from connection.execute(statement, values).all()


def _records(engine: Engine, view: ClassView, since: datetime) -> Sequence[Any]:
    """Rows for `_said` of another class."""
    names = column_names(view.all_columns)
    start, end = next((pair for pair in _PERIODS if names[pair[0]]), ("", ""))
    keys = [names[key] for key in ("hostName", "siteName", "monitoringHost", start, end)]
    publisher: ColumnClause[Any] = column(view.publisher_column or "")
    received = column(RECEIVED_AT.lower()) if view.known else null()
    statement = (
        select(
            publisher,
            *(column(name) if name else literal("") for name in keys),
            func.count(),
            func.min(received),
            func.max(received),
        )
        .select_from(table(HISTORIES.get(view.class_name, view.name)))
        .where(received >= _bound(engine, since) if view.known else literal(True))
        .group_by(publisher, *(column(name) for name in keys if name))
    )
    with reading(engine) as connection:
        return connection.execute(statement).all()


def policy_names(connection: Connection) -> dict[str, str]:
    """The names of publishers by identity, as the policy had them when they last sent something."""
    return {row.identity: row.name for row in connection.execute(_NAMES)}


def counts_since(engine: Engine, since: datetime) -> dict[str, Judged]:
    """The records of each identity in the audit of loading."""
    with reading(engine) as connection:
        rows = connection.execute(_AUDITS[engine.dialect.name], {"since": _bound(engine, since)})
        return {
            identity: Judged(int(accepted), int(refused)) for identity, accepted, refused in rows
        }


def _said(identity: str, message_class: str, rows: Iterable[Any], homes: Homes) -> Said:
    """What an identity said, from rows of its records: see `said_in_class`."""
    sites: set[str] = set()
    hosts: set[str] = set()
    new_hosts: set[str] = set()
    monitoring_hosts: set[str] = set()
    times: list[datetime] = []
    records = 0
    for host, site, monitoring_host, start, end, number, first, last in rows:
        records += number
        times += (_moment(at) for at in (first, last) if at is not None)
        monitoring_hosts.add((monitoring_host or "").lower())
        sites |= {site} - {None, ""}
        if host:
            first_day = _day(start) if start else ""
            here = [
                home
                for home in homes[host]
                if home.membership.overlaps(first_day, _day(end) if end else LAST_DAY)
            ]
            sites |= {home.membership.site for home in here}
            hosts.add(host)
            # Without a time the host may have been in no site at that time.
            is_settled = any(first and home.received + SETTLED <= _moment(first) for home in here)
            if not (start and is_settled):
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


def _bound(engine: Engine, moment: datetime) -> datetime | str:
    """The moment in the form in which views show times."""
    return format_time(moment) if engine.dialect.name == "sqlite" else moment


def _moment(value: datetime | str) -> datetime:
    return value.astimezone(UTC) if isinstance(value, datetime) else parse_time(value)


def _day(value: datetime | str) -> str:
    """The day of a time, or the day itself, as YYYY-MM-DD."""
    text = format_time(value) if isinstance(value, datetime) else value
    return text[: len(LAST_DAY)]
