"""Silence is judged only of times in which the daemon could see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sam_pipeline.consumer.silence.coverage import MAX_GAPS, Coverage, Gap, nothing_covered

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR_S = 3600.0


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


@pytest.mark.parametrize(("ago", "is_silent"), [(59, False), (60, False), (61, True)])
def test_silence_lasts_longer_than_its_limit(ago: float, is_silent: bool) -> None:
    assert Coverage(NOON).is_silent(NOON - minutes(ago), HOUR_S) is is_silent


def test_what_was_never_heard_of_is_silent_once_there_was_time_for_it() -> None:
    started = nothing_covered(NOON)

    assert not started.up_to(NOON + minutes(59)).is_silent(None, HOUR_S)
    assert started.up_to(NOON + minutes(61)).is_silent(None, HOUR_S)


def test_after_a_gap_silence_begins_again() -> None:
    down = Coverage(NOON).with_gap(Gap(NOON - minutes(20), NOON))
    long_ago = NOON - minutes(600)

    assert not down.up_to(NOON + minutes(30)).is_silent(long_ago, HOUR_S)
    assert down.up_to(NOON + minutes(61)).is_silent(long_ago, HOUR_S)


def test_a_gap_much_shorter_than_the_limit_does_not_matter() -> None:
    restarted = Coverage(NOON).with_gap(Gap(NOON - minutes(1), NOON))
    earlier = NOON - minutes(61)

    assert restarted.is_silent(earlier, HOUR_S)
    assert not restarted.is_silent(earlier, 300)


def test_the_coverage_never_goes_back() -> None:
    assert Coverage(NOON).up_to(NOON - minutes(5)).until == NOON


def test_gaps_are_forgotten_once_no_limit_is_affected() -> None:
    coverage = Coverage(NOON).with_gap(Gap(NOON - minutes(1), NOON))

    assert len(coverage.up_to(NOON + minutes(9)).gaps) == 1
    assert coverage.up_to(NOON + minutes(10)).gaps == ()
    assert nothing_covered(NOON).up_to(NOON + timedelta(days=9)).gaps == ()


def test_the_number_of_gaps_is_limited_and_none_is_lost() -> None:
    coverage = nothing_covered(NOON)
    for number in range(3 * MAX_GAPS):
        end = NOON + minutes(number + 1)
        coverage = Coverage(end, coverage.gaps).with_gap(Gap(end - minutes(0.5), end))

    assert len(coverage.gaps) == MAX_GAPS
    assert coverage.gaps[0].begin.year == 1970
