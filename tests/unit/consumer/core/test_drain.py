"""When a drain ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sam_pipeline.consumer.core.drain import Drain
from sam_pipeline.consumer.core.inbox import Inbox


class FakeSource:
    def __init__(self, name: str) -> None:
        self.name = name
        self.there = True

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        raise NotImplementedError

    def missing(self) -> Sequence[str]:
        return [] if self.there else [f"{self.name} (connection refused)"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """Two sources, a clock, and a drain of them with a timeout of 60 s."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.first, self.second = FakeSource("stomp://a:1"), FakeSource("stomp://b:1")
        self.drain = Drain([self.first, self.second], 60, self.clock)

    def continues_at(self, now: float, news: bool = False) -> bool:
        self.clock.now = now
        return self.drain.should_continue(news)


def test_a_drain_ends_after_two_seconds_without_news() -> None:
    scene = Scene()

    assert scene.continues_at(0)
    assert scene.continues_at(1, news=True)
    assert scene.continues_at(2.9)
    assert not scene.continues_at(3)
    assert scene.drain.unreached == []


def test_a_drain_waits_for_a_source_that_is_not_connected_yet() -> None:
    scene = Scene()
    scene.second.there = False

    assert scene.continues_at(0)
    assert scene.continues_at(59)


def test_the_quiet_time_restarts_when_the_last_source_connects() -> None:
    scene = Scene()
    scene.second.there = False
    assert scene.continues_at(30)

    scene.second.there = True

    assert scene.continues_at(31)
    assert scene.continues_at(32.9)
    assert not scene.continues_at(33)


def test_a_drain_gives_up_on_a_source_after_the_timeout_and_names_it() -> None:
    scene = Scene()
    scene.second.there = False
    assert scene.continues_at(59, news=True)

    ends = not scene.continues_at(61.1)

    assert ends
    assert scene.drain.unreached == ["stomp://b:1 (connection refused)"]


def test_the_others_are_loaded_before_a_drain_gives_up() -> None:
    scene = Scene()
    scene.second.there = False

    assert scene.continues_at(100, news=True)
    assert scene.continues_at(101)
    assert not scene.continues_at(102)


def test_a_source_that_is_lost_again_gets_the_full_timeout_again() -> None:
    scene = Scene()
    assert scene.continues_at(50, news=True)

    scene.first.there = False

    assert scene.continues_at(51)
    assert scene.continues_at(110.9)
    assert not scene.continues_at(111)
