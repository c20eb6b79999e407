"""The words of pruning: what is to go, and what went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Engine

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Bounds:
    """The first days of which all is kept; None: of every day.

    `audit`: what batches left in `load_audit`; `dead_letters`: those settled since.
    """

    results: date | None = None
    details: date | None = None
    audit: date | None = None
    dead_letters: date | None = None


@dataclass(frozen=True)
class Task:
    """What to prune, where, and how: `told` hears how far it is, `sleep` gives way to others."""

    engine: Engine
    bounds: Bounds
    horizon: date | None
    dry_run: bool
    told: Callable[[str], None]
    sleep: Callable[[float], None]

    @property
    def last_pruned(self) -> date | None:
        """The day to leave the newest results of, if it is among those to be pruned.

        It is not if an earlier prune has gone further: then they stay before its horizon.
        """
        horizon = self.horizon
        return horizon - DAY if horizon and horizon == self.bounds.results else None


@dataclass(frozen=True)
class Removed:
    """What went, or would go: rows, or what was in partitions (results on PostgreSQL)."""

    rows: int | None = None
    partitions: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Pruned:
    """What a prune did, or would do.

    `left` names the partitions that others held too long to be emptied, `not_dropped` those that
    are empty and could not be dropped for the same reason: both are for the next prune.
    """

    results: Removed
    details: Removed
    audit: Removed
    dead_letters: Removed
    left: Sequence[str] = ()
    not_dropped: Sequence[str] = ()


def bounds_of(
    today: date,
    keep_results: int | None = None,
    keep_details: int | None = None,
    keep_audit: int | None = None,
    keep_dead_letters: int | None = None,
) -> Bounds:
    """The bounds for so many days before today; None: no age was given.

    Details go with their results at the latest.
    """
    kept = (keep_results, keep_details, keep_audit, keep_dead_letters)
    results, details, audit, dead_letters = (
        None if days is None else today - days * DAY for days in kept
    )
    details = max(filter(None, (results, details)), default=None)
    return Bounds(results, details, audit, dead_letters)
