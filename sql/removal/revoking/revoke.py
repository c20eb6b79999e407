"""Revokes what a publisher said in a period, as if it had never been received.

Its statements are withdrawn, which can be undone, and its results deleted. Each step is a short
transaction for which loaders wait, and may be repeated, so the next revocation completes an
interrupted one: first the dead letters, then the statements, then the results of each day. Changed
days become due; the figures of a sealed month stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.partitions import partitions
from sam_pipeline.sql.database.statements import TABLES
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.loading.publishers import identities_of
from sam_pipeline.sql.operations.record import record_operation
from sam_pipeline.sql.removal.derived import (
    first_reported_day,
    forget_first_days,
    lock_and_fold,
    mark,
)
from sam_pipeline.sql.removal.revoking.period import ALWAYS, THEIRS, RevokedPeriod, Withdrawn
from sam_pipeline.sql.removal.revoking.results import HAS_RESULTS, delete_results
from sam_pipeline.sql.removal.revoking.statements import withdraw

Action = Callable[[RevokedPeriod], Withdrawn]

_DAY = timedelta(days=1)
_LETTERS = f"""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE state = 'open' AND {THEIRS}
"""
_SEALS = text("SELECT DISTINCT report, month FROM report_seal ORDER BY month, report")


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
        publishers = identities_of(connection, publisher)

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

    letters = step(partial(_start, publisher=publisher, undo=undo)).removed
    classes = {}
    for table in TABLES:
        on_progress(table.view)
        classes[table.view] = step(partial(_due, partial(withdraw, table=table, undo=undo)))
    results = [Withdrawn()]
    for start, stop in [] if undo else _times_of_results(engine):
        on_progress(f"metricOutput {start:%Y-%m-%d}")
        results.append(step(_delete_results, start, stop))
    removed, restored, changed = zip(*results, strict=True)
    classes["metricOutput"] = Withdrawn(sum(removed), sum(restored), frozenset().union(*changed))
    classes = {name: withdrawn for name, withdrawn in classes.items() if withdrawn.removed}
    days = sorted({day for withdrawn in classes.values() for day in withdrawn.days})
    months = {f"{day:%Y-%m}" for day in days}
    with reading(engine) as connection:
        seals = [(row.report, row.month) for row in connection.execute(_SEALS)]
    sealed = [(report, month) for report, month in seals if month in months]
    return Revoked([*publishers], classes, letters, days, sealed)


def _start(period: RevokedPeriod, publisher: str, undo: bool) -> Withdrawn:
    """Record the operation, and drop the open dead letters."""
    moments = {"since": period.since, "until": period.until}
    times = {name: format_time(moment) for name, moment in moments.items() if moment != ALWAYS}
    command = "revoke undo" if undo else "revoke"
    record_operation(period.connection, command, {"publisher": publisher, **times})
    return Withdrawn(0 if undo else period.run(_LETTERS).rowcount)


def _delete_results(period: RevokedPeriod) -> Withdrawn:
    if not period.run(HAS_RESULTS).scalar_one():  # loaders need not wait
        return Withdrawn()
    return _due(delete_results, period)


def _due(action: Action, period: RevokedPeriod) -> Withdrawn:
    """Run the action, and make the days due that it changes and that can have reports."""
    connection = period.connection
    lock_and_fold(connection)
    first, today = first_reported_day(connection), datetime.now(UTC).date()
    withdrawn = action(period)
    days = {day for day in withdrawn.days if first <= day <= today}
    mark(connection, days)
    return withdrawn._replace(days=frozenset(days - forget_first_days(connection, days)))


def _times_of_results(engine: Engine) -> list[tuple[datetime, datetime]]:
    """The times of results to handle together: on PostgreSQL the days that have a partition."""
    if engine.dialect.name == "sqlite":
        return [(datetime.combine(date.min, time(), UTC), ALWAYS)]
    with reading(engine) as connection:
        days = sorted({partition.day for partition in partitions(connection)})
    return [
        (datetime.combine(day, time(), UTC), datetime.combine(day + _DAY, time(), UTC))
        for day in days
    ]
