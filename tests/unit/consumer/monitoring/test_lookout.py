"""Up to when everything that was sent is known to have arrived."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring.lookout import CAUGHT_UP_AFTER, STALLED_AFTER, Lookout
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.silence.coverage import Coverage, Gap
from tests.support.consumer.doubles import FakeSource

START = datetime(2026, 11, 20, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Scene:
    """A daemon with two brokers, which looks every second."""

    def __init__(self) -> None:
        self.state = State(lambda: START)
        self.state.can_commit()
        self.inbox = Inbox(10)
        self.brokers = FakeSource("a"), FakeSource("b")
        self.lookout = Lookout(self.state, self.inbox, self.brokers, Coverage(START))
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


def test_a_backlog_is_seen_up_to_its_newest_message(scene: Scene) -> None:
    scene.commit("a", 1, sent=-3600)
    assert scene.look_until(2, a=100).until == START

    scene.commit("a", 8, sent=4)
    assert scene.look_until(8, a=50).until == at(4)

    assert scene.look_until(9 + CAUGHT_UP_AFTER.seconds).until == at(scene.now)


def test_the_broker_that_is_furthest_behind_counts_and_none_is_ahead_of_now(scene: Scene) -> None:
    scene.commit("a", 5, sent=99_999)
    assert scene.look_until(5, a=1).until == at(5)
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
    for observer, earlier in zip(observers, (Coverage(before), None), strict=True):
        observer.resume(earlier)
        observer.look()
        coverages.append(observer.snapshot().coverage)

    resumed, first = coverages
    assert resumed is not None and resumed.gaps[0].begin == before
    assert resumed.is_silent(before - hour, hour.total_seconds())
    assert not resumed.is_silent(before - hour, 600)
    assert first is not None and not first.is_silent(None, 1)
