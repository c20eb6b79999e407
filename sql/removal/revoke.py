"""Revokes what a publisher said in a period, as if it had never been received.

Its statements are withdrawn, which can be undone, and its results deleted. Each step is a short
transaction for which loaders wait, and may be repeated, so the next revocation completes an
interrupted one: first the dead letters, then the statements, then the results of each day. Changed
days become due; the figures of a sealed month stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult, Engine, bindparam, text

from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import load_transaction, reading
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.database.partitions import partitions
from sam_pipeline.sql.database.statements import TABLES, StatementTable, settle
from sam_pipeline.sql.errors import NoSuchPublisher
from sam_pipeline.sql.loading.fold import fold_here
from sam_pipeline.sql.loading.letters.dead_letter import stored_time, time_of

ALWAYS = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a period without one."""

_DAY = timedelta(days=1)
_THEIRS = "publisher_id IN :ids AND received_at >= :since AND received_at < :until"
_LETTERS = f"""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE state = 'open' AND {_THEIRS}
"""
_PUBLISHERS = text("SELECT publisher_id, identity, name FROM publisher ORDER BY identity")
_SEALS = text("SELECT DISTINCT report, month FROM report_seal ORDER BY month, report")

_KEY = "instance_id, measured_at, gatherer_id"
_ROW = f"{_KEY}, ordinal"
# The bounds keep PostgreSQL to one partition.
_BOUNDS = "measured_at >= :start AND measured_at < :stop"
_THEIR_RESULTS = f"""
    received_at >= :since AND received_at < :until AND {_BOUNDS}
    AND source_id IN (SELECT source_id FROM result_source WHERE publisher_id IN :ids)
"""
_HAS_RESULTS = f"""
    SELECT EXISTS (SELECT 1 FROM metric_result WHERE {_THEIR_RESULTS})
        OR EXISTS (SELECT 1 FROM result_repeat WHERE {_THEIR_RESULTS})
"""
_IS_REVOKED = f"{_BOUNDS} AND ({_ROW}) IN (SELECT {_ROW} FROM revoked_row)"
_NEXT_SENDER = f"""
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY {_ROW} ORDER BY received_at, source_id) AS n
        FROM result_repeat
        WHERE {_IS_REVOKED}
    ) AS sender
    WHERE n = 1
"""
# Loaders expect the first one of a key at the ordinal 0.
_FIRST_LEFT = f"""
    SELECT {_KEY}, min(ordinal) AS ordinal FROM metric_result
    WHERE {_BOUNDS} AND ({_KEY}) IN (SELECT {_KEY} FROM revoked_row)
    GROUP BY {_KEY}
    HAVING min(ordinal) > 0
"""
_DAY_OF = {"postgresql": "CAST(measured_at AS date)", "sqlite": "date(measured_at, 'unixepoch')"}

_FIRST = text("SELECT CAST(min(day) AS text) FROM changed_day")
_UNMARK = text("DELETE FROM changed_day WHERE day = :day")
_MARK = text("""
    INSERT INTO changed_day (day) VALUES (:day)
    ON CONFLICT (day) DO UPDATE SET change_no = NULL, results_no = NULL
""")
_IS_FIRST = text("""
    SELECT :day = (SELECT CAST(min(day) AS text) FROM changed_day)
        AND NOT EXISTS (SELECT 1 FROM published_run WHERE day = :day)
""")
_OF_DAY = text("""
    SELECT EXISTS (SELECT 1 FROM metric_result WHERE measured_at >= :start AND measured_at < :stop)
""")
_HORIZON = text("SELECT max(day) FROM horizon")

