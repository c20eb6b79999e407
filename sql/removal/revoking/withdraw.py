"""Withdrawing a publisher's statements about the rows of one class, in the caller's transaction.

Once different statements about a row have arrived, the table `claim` has all of them. So a row that
nobody else mentioned is deleted, and a contested one is stored again from what the others said, in
the order of arrival, by the same rules as when it arrived.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, zip_longest
from typing import Any

from sqlalchemy import Connection, CursorResult, bindparam, column, insert, table, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.letters.dead_letter import stored_time
from sam_pipeline.sql.removal.revoking.days import RowSpan, changed_days
from sam_pipeline.sql.removal.revoking.rows import RESULTS, ClassTable

_BY_THEM = "publisher_id IN :ids"
_THEN = "received_at >= :since AND received_at < :until"
_SOURCES = "source_id IN (SELECT source_id FROM result_source WHERE publisher_id IN :ids)"
_BOUNDS = "AND measured_at >= :start AND measured_at < :stop"


@dataclass(frozen=True)
class Statements:
    """What is revoked: what these publishers said from `since` until `until`.

    Of results, only those that were measured from `start` until `stop`.
    """

    publisher_ids: Sequence[int]
    since: datetime
    until: datetime
    start: datetime
    stop: datetime


@dataclass(frozen=True)
class Withdrawn:
    """What was done to the rows of a class.

    `removed`: statements of the publisher; `recomputed`: rows about which others had said something
    as well; `days`: those on which rows are no longer the same.
    """

    removed: int = 0
    recomputed: int = 0
    days: frozenset[date] = frozenset()

    def __add__(self, other: Withdrawn) -> Withdrawn:
        return Withdrawn(
            self.removed + other.removed,
            self.recomputed + other.recomputed,
            self.days | other.days,
        )


def withdraw(
    connection: Connection, rows: ClassTable, statements: Statements, first_day: date
) -> Withdrawn:
    """Remove the statements about rows of a class, and store again what others said about them.

    The temporary table `revoked_row` has the keys of the affected rows afterwards. Days before
    `first_day` have no reports.
    """
    work = _Work(connection, rows, statements)
    contested = work.find_rows()
    affected = work.count("revoked_row")
    others = work.statements_of_others()
    work.run("CREATE TEMPORARY TABLE revoked_before AS " + work.results_now)
    before = work.spans()
    work.run("DELETE FROM claim WHERE class = :view AND key IN (SELECT key FROM revoked_key)")
    for target in (("metric_result_detail",) if rows is RESULTS else ()) + (rows.table,):
        work.run(f"DELETE FROM {target} WHERE {work.is_affected}")
    for said in zip_longest(*others.values()):
        _say_again(connection, rows.view, [record for record in said if record is not None])
    if rows is RESULTS:
        days = work.days_of_changed_results()
    else:
        days = changed_days(before, work.spans(), first_day, datetime.now(UTC).date())
    uncontested = affected - work.count("revoked_key")
    return Withdrawn(contested + uncontested, len(others), frozenset(days))


def has_statements(connection: Connection, rows: ClassTable, statements: Statements) -> bool:
    """Whether there is anything to withdraw."""
    work = _Work(connection, rows, statements)
    found = f"SELECT EXISTS ({work.their_claims}) OR EXISTS ({work.their_rows})"
    return bool(work.run(found).scalar_one())


@dataclass
class _Work:
    """Statements on the rows of a class, with the values that they all need."""

    connection: Connection
    rows: ClassTable
    statements: Statements
    values: Mapping[str, object] = field(init=False)

    def __post_init__(self) -> None:
        moments = {
            name: stored_time(self.connection, getattr(self.statements, name))
            for name in ("since", "until", "start", "stop")
        }
        ids = list(self.statements.publisher_ids)
        self.values = {"view": self.rows.view, "ids": ids, **moments}

    def run(self, statement: str) -> CursorResult[Any]:
        prepared = text(statement)
        names = prepared.compile().params
        if "ids" in names:
            prepared = prepared.bindparams(bindparam("ids", expanding=True))
        return self.connection.execute(prepared, {name: self.values[name] for name in names})

    def count(self, name: str) -> int:
        return int(self.run(f"SELECT count(*) FROM {name}").scalar_one())

    @property
    def is_affected(self) -> str:
        """The condition on affected rows; the bounds keep PostgreSQL to one partition."""
        bounds = _BOUNDS if self.rows is RESULTS else ""
        return f"({self.rows.key}) IN (SELECT {self.rows.key} FROM revoked_row) {bounds}"

    @property
    def their_claims(self) -> str:
        bounds = ""
        if self.rows is RESULTS:
            claimed = self.rows.claimed(self.connection.dialect.name)
            bounds = _BOUNDS.replace("measured_at", claimed[1])
        return f"SELECT key FROM claim WHERE class = :view AND {_BY_THEM} AND {_THEN} {bounds}"

    @property
    def their_rows(self) -> str:
        theirs, bounds = (_SOURCES, _BOUNDS) if self.rows is RESULTS else (_BY_THEM, "")
        return f"""
            SELECT {self.rows.key} FROM {self.rows.table} WHERE {theirs} AND {_THEN} {bounds}
        """

    def find_rows(self) -> int:
        """Fill `revoked_key`, the contested keys, and `revoked_row`, all of them.

        Returns the number of the publisher's claims.
        """
        rows = self.rows
        for name in ("revoked_key", "revoked_row", "revoked_before"):
            self.run(f"DROP TABLE IF EXISTS {name}")
        self.run(f"""
            CREATE TEMPORARY TABLE revoked_key AS
            SELECT DISTINCT c.key FROM ({self.their_claims}) AS c
        """)
        columns = ", ".join(
            f"{value} AS {name}"
            for value, name in zip(
                rows.claimed(self.connection.dialect.name), rows.keys, strict=True
            )
        )
        self.run(f"CREATE TEMPORARY TABLE revoked_row AS SELECT {columns} FROM revoked_key")
        self.run(f"""
            INSERT INTO revoked_row
            SELECT * FROM ({self.their_rows}) AS r
            WHERE ({rows.key}) NOT IN (SELECT {rows.key} FROM revoked_row)
        """)
        return self.count(f"({self.their_claims}) AS c")

    def statements_of_others(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """The other statements about the contested rows, by key, in the order of arrival."""
        said = defaultdict(list)
        for row in self.run(f"""
            SELECT c.key, c.record, c.message_id, c.received_at, p.identity
            FROM claim AS c
            JOIN publisher AS p ON p.publisher_id = c.publisher_id
            WHERE c.class = :view
                AND c.key IN (SELECT k.key FROM revoked_key AS k)
                AND NOT (c.{_BY_THEM} AND c.{_THEN.replace("AND ", "AND c.")})
            ORDER BY c.claim_id
        """):
            received_at = row.received_at
            if isinstance(received_at, int):
                received_at = format_time(datetime.fromtimestamp(received_at, UTC))
            about = {"messageid": row.message_id, "publisher": row.identity}
            said[row.key].append({**json.loads(row.record), **about, "receivedat": received_at})
        return said

    @property
    def results_now(self) -> str:
        return f"SELECT {RESULTS.key}, status FROM metric_result WHERE " + (
            self.is_affected if self.rows is RESULTS else "false"
        )

    def days_of_changed_results(self) -> set[date]:
        """The days of results that are not as in `revoked_before`, and those that follow them.

        A report looks back to the previous day.
        """
        day = {
            "postgresql": "CAST(measured_at AS date)",
            "sqlite": "date(measured_at, 'unixepoch')",
        }
        changed = self.run(f"""
            SELECT DISTINCT {day[self.connection.dialect.name]} FROM (
                SELECT * FROM (SELECT * FROM revoked_before EXCEPT {self.results_now}) AS old
                UNION ALL
                SELECT * FROM ({self.results_now} EXCEPT SELECT * FROM revoked_before) AS new
            ) AS changed
        """)
        days = {date.fromisoformat(str(day)) for day in changed.scalars()}
        return days | {day + timedelta(days=1) for day in days}

    def spans(self) -> list[RowSpan]:
        """What reports read of the affected rows."""
        rows = self.rows
        if not rows.start:
            return []
        columns = ", ".join((*rows.keys, rows.start, rows.end, *rows.facts))
        found = self.run(f"""
            SELECT {columns} FROM {rows.table}
            WHERE {self.is_affected} AND coalesce({rows.end} > {rows.start}, true)
        """)
        at = len(rows.keys)
        # A row of the topology counts on a day at whose beginning it is valid, a downtime on each
        # day that it overlaps.
        whole = rows.view != "downtime"
        return [
            RowSpan(
                tuple(row[:at]),
                _day_of(row[at], after=whole),
                None if row[at + 1] is None else _day_of(row[at + 1], after=True),
                tuple(row[at + 2 :]),
            )
            for row in found
        ]


def _day_of(value: datetime | int, after: bool) -> date:
    """The day of a time, or if `after`, the first that does not begin before it."""
    moment = datetime.fromtimestamp(value, UTC) if isinstance(value, int) else value
    if after and moment.time() != datetime.min.time():
        return moment.date() + timedelta(days=1)
    return moment.date()


def _say_again(connection: Connection, view: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Insert statements about different rows into a view."""
    for names, group in groupby(sorted(records, key=tuple), key=tuple):
        target = table(view.lower(), *map(column, names))
        connection.execute(insert(target), [dict(record) for record in group])
