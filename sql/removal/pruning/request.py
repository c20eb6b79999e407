"""The parameters of a prune, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Engine

DAY = timedelta(days=1)
RESTORABLE = timedelta(days=7)
"""How long a dead letter that was dropped can be restored, whatever the bounds."""


@dataclass(frozen=True)
class Bounds:
    """The first UTC day to keep of each kind of data; None keeps all days.

    `statements` applies to those that no longer hold, by the day on which they arrived; `audit` to
    the rows of `load_audit`, `dead_letters` to replayed dead letters and `dropped_letters` to
    dropped ones, by the day on which that happened.
    """

    results: date | None = None
    details: date | None = None
    statements: date | None = None
    audit: date | None = None
    dead_letters: date | None = None
    dropped_letters: date | None = None


@dataclass(frozen=True)
class PruneRequest:
    """What to prune and how; `on_progress` is called with a line of text after each step.

    On the `look_back` days before the horizon, the newest result of each instance is kept.
    """

    engine: Engine
    bounds: Bounds
    horizon: date | None
    look_back: int
    dry_run: bool
    on_progress: Callable[[str], None]
    sleep: Callable[[float], None]

    @property
    def first_thinned(self) -> date | None:
        """The first day on which the newest result of each instance is kept."""
        return self.horizon and self.horizon - self.look_back * DAY


@dataclass(frozen=True)
class Removed:
    """How much was or would be removed: rows, or partitions and their size (PostgreSQL)."""

    rows: int | None = None
    partitions: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Pruned:
    """What a prune did or would do.

    `left` names partitions that could not be emptied because they were locked, `not_dropped` empty
    ones that could not be dropped because the table was in use. The next prune retries both.
    """

    results: Removed
    details: Removed
    statements: Removed
    audit: Removed
    dead_letters: Removed
    left: Sequence[str] = ()
    not_dropped: Sequence[str] = ()


def bounds_of(
    today: date,
    keep_results: int | None = None,
    keep_details: int | None = None,
    keep_statements: int | None = None,
    keep_audit: int | None = None,
    keep_dead_letters: int | None = None,
) -> Bounds:
    """The bounds that keep today and a number of days before it; None keeps all days.

    Details are kept no longer than their results, and dropped dead letters at least as long as they
    can be restored.
    """
    ages = (keep_results, keep_details, keep_statements, keep_audit, keep_dead_letters)
    results, details, statements, audit, dead_letters = (
        None if age is None else today - age * DAY for age in ages
    )
    details = max(filter(None, (results, details)), default=None)
    dropped = dead_letters and min(dead_letters, today - RESTORABLE)
    return Bounds(results, details, statements, audit, dead_letters, dropped)
