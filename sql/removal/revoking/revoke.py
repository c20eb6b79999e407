"""Revokes what a publisher said in a period, as if it had never been received.

Each step is a short transaction for which loaders wait, and may be repeated, so the next revocation
completes an interrupted one: first the dead letters, then topology and downtimes, then the results
of each day. Days that have changed become due; the figures of a sealed month stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

from sqlalchemy import Connection, Engine, bindparam, text

from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.partitions import partitions
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import NoSuchPublisher
from sam_pipeline.sql.loading.letters.dead_letter import stored_time
from sam_pipeline.sql.operations.record import record_operation
from sam_pipeline.sql.removal.revoking.derived import (
    first_reported_day,
    forget_first_days,
    lock_and_fold,
    mark_exactly,
    recompute_statuses,
)
from sam_pipeline.sql.removal.revoking.rows import OTHERS, RESULTS, ClassTable
from sam_pipeline.sql.removal.revoking.withdraw import (
    Statements,
    Withdrawn,
    has_statements,
    withdraw,
)

ALWAYS = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of a period without one."""

_DAY = timedelta(days=1)

T = TypeVar("T")

_PUBLISHERS = text("SELECT publisher_id, identity, name FROM publisher ORDER BY identity")
_LETTERS = text("""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now
    WHERE state = 'open'
        AND publisher_id IN :ids
        AND received_at >= :since
        AND received_at < :until
""").bindparams(bindparam("ids", expanding=True))
_HORIZON = text("SELECT max(day) FROM horizon")
_SEALS = text("SELECT DISTINCT report, month FROM report_seal ORDER BY month, report")

# Loaders wait until the transaction ends, so that all claims about a row are known.
_LOCK = "LOCK TABLE ONLY {} IN SHARE ROW EXCLUSIVE MODE"


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
    dry_run: bool = False,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Revoked:
    """Revoke what the publisher with this name or identity said; a dry run changes nothing.

    `on_progress` is called with a line of text before each step.

    Raises:
        NoSuchPublisher: no publisher has that name or identity.
        DatabaseRefused: only the owner of the tables may revoke.
        DatabaseAway: the steps completed so far are committed; revoke again later.
    """
    with reading(engine) as connection:
        publishers = _identities(connection, publisher)
    statements = Statements([*publishers.values()], since, until or ALWAYS, since, ALWAYS)
    letters = _step(engine, dry_run, lambda c: _start(c, publisher, statements))
    done: dict[str, Withdrawn] = defaultdict(Withdrawn)
    portions = [(rows, statements) for rows in OTHERS]
    for start, stop in _times_of_results(engine):
        portions.append((RESULTS, replace(statements, start=start, stop=stop)))
    for rows, portion in portions:
        on_progress(f"{rows.view} {portion.start:%Y-%m-%d}" if rows is RESULTS else rows.view)
        with reading(engine) as connection:
            is_concerned = has_statements(connection, rows, portion)
        if is_concerned:  # otherwise loaders need not wait
            done[rows.view] += _step(engine, dry_run, lambda c: _withdraw(c, rows, portion))  # noqa: B023
    days = sorted({day for withdrawn in done.values() for day in withdrawn.days})
    months = {f"{day:%Y-%m}" for day in days}
    with reading(engine) as connection:
        seals = [(row.report, row.month) for row in connection.execute(_SEALS)]
    sealed = [(report, month) for report, month in seals if month in months]
    return Revoked([*publishers], dict(done), letters, days, sealed)


def _identities(connection: Connection, publisher: str) -> dict[str, int]:
    """The ids of the identities with this name, or of this identity."""
    rows = connection.execute(_PUBLISHERS).all()
    found = {
        row.identity: row.publisher_id for row in rows if publisher in (row.identity, row.name)
    }
    if not found:
        near = did_you_mean(publisher, {name for row in rows for name in (row.identity, row.name)})
        hint = f" ({near})" if near else ""
        raise NoSuchPublisher(f"no publisher has the name or identity {publisher!r}{hint}")
    return found


def _step(engine: Engine, dry_run: bool, action: Callable[[Connection], T]) -> T:
    """Run the action in a transaction; a dry run undoes it."""

    def undone(connection: Connection) -> T:
        with connection.begin_nested() as savepoint:
            result = action(connection)
            savepoint.rollback()
        return result

    return load_transaction(engine, undone if dry_run else action)


def _start(connection: Connection, publisher: str, statements: Statements) -> int:
    """Drop the open dead letters and record the operation; returns the number of letters."""
    moments = {name: getattr(statements, name) for name in ("since", "until")}
    values = {name: stored_time(connection, moment) for name, moment in moments.items()}
    now, ids = stored_time(connection, datetime.now(UTC)), list(statements.publisher_ids)
    dropped = connection.execute(_LETTERS, {**values, "ids": ids, "now": now}).rowcount
    period = {name: format_time(moment) for name, moment in moments.items() if moment != ALWAYS}
    record_operation(connection, "revoke", {"publisher": publisher, **period})
    return dropped


def _withdraw(connection: Connection, rows: ClassTable, statements: Statements) -> Withdrawn:
    """Withdraw the statements about one class, and bring the derived tables up to date."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(_LOCK.format(rows.table)))
    marks = lock_and_fold(connection)
    first = first_reported_day(connection, marks)
    today = datetime.now(UTC).date()
    withdrawn = withdraw(connection, rows, statements, first or today)
    days = frozenset(day for day in withdrawn.days if first and first <= day <= today)
    mark_exactly(connection, marks, days)
    if rows is RESULTS and withdrawn.removed:
        bounds = {"start": statements.start, "stop": statements.stop}
        recompute_statuses(
            connection, {name: stored_time(connection, moment) for name, moment in bounds.items()}
        )
        days -= forget_first_days(connection, days)
    return replace(withdrawn, days=days)


def _times_of_results(engine: Engine) -> list[tuple[datetime, datetime]]:
    """The times of results to handle together: on PostgreSQL the days that have a partition.

    Of the results before the horizon, only those of the last day may still be stored.
    """
    with reading(engine) as connection:
        frozen = connection.scalar(_HORIZON)
        days = sorted({partition.day for partition in partitions(connection)})
    first = date.fromisoformat(str(frozen)) - _DAY if frozen else date.min
    if engine.dialect.name == "sqlite":
        return [(datetime.combine(first, time(), UTC), ALWAYS)]
    return [
        (datetime.combine(day, time(), UTC), datetime.combine(day + _DAY, time(), UTC))
        for day in days
        if day >= first
    ]
