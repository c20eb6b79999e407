"""Between two batches: about once a second, and never more than a tenth of the time.

What can't be done yet is tried again, more rarely; what one task did is news for the next.
"""

from __future__ import annotations

import threading

from sam_pipeline.consumer.sinks.upkeep import PeriodicTask, TurnResult, run_due
from sam_pipeline.sql.errors import DatabaseAway

SOON_S = 10.0


class Scene:
    """A clock that stands, and work that takes `takes_s` of it."""

    def __init__(self, takes_s: float = 0.0, every_s: float = 1.0) -> None:
        self.now = 100.0
        self.takes_s = takes_s
        self.calls: list[float] = []
        self.result = TurnResult.DONE
        self.failure: Exception | None = None
        self.task = PeriodicTask(self._take_turn, every_s, lambda: self.now)

    def at(self, now: float, news: bool = True) -> None:
        self.now = now
        run_due([self.task], news)

    def _take_turn(self) -> TurnResult:
        self.calls.append(self.now)
        self.now += self.takes_s
        if self.failure:
            raise self.failure
        return self.result


def test_upkeep_runs_at_first_and_then_once_a_second() -> None:
    scene = Scene()

    for tenths in range(25):
        scene.at(100 + tenths / 10)

    assert scene.calls == [100.0, 101.0, 102.0]


def test_slow_work_is_done_less_often() -> None:
    scene = Scene(takes_s=0.5)

    for second in range(12):
        scene.at(100.0 + second)

    assert scene.calls == [100.0, 106.0]


def test_while_nothing_is_loaded_the_database_is_left_alone() -> None:
    scene = Scene()
    scene.result = TurnResult.NOTHING

    for second in range(10):
        scene.at(100.0 + second, news=second == 6)

    assert scene.calls == [100.0, 101.0, 106.0, 107.0]


def test_remaining_work_is_done_without_news() -> None:
    scene = Scene()

    for second in range(4):
        scene.at(100.0 + second, news=False)

    assert len(scene.calls) == 4


def test_an_unavailable_database_stops_nothing() -> None:
    scene = Scene()
    scene.failure = DatabaseAway("connection refused")

    scene.at(100.0)
    scene.at(101.0)

    assert scene.calls == [100.0, 101.0]


def test_loading_goes_on_during_work_in_the_background_which_is_begun_only_once() -> None:
    may_end = threading.Event()
    calls: list[bool] = []

    def turn() -> TurnResult:
        calls.append(may_end.wait(SOON_S))
        return TurnResult.NOTHING

    task = PeriodicTask(turn, every_s=0.0, in_background=True)

    for _ in range(3):
        run_due([task], news=True)
    may_end.set()
    task.wait()

    assert calls == [True]


def test_postponed_work_is_retried_at_its_own_interval_with_or_without_news() -> None:
    scene = Scene(every_s=10.0)
    scene.result = TurnResult.WAITING

    for second in range(31):
        scene.at(100.0 + second, news=second % 2 == 0)

    assert scene.calls == [100.0, 110.0, 120.0, 130.0]


def test_a_rare_task_with_more_work_continues_without_delay() -> None:
    scene = Scene(every_s=10.0)

    for second in range(3):
        scene.at(100.0 + second)

    assert scene.calls == [100.0, 101.0, 102.0]


def test_the_work_of_one_task_is_news_for_the_next() -> None:
    results = {
        "first": [TurnResult.NOTHING, TurnResult.DONE],
        "second": [TurnResult.NOTHING] * 3,
    }
    calls: list[str] = []
    now = [0.0]

    def task(name: str, every_s: float) -> PeriodicTask:
        def turn() -> TurnResult:
            calls.append(f"{name} at {now[0]:g}")
            return results[name].pop(0)

        return PeriodicTask(turn, every_s, lambda: now[0])

    tasks = [task("first", 10.0), task("second", 1.0)]

    for now[0] in (0.0, 1.0, 2.0, 10.0):
        run_due(tasks, news=False)

    assert calls == [
        *("first at 0", "second at 0", "second at 1"),
        *("first at 10", "second at 10"),
    ]
