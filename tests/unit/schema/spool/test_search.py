"""Messages in a directory queue by their ids."""

from __future__ import annotations

import time
from pathlib import Path

from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.schema.spool.search import elements_of
from tests.support.builders import metric_message


def test_elements_are_found_by_the_ids_of_their_messages_locked_or_not(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "q")
    first, second, third = metric_message(), metric_message(), metric_message()
    names = [queue.add(message) for message in (first, second, third)]
    queue.lock(names[1])

    found = list(elements_of(queue, {first.message_id, second.message_id}, 0))

    assert [element.message_id for element in found] == [first.message_id, second.message_id]
    assert [element.file for element in found] == [f"{queue.path}/{name}" for name in names[:2]]
    assert queue.count() == 3


def test_elements_that_are_older_than_the_message_are_not_read(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "q")
    message = metric_message()
    queue.add(message)

    assert len([*elements_of(queue, {message.message_id}, time.time() - 100)]) == 1
    assert [*elements_of(queue, {message.message_id}, time.time() + 100)] == []


def test_a_damaged_element_is_found_by_the_id_that_it_contains(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "q")
    stays, goes = queue.store(b'{"header": {"samMessageId": "id-1"'), queue.store(b"id-2 {")
    queue.lock(goes)
    queue.quarantine(goes, "not JSON")

    found = list(elements_of(queue, ["id-1", "id-2"], 0))

    assert [(element.message_id, element.is_damaged) for element in found] == [
        ("id-1", True),
        ("id-2", True),
    ]
    assert found[0].file.endswith(stays)
    assert found[1].reason == "not JSON"
    assert Path(found[1].file).is_file()


def test_the_id_of_a_foreign_message_is_the_one_it_has_for_the_reader_of_the_queue(
    tmp_path: Path,
) -> None:
    queue = DirectoryQueue(tmp_path / "q")
    queue.add(Message({}, b"a: b\nEOT\n"))
    wanted = Message({"messageClass": "diskUsage"}, b"a: b\nEOT\n").message_id

    stamped = Stamp({"messageClass": "diskUsage"}).stamped
    assert [element.message_id for element in elements_of(queue, {wanted}, 0, stamped)] == [wanted]
    assert [*elements_of(queue, {wanted}, 0)] == []


def test_a_queue_that_does_not_exist_has_no_elements(tmp_path: Path) -> None:
    assert [*elements_of(DirectoryQueue(tmp_path / "none"), {"a"}, 0)] == []
