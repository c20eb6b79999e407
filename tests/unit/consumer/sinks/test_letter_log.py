"""Lines about dead letters: the first at once, then a number a minute; outages of a class."""

from __future__ import annotations

import logging

import pytest

from sam_pipeline.consumer.sinks.letter_log import EVERY_S, LetterLog
from sam_pipeline.schema.messages.origin import Origin
from sam_pipeline.schema.program.log_output import FIELDS
from sam_pipeline.sql.loading.letters.quota import Sender
from sam_pipeline.sql.loading.letters.store import NewLetter

URL = "stomp://msg.example.org:61613"


class Scene:
    """A log, its clock, and the lines it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.now = 100.0
        self.log = LetterLog(lambda: self.now)
        self._caplog = caplog

    def lines(self) -> list[str]:
        """The new lines, each with its level."""
        records = [*self._caplog.records]
        self._caplog.clear()
        return [f"{record.levelname} {record.getMessage()}" for record in records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(caplog)


def letter(
    number: int, reason: str = "not-text", name: str = "metricOutput", user: str = "probe"
) -> NewLetter:
    return NewLetter(reason, name, f"id-{number}", "what is wrong", Sender(URL, user))


def test_the_first_dead_letters_of_a_reason_are_logged_at_once(scene: Scene) -> None:
    scene.log.add([letter(1), letter(2), letter(3, "too-old")])

    first, second = scene.lines()
    assert first.startswith("WARNING 2 new dead letters, not-text: class metricOutput")
    assert f"from {URL} as probe" in first
    assert "id-1 (what is wrong)" in first
    assert "--reason not-text" in first
    assert "too-old" in second


def test_thousands_of_dead_letters_are_one_line_a_minute_with_their_number(scene: Scene) -> None:
    for number in range(3000):
        scene.log.add([letter(number)])
        scene.now += 0.01

    [first] = scene.lines()
    assert "1 new dead letter," in first
    scene.now += EVERY_S
    scene.log.write_due()
    [second] = scene.lines()
    assert "2999 new dead letters," in second
    assert "id-1 " in second
    scene.now += EVERY_S
    scene.log.write_due()
    assert scene.lines() == []


def test_the_end_of_the_process_does_not_wait_for_the_minute(scene: Scene) -> None:
    scene.log.add([letter(1)])
    scene.log.add([letter(2, user="other")])
    scene.lines()

    scene.log.write_due(everything=True)

    [line] = scene.lines()
    assert "id-2" in line


def test_letters_of_different_senders_or_classes_are_marked(scene: Scene) -> None:
    scene.log.add([letter(1), letter(2, user="other")])
    scene.log.add([letter(3, "too-old"), letter(4, "too-old", name="downtime")])

    assert all("and others" in line for line in scene.lines())


def test_a_line_has_broker_message_and_class_as_fields(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.log.add([letter(1)])

    [record] = caplog.records
    fields = vars(record)
    names = ("broker", "message_id", "message_class")
    assert [fields[name] for name in names] == [URL, "id-1", "metricOutput"]


def test_a_line_names_the_identity_the_claimed_origin_and_the_way_of_the_message(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    origin = Origin("wn17.example.org", "sam-publish/0.1.0 result", "nagios")
    scene.log.add([letter(1)._replace(identity="key:nagios1", origin=origin)])

    [record] = caplog.records
    sender = f"from key:nagios1, nagios@wn17.example.org (claimed) via {URL} as probe,"
    assert sender in record.getMessage()
    fields = vars(record)
    names = ("login", "publisher", "claimed_host", "claimed_program", "claimed_user")
    assert [fields[name] for name in names] == ["probe", "key:nagios1", *origin]
    assert {*names} <= {*FIELDS}


def test_an_outage_of_a_class_is_an_error_when_it_begins_and_a_line_when_it_ends(
    scene: Scene,
) -> None:
    for number in range(500):
        scene.log.add([letter(number, "class-broken")])
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
        scene.log.add([letter(number, "class-broken")])
        scene.log.class_works("metricOutput")
        scene.now += 1
        scene.log.write_due()

    assert [line.split()[0] for line in scene.lines()] == ["ERROR", "INFO"] * 2


def test_an_outage_that_began_again_is_logged_when_the_minute_is_over(scene: Scene) -> None:
    scene.log.add([letter(1, "class-broken")])
    scene.log.class_works("metricOutput")
    scene.log.add([letter(2, "class-broken")])
    scene.lines()

    scene.now += EVERY_S
    scene.log.write_due()

    assert [line.split()[0] for line in scene.lines()] == ["ERROR"]