_STATUSES = """
    SELECT i.status_id FROM metric_instance AS i
    WHERE i.instance_id IN (SELECT instance_id FROM revoked_row)
"""
_NO_RESULT = "status = NULL, since = NULL, measured_at = NULL, other_at = NULL, summary = NULL"
_WITHOUT_RESULT = f"""
    UPDATE instance_status SET {_NO_RESULT}
    WHERE status_id IN ({_STATUSES})
        AND measured_at >= :start AND measured_at < :stop
        AND NOT EXISTS (
            SELECT 1 FROM metric_instance AS i
            JOIN metric_result AS r ON r.instance_id = i.instance_id
            WHERE i.status_id = instance_status.status_id
                AND r.measured_at = instance_status.measured_at
                AND r.measured_at >= :start AND r.measured_at < :stop
        )
"""
# SQLite reads the history of a status if a new result is older than since. So the newest result
# becomes a new one, and since a later time, unless it is known from results that were pruned.
_NEWEST = """
    UPDATE instance_status SET
        measured_at = r.measured_at,
        summary = r.summary,
        since = CASE
            WHEN since < (SELECT unixepoch(day) FROM horizon) AND instance_status.status = r.status
                THEN since
            ELSE r.measured_at + 1
        END,
        other_at = CASE WHEN other_at < (SELECT unixepoch(day) FROM horizon) THEN other_at END
    FROM revoked_newest AS r
    WHERE r.status_id = instance_status.status_id
"""
_RECOMPUTE = {
    "postgresql": (
        f"SELECT read_history(ARRAY(SELECT DISTINCT status_id FROM ({_STATUSES}) AS s))",
        _WITHOUT_RESULT,
    ),
    "sqlite": (
        "DROP TABLE IF EXISTS revoked_newest",
        f"""
            CREATE TEMPORARY TABLE revoked_newest AS
            SELECT i.status_id, r.result_id, r.measured_at, r.status, r.summary
            FROM instance_status AS i
            JOIN metric_result AS r ON r.result_id = (
                SELECT q.result_id FROM metric_instance AS n
                JOIN metric_result AS q ON q.instance_id = n.instance_id
                WHERE n.status_id = i.status_id
                ORDER BY q.measured_at DESC, q.status DESC, q.result_id
                LIMIT 1
            )
            WHERE i.status_id IN ({_STATUSES})
        """,
        _NEWEST,
        "INSERT INTO load_news (result_id) SELECT result_id FROM revoked_newest",
        """
            UPDATE instance_status SET
                status = n.status, since = n.since, measured_at = n.measured_at,
                other_at = n.other_at, summary = n.summary
            FROM unfolded_status AS n
            WHERE n.status_id = instance_status.status_id
        """,
        "DELETE FROM load_news",
        f"""
            UPDATE instance_status SET {_NO_RESULT}
            WHERE status_id IN ({_STATUSES})
                AND status_id NOT IN (SELECT status_id FROM revoked_newest)
        """,
    ),
}


class Withdrawn(NamedTuple):
    """What was done to the rows of a class.

    `removed`: records of the publisher; `restored`: rows that others have said as well; `days` on
    which rows are no longer the same.
    """

    removed: int = 0
    restored: int = 0
    days: frozenset[date] = frozenset()


class RevokedPeriod(NamedTuple):
    """What these publishers said from `since` until `until`, in the transaction of a connection.

    Of results, those that were measured from `start` until `stop`.
    """

    connection: Connection
    ids: Sequence[int]
    since: datetime
    until: datetime
    start: datetime
    stop: datetime

    def run(self, statement: str) -> CursorResult[Any]:
        """Execute a statement with these values, and the present time as `now`."""
        prepared = text(statement)
        if ":ids" in statement:
            prepared = prepared.bindparams(bindparam("ids", expanding=True))
        return self.connection.execute(prepared, self.values)

    def note(self, name: str, query: str) -> None:
        """Keep the rows of a query in a temporary table."""
        self.run(f"DROP TABLE IF EXISTS {name}")
        self.run(f"CREATE TEMPORARY TABLE {name} AS {query}")

    @property
    def values(self) -> dict[str, object]:
        """The values of statements, with times as the database stores them."""
        names = ("since", "until", "start", "stop")
        moments = {"now": datetime.now(UTC), **{name: getattr(self, name) for name in names}}
        times = {name: stored_time(self.connection, moments[name]) for name in moments}
        return {"ids": self.ids, **times}


Action = Callable[[RevokedPeriod], Withdrawn]


@dataclass(frozen=True)
class Revoked:
    """What a revocation did or would do.

    `due_days` are the days whose reports become due; `sealed` names the sealed months, with their
    reports, that some of them belong to.
    """

    identities: Sequence[str]
    classes: Mapping[str, Withdrawn]
    dead_letters: int
    due_days: Sequence[date]
    sealed: Sequence[tuple[str, str]]


