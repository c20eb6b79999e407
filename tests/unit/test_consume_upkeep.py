"""Between two batches: about once a second, and never more than a tenth of the time."""

from __future__ import annotations

from consumer.upkeep import Upkeep
from sql.errors import DatabaseAway


class Scene:
    """A clock that stands, and work that takes `takes_s` of it."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.now = 100.0
        self.takes_s = takes_s
        self.calls: list[float] = []
        self.done = 1
        self.failure: Exception | None = None
        self.upkeep = Upkeep(self._fold, lambda: self.now)

    def at(self, now: float, news: bool = True) -> None:
        self.now = now
        self.upkeep(news)

    def _fold(self) -> int:
        self.calls.append(self.now)
        self.now += self.takes_s
        if self.failure:
            raise self.failure
        return self.done


def test_it_is_done_at_first_and_then_once_a_second() -> None:
    scene = Scene()

    for tenths in range(25):
        scene.at(100 + tenths / 10)

    assert scene.calls == [100.0, 101.0, 102.0]


def test_work_that_takes_long_is_done_more_rarely() -> None:
    scene = Scene(takes_s=0.5)

    for second in range(12):
        scene.at(100.0 + second)

    assert scene.calls == [100.0, 106.0]


def test_while_nothing_is_loaded_the_database_is_left_alone() -> None:
    scene = Scene()
    scene.done = 0

    for second in range(10):
        scene.at(100.0 + second, news=second == 6)

    assert scene.calls == [100.0, 101.0, 106.0, 107.0]


def test_what_is_left_is_done_without_news() -> None:
    scene = Scene()

    for second in range(4):
        scene.at(100.0 + second, news=False)

    assert len(scene.calls) == 4


def test_a_database_that_is_away_stops_nothing() -> None:
    scene = Scene()
    scene.failure = DatabaseAway("connection refused")

    scene.at(100.0)
    scene.at(101.0)

    assert scene.calls == [100.0, 101.0]
