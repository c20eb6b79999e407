"""Lines about dead letters: the first at once, then a number a minute; outages of a class."""

from __future__ import annotations

import logging

import pytest

from sam_pipeline.consumer.sinks.letter_log import EVERY_S, LetterLog
from sam_pipeline.sql.loading.letters.quota import Sender
from sam_pipeline.sql.loading.letters.store import NewLetter

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
