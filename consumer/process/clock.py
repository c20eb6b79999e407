"""The host's clock: results are judged by it, so it must have been set."""

from __future__ import annotations

from datetime import UTC, datetime

from sam_pipeline.consumer.errors import ClockNotSet

NOT_BEFORE = datetime(2026, 11, 1, tzinfo=UTC)
"""When this was made: a clock that shows an earlier time was never set."""


def require_set_clock(now: datetime) -> None:
    """With an unset clock every result would be one from the future, and a dead letter.

    Raises:
        ClockNotSet: it must be set first.
    """
    if now < NOT_BEFORE:
        raise ClockNotSet(now)
