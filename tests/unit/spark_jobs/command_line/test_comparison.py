"""What differs for sites between the published figures and those of another profile."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path

from sam_pipeline.spark_jobs.command_line.comparison import SiteComparison, compare
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.spark_jobs.runs.targets import PeriodTargets
from tests.support.reports.database import profile

DAYS = [date(2026, 10, day) for day in (1, 2)]


def day(number: int, site: str, ok_share: float) -> DayFigure:
    ok = int(DAY_S * ok_share)
    return DayFigure(DAYS[number - 1], (site,), Seconds(ok=ok, critical=DAY_S - ok))


def compared(
    directory: Path,
    before: list[DayFigure],
    after: list[DayFigure],
    targets_after: Targets | None = None,
) -> SiteComparison:
    """The only site of a comparison; the targets are 80 and 85."""
    old: Profile = profile(directory)
    new = replace(old, targets=targets_after or old.targets)
    [site] = compare(before, after, DAYS, PeriodTargets(old), PeriodTargets(new))
    return site


def test_a_site_with_the_same_figures_does_not_differ(tmp_path: Path) -> None:
    days = [day(1, "A", 1), day(2, "A", 0.5)]

    assert not compared(tmp_path, days, days).differs


def test_a_site_that_falls_below_a_target_newly_misses_it(tmp_path: Path) -> None:
    before = [day(1, "A", 1), day(2, "A", 1)]
    after = [day(1, "A", 1), day(2, "A", 0.5)]

    site = compared(tmp_path, before, after)

    assert site.days == [DAYS[1]]
    assert site.newly_misses
    assert not site.newly_meets
    assert site.after is not None
    assert site.after.availability == Fraction(75)


def test_lower_targets_are_newly_met_without_any_day_that_differs(tmp_path: Path) -> None:
    days = [day(1, "A", 0.5), day(2, "A", 0.5)]

    site = compared(tmp_path, days, days, Targets(Fraction(40), Fraction(40)))

    assert site.differs
    assert site.newly_meets
    assert site.days == []


def test_a_site_that_is_no_longer_expected_meets_nothing(tmp_path: Path) -> None:
    site = compared(tmp_path, [day(1, "A", 0.5)], [])

    assert site.after is None
    assert site.days == [DAYS[0]]
    assert not site.newly_meets


def test_only_the_days_that_are_compared_count(tmp_path: Path) -> None:
    old = PeriodTargets(profile(tmp_path))

    [site] = compare([day(1, "A", 1)], [day(1, "A", 1), day(2, "A", 0)], DAYS[:1], old, old)

    assert not site.differs
