"""Silence, and up to when everything that was sent is known to have arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.silence import MAX_GAPS, Coverage, Gap, nothing_covered, silences
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring.observer import (
    CAUGHT_UP_AFTER,
    STALLED_AFTER,
    Lookout,
    Observer,
)
from sam_pipeline.consumer.settings.tables import SilenceConfig
from tests.support.consumer.doubles import FakeSource
from tests.support.consumer.snapshot import snapshot

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR_S = 3600.0


def noon(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def after_gap(minutes: float) -> Coverage:
    return Coverage(NOON).with_gap(Gap(noon(-minutes), NOON))


@pytest.mark.parametrize(
    ("coverage", "last", "limit_s", "is_silent"),
    [
        (Coverage(NOON), noon(-60), HOUR_S, False),
        (Coverage(NOON), noon(-61), HOUR_S, True),
        (nothing_covered(NOON).up_to(noon(59)), None, HOUR_S, False),  # never heard of
        (nothing_covered(NOON).up_to(noon(61)), None, HOUR_S, True),
        (after_gap(20).up_to(noon(30)), noon(-600), HOUR_S, False),
        (after_gap(20).up_to(noon(61)), noon(-600), HOUR_S, True),
        (after_gap(1), noon(-61), HOUR_S, True),  # a gap that is short
        (after_gap(1), noon(-61), 300, False),  # but not for a short limit
    ],
)
def test_silence_is_judged_only_of_covered_time(
    coverage: Coverage, last: datetime | None, limit_s: float, is_silent: bool
) -> None:
    assert coverage.is_silent(last, limit_s) is is_silent


def test_the_coverage_never_goes_back_and_forgets_gaps_that_affect_no_limit() -> None:
    coverage = after_gap(1)

    assert Coverage(NOON).up_to(noon(-5)).until == NOON
    assert [len(coverage.up_to(noon(minutes)).gaps) for minutes in (9, 10)] == [1, 0]


def test_the_number_of_gaps_is_limited_and_none_is_lost() -> None:
    coverage = nothing_covered(NOON)
    for number in range(3 * MAX_GAPS):
        end = noon(number + 1)
        coverage = Coverage(end, coverage.gaps).with_gap(Gap(noon(number + 0.5), end))

    assert len(coverage.gaps) == MAX_GAPS
    assert coverage.gaps[0].begin.year == 1970


CERN, ANY_SITE = SilenceConfig(after_s=600, site="CERN-*"), SilenceConfig(after_s=3600, site="*")
SITES = {"CERN-A": noon(-20), "B": noon(-20), "C": noon(-90)}
METRICS = SilenceConfig(after_s=600, message_class="METRICOUTPUT")


@pytest.mark.parametrize(
    ("rules", "classes", "sites", "silent"),
    [
        ((CERN, ANY_SITE), {}, SITES, [("site", "CERN-A"), ("site", "C")]),
        ((ANY_SITE, CERN), {}, SITES, [("site", "C")]),
        ((SilenceConfig(after_s=600, message_class="downtime"),), {}, {}, [("class", "downtime")]),
        ((SilenceConfig(after_s=600, message_class="*"),), {}, {}, []),
        ((METRICS,), {"metricOutput": noon(-5)}, {}, []),
        ((METRICS,), {"metricOutput": noon(-20)}, {}, [("class", "metricOutput")]),
        ((SilenceConfig(after_s=600, site="a"),), {}, {"A": noon(-5)}, [("site", "a")]),
        ((), {"metricOutput": noon(-90)}, {"A": None}, []),
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


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


class Scene:
    """A daemon with two brokers, which looks every second."""

    def __init__(self) -> None:
        self.state = State(lambda: NOON)
        self.state.can_commit()
        self.inbox = Inbox(10)
        self.brokers = FakeSource("a"), FakeSource("b")
        self.lookout = Lookout(self.state, self.inbox, self.brokers, Coverage(NOON))
        self.now = 0

    def look_until(self, second: int, **held: int) -> Coverage:
        while self.now < second:
            self.now += 1
            self.lookout.look(at(self.now), Counter(held))
        assert self.state.coverage is not None
        return self.state.coverage

    def commit(self, broker: str, second: float, sent: float) -> None:
        self.state.newest[broker] = at(second), at(sent)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_idle_daemon_has_seen_everything_and_a_paused_broker_has_more(scene: Scene) -> None:
    assert scene.look_until(5) == Coverage(at(5))
    scene.commit("a", 6, sent=6)
    scene.inbox.pause("a", 1000)

    assert scene.look_until(60).until == at(6)


def test_a_backlog_is_seen_up_to_its_newest_message_and_never_ahead_of_now(scene: Scene) -> None:
    scene.commit("a", 1, sent=-3600)
    assert scene.look_until(2, a=100).until == NOON
    scene.commit("a", 8, sent=4)
    assert scene.look_until(8, a=50).until == at(4)
    assert scene.look_until(9 + CAUGHT_UP_AFTER.seconds).until == at(scene.now)
    scene.commit("a", scene.now, sent=99_999)
    assert scene.look_until(scene.now + 1, a=1).until == at(scene.now)


def test_the_broker_that_is_furthest_behind_counts(scene: Scene) -> None:
    scene.commit("a", 9, sent=9)
    scene.commit("b", 9, sent=7)

    assert scene.look_until(9, a=1, b=1).until == at(7)


@pytest.mark.parametrize("away", ["broker", "database"])
def test_while_a_broker_or_the_database_is_away_nothing_is_seen(scene: Scene, away: str) -> None:
    scene.look_until(10)
    scene.brokers[1].problems = ["b (connection refused)"] if away == "broker" else []
    if away == "database":
        scene.state.cannot_commit("connection refused")
    assert scene.look_until(20).until == at(10)

    scene.brokers[1].problems = []
    scene.state.can_commit()

    assert scene.look_until(21) == Coverage(at(21), (Gap(at(10), at(21)),))


def test_a_process_that_was_suspended_has_seen_nothing_meanwhile(scene: Scene) -> None:
    scene.look_until(10)
    scene.now += STALLED_AFTER.seconds + 5

    assert scene.look_until(scene.now + 1).gaps == (Gap(at(10), at(scene.now)),)


def test_a_restart_continues_the_coverage_with_a_gap() -> None:
    state, hour = State(), timedelta(hours=1)
    state.can_commit()
    before = datetime.now(UTC) - timedelta(minutes=2)
    observers = [Observer("site-a", state, Inbox(1), [], {}) for _ in range(2)]
    coverages = []
    for observer, previous in zip(
        observers, (snapshot(coverage=Coverage(before)), None), strict=True
    ):
        observer.resume(previous)
        observer.look()
        coverages.append(observer.snapshot().coverage)

    resumed, first = coverages
    assert resumed is not None and resumed.gaps[0].begin == before
    assert resumed.is_silent(before - hour, hour.total_seconds())
    assert not resumed.is_silent(before - hour, 600)
    assert first is not None and not first.is_silent(None, 1)
