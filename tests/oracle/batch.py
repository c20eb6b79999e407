"""Many worlds in one report, each with names of its own, and the oracle's facts about each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations_with_replacement
from typing import Any, TypeVar

from tests.oracle.oracle import DayReport, Segment, day_report, groups_over, trend
from tests.worlds.drawn import drawn, worlds
from tests.worlds.drawn_setting import Setting, all_settings
from tests.worlds.model import (
    Downtime,
    Endpoint,
    Exclusion,
    Profile,
    Result,
    SiteGroup,
    Threshold,
    World,
    midnight,
)

LEVELS = ("metrics", "endpoints", "services", "functions", "sites")
FIGURE_LEVELS = LEVELS[1:]

Facts = dict[tuple[str, ...], object]
"""A report on a world: (kind, level, report, day, names …) to a timeline, figures or a trend."""

Row = TypeVar("Row", Endpoint, SiteGroup, Downtime, Result, Exclusion)


@dataclass(frozen=True)
class Batch:
    """The worlds of one report; they are named w000, w001 … in order."""

    setting: Setting
    worlds: Sequence[World]

    @property
    def named(self) -> dict[str, World]:
        """The worlds by name, with names of their own inside."""
        return {name: named(world, name) for name, world in self._by_name()}

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of the setting; a rule on a host is repeated for that host of each world."""
        return tuple(
            replace(profile, thresholds=tuple(self._everywhere(profile.thresholds)))
            for profile in self.setting.profiles
        )

    def oracle_facts(self) -> dict[str, Facts]:
        """The oracle's facts by the names of the worlds."""
        profiles = self.profiles
        return {name: _facts(self.setting, profiles, world) for name, world in self.named.items()}

    def _everywhere(self, thresholds: Iterable[Threshold]) -> Iterator[Threshold]:
        for rule in thresholds:
            for name, _ in self._by_name() if rule.host else [("", None)]:
                yield replace(rule, host=rule.host and f"{rule.host}.{name}")

    def _by_name(self) -> list[tuple[str, World]]:
        return [(f"w{number:03}", world) for number, world in enumerate(self.worlds)]


def drawn_batch(seed: int, number: int, size: int) -> Batch:
    """A batch of a seed; its setting is the last of three, because the first ones are simple."""
    own_seed = 10_000 * seed + number
    setting = drawn(all_settings(), 3, own_seed)[-1]
    return Batch(setting, drawn(worlds(setting), size, own_seed))


def named(world: World, name: str) -> World:
    """The world with names of its own: sites and groups such as `w001-A`, hosts `h1.w001`."""
    of_sites, of_hosts = ("site", "grid_site", "group_name"), ("host", "monitoring_host")

    def renamed(row: Row) -> Row:
        changes: dict[str, Any] = {
            **{field: f"{name}-{old}" for field in of_sites if (old := getattr(row, field, ""))},
            **{field: f"{old}.{name}" for field in of_hosts if (old := getattr(row, field, ""))},
        }
        return replace(row, **changes)

    kinds = ("endpoints", "site_groups", "downtimes", "results", "exclusions")
    rows: dict[str, Any] = {kind: tuple(map(renamed, getattr(world, kind))) for kind in kinds}
    return replace(world, **rows)


def spans(timeline: Sequence[Segment], start: datetime) -> tuple[tuple[int, int, str], ...]:
    """The timeline as (start, end, status), in seconds after the report's first midnight."""
    second = timedelta(seconds=1)
    return tuple(
        ((segment.start - start) // second, (segment.end - start) // second, segment.status)
        for segment in timeline
    )


def _facts(setting: Setting, profiles: Iterable[Profile], world: World) -> Facts:
    facts: Facts = {}
    shared = replace(world, exclusions=(*world.exclusions, *setting.exclusions))
    for profile in profiles:
        reports = []
        for day in setting.days:
            is_open = setting.until < midnight(day) + timedelta(days=1)
            reports.append(day_report(shared, profile, day, setting.until if is_open else None))
            facts |= _of_a_day(reports[-1], profile.name, midnight(setting.first_day))
        facts |= _of_several_days(reports, profile.name)
    return facts


def _of_several_days(reports: Sequence[DayReport], name: str) -> Facts:
    """The groups over the months, and over every range of days."""
    facts: Facts = {}
    for first, last in combinations_with_replacement(range(len(reports)), 2):
        of = ("groups", name, str(reports[first].day), str(reports[last].day))
        for group, means in groups_over(reports[first : last + 1]).items():
            facts[*of, *group] = means
    for month in {report.day.replace(day=1) for report in reports}:
        of_month = [report for report in reports if report.day.replace(day=1) == month]
        for group, means in groups_over(of_month).items():
            facts["group month", name, str(month), *group] = means
    return facts


def _of_a_day(report: DayReport, name: str, start: datetime) -> Facts:
    facts: Facts = {}
    of = (name, str(report.day))
    for level in LEVELS:
        for key, timeline in report.timelines(level).items():
            facts["timeline", level, *of, *key] = spans(timeline, start)
            facts["trend", level, *of, *key] = trend(timeline)
    for level in FIGURE_LEVELS:
        for key, figures in report.figures(level).items():
            percentages = (figures.availability, figures.reliability)
            facts["figures", level, *of, *key] = (figures.seconds, *percentages)
    for group, means in report.groups.items():
        facts["group", *of, *group] = means
    return facts