def revoke(
    engine: Engine,
    publisher: str,
    since: datetime,
    until: datetime | None = None,
    *,
    undo: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Revoked:
    """Revoke what the publisher with this name or identity said; a dry run changes nothing.

    `undo`: its statements hold again as before; deleted results do not come back. `on_progress` is
    called with a line of text before each step.

    Raises:
        NoSuchPublisher: no publisher has that name or identity.
        DatabaseRefused: only the owner of the tables may revoke.
        DatabaseAway: the steps completed so far are committed; revoke again later.
    """
    with reading(engine) as connection:
        rows = connection.execute(_PUBLISHERS).all()
    publishers = {
        row.identity: row.publisher_id for row in rows if publisher in (row.identity, row.name)
    }
    if not publishers:
        near = did_you_mean(publisher, {name for row in rows for name in (row.identity, row.name)})
        hint = f" ({near})" if near else ""
        raise NoSuchPublisher(f"no publisher has the name or identity {publisher!r}{hint}")

    def step(action: Action, start: datetime = since, stop: datetime = ALWAYS) -> Withdrawn:
        """Run the action in a transaction of its own; a dry run undoes it."""

        def run(connection: Connection) -> Withdrawn:
            with connection.begin_nested() as savepoint:
                ids = list(publishers.values())
                result = action(RevokedPeriod(connection, ids, since, until or ALWAYS, start, stop))
                if dry_run:
                    savepoint.rollback()
            return result

        return load_transaction(engine, run)

    def drop_letters(period: RevokedPeriod) -> Withdrawn:
        moments = {"since": period.since, "until": period.until}
        times = {name: format_time(moment) for name, moment in moments.items() if moment != ALWAYS}
        command = "revoke undo" if undo else "revoke"
        record_operation(period.connection, command, {"publisher": publisher, **times})
        return Withdrawn(0 if undo else period.run(_LETTERS).rowcount)

    letters = step(drop_letters).removed
    classes = {}
    for table in TABLES:
        on_progress(table.view)
        classes[table.view] = step(partial(_due, partial(_withdraw, table=table, undo=undo)))
    if engine.dialect.name == "sqlite":
        days = [(date.min, ALWAYS)]
    else:  # a partition at a time
        with reading(engine) as connection:
            first = sorted({partition.day for partition in partitions(connection)})
        days = [(day, _midnight(day + _DAY)) for day in first]
    results = [Withdrawn()]
    for day, stop in [] if undo else days:
        start = _midnight(day)
        on_progress(f"metricOutput {start:%Y-%m-%d}")
        results.append(step(partial(_due, _delete_results, only_if=_HAS_RESULTS), start, stop))
    removed, restored, changed = zip(*results, strict=True)
    classes["metricOutput"] = Withdrawn(sum(removed), sum(restored), frozenset().union(*changed))
    classes = {name: withdrawn for name, withdrawn in classes.items() if withdrawn.removed}
    due_days = sorted({day for withdrawn in classes.values() for day in withdrawn.days})
    months = {f"{day:%Y-%m}" for day in due_days}
    with reading(engine) as connection:
        seals = [(row.report, row.month) for row in connection.execute(_SEALS)]
    sealed = [(report, month) for report, month in seals if month in months]
    return Revoked([*publishers], classes, letters, due_days, sealed)


def _due(action: Action, period: RevokedPeriod, only_if: str = "") -> Withdrawn:
    """Run the action, and make the days due that it changes and that can have reports.

    `only_if`: a query that returns false if there is nothing to do, so loaders need not wait.
    """
    if only_if and not period.run(only_if).scalar_one():
        return Withdrawn()
    connection = period.connection
    if connection.dialect.name == "postgresql":  # keep others from marking days
        period.run("LOCK TABLE change_counter IN SHARE UPDATE EXCLUSIVE MODE")
        period.run("LOCK TABLE changed_day IN SHARE ROW EXCLUSIVE MODE")
    fold_here(connection)
    first, today = _first_reported_day(connection), datetime.now(UTC).date()
    withdrawn = action(period)
    changed = sorted(day for day in withdrawn.days if first <= day <= today)
    for day in changed:
        connection.execute(_MARK, {"day": str(day)})
    due = set(changed)
    # Reports begin on the first day with results; earlier days stay due only if published.
    for day in changed:
        times = {"start": _midnight(day), "stop": _midnight(day + _DAY)}
        bounds = {name: stored_time(connection, moment) for name, moment in times.items()}
        is_first = connection.scalar(_IS_FIRST, {"day": str(day)})
        if not is_first or connection.scalar(_OF_DAY, bounds):
            break
        connection.execute(_UNMARK, {"day": str(day)})
        due.remove(day)
    return withdrawn._replace(days=frozenset(due))


def _first_reported_day(connection: Connection) -> date:
    """The first day that can have reports that are due; tomorrow before the first result."""
    first, frozen = connection.scalar(_FIRST), connection.scalar(_HORIZON)
    if first is None:
        return datetime.now(UTC).date() + _DAY
    return date.fromisoformat(max(first, str(frozen or "")))


def _withdraw(period: RevokedPeriod, table: StatementTable, undo: bool) -> Withdrawn:
    """Withdraw the statements of the period in one class, or restore them."""
    if period.connection.dialect.name == "postgresql":
        period.run("SELECT lock_statements()")
    theirs = f"{_THEIRS} AND withdrawn_at IS {'NOT NULL' if undo else 'NULL'}"
    period.note("revoked_key", f"SELECT DISTINCT {table.key} FROM {table.name} WHERE {theirs}")
    is_touched = f"({table.key}) IN (SELECT {table.key} FROM revoked_key)"
    before = _spans(period, table, is_touched)
    now = "NULL" if undo else ":now"
    withdrawn = period.run(f"UPDATE {table.name} SET withdrawn_at = {now} WHERE {theirs}").rowcount
    restored = settle(period.connection, table, is_touched)
    after = _spans(period, table, is_touched)
    reported = _first_reported_day(period.connection), datetime.now(UTC).date()
    days = changed_days(before, after, *reported)
    if table.view == "downtime":
        # When one counts as announced may depend on each statement about it.
        days = changed_days(before, (), *reported) | changed_days((), after, *reported)
    return Withdrawn(withdrawn, restored, frozenset(days))


def _spans(period: RevokedPeriod, table: StatementTable, condition: str) -> list[RowSpan]:
    """The statements that hold, as far as reports read them."""
    if not table.start:
        return []
    columns = ", ".join((*table.keys, table.start, table.end, *table.facts))
    found = period.run(f"""
        SELECT {columns} FROM {table.name}
        WHERE holds AND {condition} AND coalesce({table.end} > {table.start}, true)
    """)
    at = len(table.keys)
    return [
        RowSpan(
            tuple(row[:at]),
            time_of(row[at]),
            None if row[at + 1] is None else time_of(row[at + 1]),
            tuple(row[at + 2 :]),
            at_midnight=table.view != "downtime",
        )
        for row in found
    ]


class RowSpan(NamedTuple):
    """A row that counts from `start` until `end` (None: forever).

    If `at_midnight`, it counts on the days at whose beginning it is valid; otherwise on each day
    that it overlaps, for that part of the day.
    """

    key: tuple[Any, ...]
    start: datetime
    end: datetime | None
    facts: tuple[Any, ...]
    at_midnight: bool

    def on_days(self, first: date, last: date) -> Iterator[tuple[date, object]]:
        """The days from `first` to `last` on which the row counts, with its content on each."""
        day = max(self.start.date(), first)
        while day <= last:
            midnight = _midnight(day)
            if self.end is not None and self.end <= midnight:
                return
            if not self.at_midnight:
                end = min(self.end or midnight + _DAY, midnight + _DAY)
                yield day, (self.facts, max(self.start, midnight), end)
            elif self.start <= midnight:
                yield day, self.facts
            day += _DAY


def changed_days(
    before: Iterable[RowSpan], after: Iterable[RowSpan], first: date, last: date
) -> set[date]:
    """The days from `first` to `last` on which the rows before and after are not the same."""
    old, new = (
        {(day, row.key): said for row in rows for day, said in row.on_days(first, last)}
        for rows in (before, after)
    )
    return {at[0] for at in old.keys() | new.keys() if old.get(at) != new.get(at)}


def _delete_results(period: RevokedPeriod) -> Withdrawn:
    """Delete the results of the period; one that others have sent becomes that of the next one."""
    run, dialect = period.run, period.connection.dialect.name
    if dialect == "postgresql":
        run("LOCK TABLE ONLY metric_result IN SHARE ROW EXCLUSIVE MODE")
    run(f"DELETE FROM result_repeat WHERE {_THEIR_RESULTS}")
    period.note("revoked_row", f"SELECT {_ROW} FROM metric_result WHERE {_THEIR_RESULTS}")
    removed = int(run("SELECT count(*) FROM revoked_row").scalar_one())
    period.note("next_sender", _NEXT_SENDER)
    restored = run("""
        UPDATE metric_result AS r SET
            source_id = n.source_id, message_id = n.message_id, received_at = n.received_at
        FROM next_sender AS n
        WHERE r.measured_at >= :start AND r.measured_at < :stop
            AND (r.instance_id, r.measured_at, r.gatherer_id, r.ordinal)
                = (n.instance_id, n.measured_at, n.gatherer_id, n.ordinal)
    """).rowcount
    for table, row in (("result_repeat", f"{_ROW}, source_id"), ("revoked_row", _ROW)):
        run(f"DELETE FROM {table} WHERE ({row}) IN (SELECT {row} FROM next_sender)")
    days = {
        date.fromisoformat(str(day))
        for day in run(f"SELECT DISTINCT {_DAY_OF[dialect]} FROM revoked_row").scalars()
    }
    run(f"DELETE FROM metric_result_detail WHERE {_IS_REVOKED}")
    run(f"DELETE FROM metric_result WHERE {_IS_REVOKED}")
    period.note("first_left", _FIRST_LEFT)
    for table in ("metric_result", "metric_result_detail", "result_repeat"):
        is_first = f"{_BOUNDS} AND ({_ROW}) IN (SELECT {_ROW} FROM first_left)"
        run(f"UPDATE {table} SET ordinal = 0 WHERE {is_first}")
    # The newest statuses of these instances are read from the results that are left.
    for statement in _RECOMPUTE[dialect] if days else ():
        run(statement)
    # A report looks back to the previous day.
    return Withdrawn(removed, restored, frozenset(days | {day + _DAY for day in days}))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
