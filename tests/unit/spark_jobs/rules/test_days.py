"""Days and periods."""

from __future__ import annotations

from datetime import date

from sam_pipeline.spark_jobs.rules.days import in_ranges


def november(*numbers: int) -> list[date]:
    return [date(2026, 11, number) for number in numbers]


def test_successive_days_are_printed_as_ranges() -> None:
    days = november(1, 2, 3, 5, 29, 30)

    assert in_ranges(days) == "2026-11-01 to 2026-11-03, 2026-11-05, 2026-11-29 to 2026-11-30"
    assert in_ranges([date(2026, 10, 31), date(2026, 11, 1)]) == "2026-10-31 to 2026-11-01"
    assert in_ranges([]) == ""
