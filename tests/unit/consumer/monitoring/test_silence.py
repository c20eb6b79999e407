"""Silence: judged only of times in which the daemon could see, and by the first rule that fits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from sam_pipeline.consumer.settings.silence_config import SilenceConfig, silence_problems
from sam_pipeline.consumer.silence.coverage import MAX_GAPS, Coverage, Gap, nothing_covered
from sam_pipeline.consumer.silence.silences import silences

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR_S = 3600.0


def noon(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def after_gap(minutes: float) -> Coverage:
    return Coverage(NOON).with_gap(Gap(noon(-minutes), NOON))


@pytest.mark.parametrize(
    ("coverage", "last", "limit_s", "is_silent"),
    [
        (Coverage(NOON), noon(-59), HOUR_S, False),
        (Coverage(NOON), noon(-60), HOUR_S, False),
        (Coverage(NOON), noon(-61), HOUR_S, True),
        (nothing_covered(NOON).up_to(noon(59)), None, HOUR_S, False),
        (nothing_covered(NOON).up_to(noon(61)), None, HOUR_S, True),
        (after_gap(20).up_to(noon(30)), noon(-600), HOUR_S, False),
        (after_gap(20).up_to(noon(61)), noon(-600), HOUR_S, True),
        (after_gap(1), noon(-61), HOUR_S, True),
        (after_gap(1), noon(-61), 300, False),
    ],
    ids=[
        *("59 minutes", "60 minutes", "61 minutes", "never heard of", "after time for it"),
        *("after a gap", "after a gap and an hour", "a gap that is short", "for a short limit"),
    ],
)
def test_silence_is_judged_only_of_covered_time(
    coverage: Coverage, last: datetime | None, limit_s: float, is_silent: bool
) -> None:
    assert coverage.is_silent(last, limit_s) is is_silent


def test_the_coverage_never_goes_back_and_forgets_gaps_that_affect_no_limit() -> None:
    coverage = after_gap(1)

    assert Coverage(NOON).up_to(noon(-5)).until == NOON
    assert len(coverage.up_to(noon(9)).gaps) == 1
    assert coverage.up_to(noon(10)).gaps == ()
    assert nothing_covered(NOON).up_to(NOON + timedelta(days=9)).gaps == ()


def test_the_number_of_gaps_is_limited_and_none_is_lost() -> None:
    coverage = nothing_covered(NOON)
    for number in range(3 * MAX_GAPS):
        end = noon(number + 1)
        coverage = Coverage(end, coverage.gaps).with_gap(Gap(noon(number + 0.5), end))

    assert len(coverage.gaps) == MAX_GAPS
    assert coverage.gaps[0].begin.year == 1970


CERN, ANY_SITE = SilenceConfig(10, site="CERN-*"), SilenceConfig(60, site="*")
SITES = {"CERN-A": noon(-20), "B": noon(-20), "C": noon(-90)}
METRICS = SilenceConfig(10, message_class="METRICOUTPUT")


@pytest.mark.parametrize(
    ("rules", "classes", "sites", "silent"),
    [
        ((CERN, ANY_SITE), {}, SITES, [("site", "CERN-A"), ("site", "C")]),
        ((ANY_SITE, CERN), {}, SITES, [("site", "C")]),
        ((SilenceConfig(10, message_class="downtime"),), {}, {}, [("class", "downtime")]),
        ((SilenceConfig(10, message_class="*"),), {}, {}, []),
        ((METRICS,), {"metricOutput": noon(-5)}, {}, []),
        ((METRICS,), {"metricOutput": noon(-20)}, {}, [("class", "metricOutput")]),
        ((SilenceConfig(10, site="a"),), {}, {"A": noon(-5)}, [("site", "a")]),
        ((), {"metricOutput": noon(-90)}, {"A": None}, []),
    ],
    ids=[
        *("the first rule applies", "in another order", "a class that never arrived", "any class"),
        *("classes ignore case", "by its own name", "sites do not", "no rule"),
    ],
)
def test_the_first_rule_that_matches_a_class_or_site_applies(
    rules: tuple[SilenceConfig, ...],
    classes: Mapping[str, datetime],
    sites: Mapping[str, datetime | None],
    silent: list[tuple[str, str]],
) -> None:
    found = silences(rules, classes, sites, Coverage(NOON))

    assert [(silence.kind, silence.name) for silence in found] == silent


def test_a_rule_is_about_classes_or_about_sites() -> None:
    rules = SilenceConfig(1, "a"), SilenceConfig(1, "a", "b"), SilenceConfig(1)

    second, third = silence_problems(rules)

    assert "2" in second and "3" in third
