"""Between two batches: about once a second, and never more than a tenth of the time.

What can't be done yet is tried again, more rarely; what one task did is news for the next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import pytest

from sam_pipeline.consumer.sinks.letter_log import EVERY_S, LetterLog
from sam_pipeline.consumer.sinks.upkeep import PeriodicTask, TurnResult, run_due
from sam_pipeline.sql.errors import DatabaseAway
from sam_pipeline.sql.loading.letters.quota import Sender
from sam_pipeline.sql.loading.letters.store import NewLetter

SOON_S = 30.0
AWAY = DatabaseAway("connection refused")
DONE, WAITING, NOTHING = TurnResult.DONE, TurnResult.WAITING, TurnResult.NOTHING


@pytest.mark.parametrize(
    ("result", "every_s", "takes_s", "step_s", "steps", "news_at", "calls"),
    [
        (DONE, 1.0, 0.0, 0.1, 25, range(25), [0, 10, 20]),
        (DONE, 1.0, 0.5, 1.0, 12, range(12), [0, 6]),  # slow work is done less often
        (NOTHING, 1.0, 0.0, 1.0, 10, [6], [0, 1, 6, 7]),  # without news the database is left alone
        (DONE, 1.0, 0.0, 1.0, 4, [], [0, 1, 2, 3]),  # remaining work is done without news
        (AWAY, 1.0, 0.0, 1.0, 2, range(2), [0, 1]),
        (WAITING, 10.0, 0.0, 1.0, 31, range(0, 31, 2), [0, 10, 20, 30]),
        (DONE, 10.0, 0.0, 1.0, 3, range(3), [0, 1, 2]),  # more work continues without delay
    ],
)
def test_the_turns_of_a_task(
    result: TurnResult | Exception,
    every_s: float,
    takes_s: float,
    step_s: float,
    steps: int,
    news_at: Iterable[int],
    calls: list[int],
) -> None:
    now, took_turns = [100.0], list[int]()

    def turn() -> TurnResult:
        took_turns.append(step)
        now[0] += takes_s
        if isinstance(result, Exception):
            raise result
        return result

    task = PeriodicTask(turn, every_s, lambda: now[0])
    for step in range(steps):
        now[0] = 100.0 + step * step_s
        run_due([task], step in news_at)

    assert took_turns == calls


def test_loading_goes_on_during_work_in_the_background_which_is_begun_only_once() -> None:
    may_end, calls = threading.Event(), list[bool]()

    def turn() -> TurnResult:
        calls.append(may_end.wait(SOON_S))
        return NOTHING

    task = PeriodicTask(turn, every_s=0.0, in_background=True)
    for _ in range(3):
        run_due([task], news=True)
    may_end.set()
    task.wait()

    assert calls == [True]


def test_the_work_of_one_task_is_news_for_the_next() -> None:
    results = {"first": [NOTHING, DONE], "second": [NOTHING] * 3}
    calls, now = list[tuple[str, float]](), [0.0]

    def task(name: str, every_s: float) -> PeriodicTask:
        def turn() -> TurnResult:
            calls.append((name, now[0]))
            return results[name].pop(0)

        return PeriodicTask(turn, every_s, lambda: now[0])

    tasks = [task("first", 10.0), task("second", 1.0)]
    for now[0] in (0, 1, 2, 10):
        run_due(tasks, news=False)

    assert calls == [("first", 0), ("second", 0), ("second", 1), ("first", 10), ("second", 10)]


URL = "stomp://msg.example.org:61613"
BROKEN = "class-broken"


class Scene:
    """A log, its clock, and the lines it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.now = 100.0
        self.log = LetterLog(lambda: self.now)
        self.caplog = caplog

    def lines(self, after_s: float = 0.0) -> list[str]:
        """The new lines, each with its level."""
        if after_s:
            self.now += after_s
            self.log.write_due()
        records = [*self.caplog.records]
        self.caplog.clear()
        return [f"{record.levelname} {record.getMessage()}" for record in records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(caplog)


def letter(
    number: int, reason: str = "not-text", name: str = "metricOutput", user: str = "probe"
) -> NewLetter:
    return NewLetter(reason, name, f"id-{number}", "what is wrong", Sender(URL, user))


def test_thousands_of_dead_letters_are_one_line_a_minute_with_their_number(scene: Scene) -> None:
    for number in range(3000):
        scene.log.add([letter(number)])
        scene.now += 0.01

    [first], [second], rest = scene.lines(), scene.lines(EVERY_S), scene.lines(EVERY_S)
    assert "1 new dead letter," in first
    assert "2999 new dead letters," in second and "id-1 " in second
    assert rest == []


def test_an_outage_of_a_class_is_an_error_when_it_begins_and_a_line_when_it_ends(
    scene: Scene,
) -> None:
    for number in range(500):
        scene.log.add([letter(number, BROKEN)])
    [error] = scene.lines()
    scene.now += 12

    scene.log.class_works("METRICOUTPUT")
    scene.log.class_works("metricOutput")

    [info] = scene.lines()
    assert error.startswith("ERROR class metricOutput is broken: what is wrong")
    assert info.startswith("INFO class metricOutput works again after 12 s; 500 messages")


def test_a_class_that_is_broken_and_works_in_turn_is_two_lines_a_minute(scene: Scene) -> None:
    """One sender can make a class look broken, with a record that breaks its function."""
    for number in range(100):
        scene.log.add([letter(number, BROKEN)])
        scene.log.class_works("metricOutput")
        scene.now += 1
        scene.log.write_due()

    assert [line.split()[0] for line in scene.lines()] == ["ERROR", "INFO"] * 2
