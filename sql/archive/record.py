"""The database's record of its archive: which days are due, written and verified."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.archive.manifest import Manifest, newest_of
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.locks import one_at_a_time
from sam_pipeline.sql.loading.fold import take_changes
from sam_pipeline.sql.loading.letters.dead_letter import stored_time, time_of

_RECORD = text(
    "INSERT INTO archived_day (day, version, change_no, archived_at, verified_at)"
    " VALUES (:day, :version, :change_no, :archived_at, :verified_at)"
    " ON CONFLICT (day) DO UPDATE SET version = excluded.version, change_no = excluded.change_no,"
    " archived_at = excluded.archived_at, verified_at = excluded.verified_at"
)
_DAMAGED = text("UPDATE archived_day SET verified_at = NULL WHERE day = :day")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Changes:
    """The days that the database has: `changed` are their newest changes (None: without a number).

    `horizon` is the first day that still has all of its results, None if nothing was pruned.
    """

    changed: Mapping[date, int | None]
    horizon: date | None

    def has(self, day: date) -> bool:
        """Whether the database still has all results of a day, or may get some."""
        return self.horizon is None or day >= self.horizon

    def days_before(self, bound: date) -> list[date]:
        """The days with results, from the first one or the horizon on."""
        if not self.changed:
            return []
        first = max(min(self.changed), self.horizon or date.min)
        return [first + timedelta(days=number) for number in range((bound - first).days)]

    def is_in(self, manifest: Manifest) -> bool:
        """Whether a version has everything that the database has of its day."""
        day = manifest.day
        return day not in self.changed or manifest.includes(self.changed[day])


def read_changes(connection: Connection) -> Changes:
    rows = connection.execute(text("SELECT day, change_no FROM report_changed_day"))
    changed = {_as_day(day): number for day, number in rows}
    horizon = connection.scalar(text("SELECT day FROM report_horizon"))
    return Changes(changed, None if horizon is None else _as_day(horizon))


def number_changes(engine: Engine) -> int:
    """Number the changes that the next version includes; commits before anything is read."""
    with writing(engine) as connection:
        return take_changes(connection)


def due_days(changes: Changes, store: Store, today: date, min_age_days: float) -> list[date]:
    """The days older than `min_age_days` that were never archived, or have changed since."""
    days = changes.days_before(today - timedelta(days=min_age_days))
    archived = newest_of(store, days)
    return [day for day in days if day not in archived or not changes.is_in(archived[day])]


def verified_versions(engine: Engine) -> dict[date, tuple[int, datetime]]:
    """The versions whose files were found to be intact, and when."""
    statement = "SELECT day, version, verified_at FROM archived_day WHERE verified_at IS NOT NULL"
    with reading(engine) as connection:
        rows = connection.execute(text(statement)).all()
    return {_as_day(day): (version, time_of(at)) for day, version, at in rows}


def note_archived(engine: Engine, manifest: Manifest, verified_at: datetime | None = None) -> None:
    """Record the newest version of a day, and when its files were found to be intact."""
    with writing(engine) as connection:
        archived_at = datetime.fromisoformat(manifest.made_at)
        values = {
            "day": str(manifest.day),
            "version": manifest.version,
            "change_no": manifest.source.change_no,
            "archived_at": stored_time(connection, archived_at),
            "verified_at": verified_at and stored_time(connection, verified_at),
        }
        connection.execute(_RECORD, values)


def note_damaged(engine: Engine, day: date) -> None:
    """Record that a file of the newest version of a day is damaged."""
    with writing(engine) as connection:
        connection.execute(_DAMAGED, {"day": str(day)})


def sealed_versions(engine: Engine) -> set[tuple[date, int]]:
    """The versions that figures of sealed months were computed from."""
    with reading(engine) as connection:
        rows = connection.execute(text("SELECT day, version FROM sealed_version"))
        return {(_as_day(day), version) for day, version in rows}


def kept_back(engine: Engine, store: Store, before: date) -> dict[date, str]:
    """The days before a bound that a prune must keep, as the archive does not hold them yet.

    The value is the reason. Days before the horizon are not among them.
    """
    with reading(engine) as connection:
        changes = read_changes(connection)
    days, verified = changes.days_before(before), verified_versions(engine)
    archived = newest_of(store, days)
    reasons = {}
    for day in days:
        version = archived[day].version if day in archived else 0
        if not version:
            reasons[day] = "is not in the archive"
        elif not changes.is_in(archived[day]):
            reasons[day] = f"has changed since version {version}"
        elif day not in verified or verified[day][0] != version:
            reasons[day] = f"version {version} was not verified, or is damaged"
    return reasons


@contextmanager
def archive_lock(engine: Engine) -> Iterator[None]:
    """Keep other archivers of this database waiting during the block."""

    def waiting(_: str, by: str) -> None:
        logger.warning("another archiver is at work%s: waiting for it to end", by)

    locks = {"archive": "sam archive"}
    with one_at_a_time(engine, locks, "sam-db archive", "archive.lock", waiting):
        yield


def _as_day(value: object) -> date:
    return date.fromisoformat(str(value))
