"""Times: the check for a clock that was never set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sam_pipeline.schema.errors import ClockNotSet
from sam_pipeline.schema.times import NOT_BEFORE, require_set_clock


def test_a_clock_before_the_build_of_the_program_is_refused() -> None:
    with pytest.raises(ClockNotSet, match=r"shows 1970-01-01T00:00:00Z.*NTP"):
        require_set_clock(datetime.fromtimestamp(0, UTC))


def test_any_later_time_is_accepted() -> None:
    require_set_clock(NOT_BEFORE)
    require_set_clock(NOT_BEFORE + timedelta(days=10_000))
