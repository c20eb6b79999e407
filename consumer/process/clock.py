"""Checks that the clock of the host is set, since results are compared with it."""

from __future__ import annotations

from datetime import UTC, datetime

from sam_pipeline.consumer.errors import ClockNotSet

NOT_BEFORE = datetime(2026, 11, 1, tzinfo=UTC)
"""The date of this program: a clock that shows an earlier time was never set."""


def require_set_clock(now: datetime) -> None:
    """With an unset clock every result would seem to be in the future and become a dead letter.

    Raises:
        ClockNotSet
    """
    if now < NOT_BEFORE:
        raise ClockNotSet(now)
