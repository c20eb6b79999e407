"""The limits of a spool: they are never exceeded, and never refuse a message that fits."""

from __future__ import annotations

import fcntl
import json
import logging
import threading
from pathlib import Path

import pytest

from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool import bounded
from sam_pipeline.publisher.spool.bounded import BoundedSpool, CountFile
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message
from tests.support.publishing import ids, messages, spooled


def room_in(spool: DirectoryQueue, state: str | None = "state", **bounds: object) -> BoundedSpool:
    """The spool as seen by a process that has just started."""
    directory = spool.path.with_name(state) if state else None
    config = PublisherConfig(spool=spool.path, state=directory, **bounds)  # type: ignore[arg-type]
    return BoundedSpool(spool.path, config.spool_limits, config.shares_spool)


@pytest.fixture
def count_file(spool: DirectoryQueue) -> Path:
    """The count of a spool with one message."""
    room_in(spool).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    return file


@pytest.mark.parametrize("state", ["state", None])
def test_a_full_spool_refuses_with_its_counts(spool: DirectoryQueue, state: str | None) -> None:
    room = room_in(spool, state, spool_max_messages=2)
    first, second, third = messages(3)
    room.add(first)
    room.add(second)

    with pytest.raises(SpoolError, match=r"is full \(2 of 2 messages, \d+ of \d+ bytes\)") as full:
        room.add(third)

    assert third.message_id in str(full.value)
    assert full.value.exit_code == 74
    assert spooled() == ids([first, second])


def test_bytes_are_bounded_and_a_message_above_them_drops_nothing(spool: DirectoryQueue) -> None:
    message = metric_message()
    size = len(serialise(message))
    room_in(spool, spool_max_bytes=size * 2 - 1).add(message)

    with pytest.raises(SpoolError, match=f"of {size} bytes refused"):
        room_in(spool, spool_max_bytes=size * 2 - 1).add(message)
    room = room_in(spool, spool_max_bytes=size + 10, spool_when_full="drop-oldest")
    with pytest.raises(SpoolError, match="is full"):
        room.add(Message({}, b"x" * (size + 10)))
    assert spooled() == ids([message])


def test_the_oldest_are_dropped(spool: DirectoryQueue, caplog: pytest.LogCaptureFixture) -> None:
    room = room_in(spool, spool_max_messages=3, spool_when_full="drop-oldest")
    offered = messages(5)

    with caplog.at_level(logging.ERROR):
        stored = list(room.add_all(offered))

    assert stored == offered
    assert spooled() == ids(offered[2:])
    assert CountFile(spool.path, spool.path.with_name("state")).read().dropped == 2
    assert "its 1 oldest messages" in caplog.text
    assert "2 in total" in caplog.text


def test_an_element_that_is_locked_is_not_dropped(spool: DirectoryQueue) -> None:
    room = room_in(spool, spool_max_messages=2, spool_when_full="drop-oldest")
    room.add(metric_message())
    locked = next(spool.names())
    spool.lock(locked)

    for message in messages(3):
        room.add(message)

    assert next(spool.names()) == locked
    assert spool.count() == 2


def test_what_was_set_aside_counts_and_is_dropped_first(spool: DirectoryQueue) -> None:
    for number in (1, 2):
        name = spool.add(metric_message())
        spool.lock(name)
        spool.quarantine(name, f"reason {number}")
    kept = spool.read(spool.add(metric_message()))

    with pytest.raises(SpoolError, match=r"is full \(3 of 3 messages"):
        room_in(spool, "other", spool_max_messages=3).add(metric_message())
    room = room_in(spool, spool_max_messages=3, spool_when_full="drop-oldest")
    for message in (newer := messages(2)):
        room.add(message)

    assert list(spool.aside()) == []
    assert spooled() == ids([kept, *newer])


def test_the_next_process_continues_counting_without_reading_the_spool(
    spool: DirectoryQueue, count_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DirectoryQueue, "walk", lambda *_: pytest.fail("it counted again"))

    room_in(spool).add(metric_message())

    assert json.loads(count_file.read_bytes())["messages"] == 2


@pytest.mark.parametrize(
    "stored",
    [b"", b"{", b"[]", b'{"path": 1}', {"path": "/other"}, {"counted_at": 0}, {"counted_at": 9e9}],
    ids=str,
)
def test_a_count_that_is_damaged_or_of_another_spool_or_time_is_made_again(
    spool: DirectoryQueue, count_file: Path, stored: bytes | dict[str, object]
) -> None:
    count = json.loads(count_file.read_bytes()) | {"messages": 50}
    text = json.dumps(count | stored).encode() if isinstance(stored, dict) else stored
    count_file.write_bytes(text)

    room_in(spool).add(metric_message())

    assert json.loads(count_file.read_bytes())["messages"] == 2


def test_a_process_that_keeps_the_count_locked_is_waited_for_but_not_for_long(
    spool: DirectoryQueue, count_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(count_file) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        release = threading.Timer(0.2, fcntl.flock, (held, fcntl.LOCK_UN))
        release.start()
        room_in(spool).add(metric_message())
        assert json.loads(count_file.read_bytes())["messages"] == 2

        release.join()
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(bounded, "PATIENCE_S", 0.05)
        with pytest.raises(SpoolError, match="is full"):
            room_in(spool, spool_max_messages=2).add(metric_message())


def test_a_count_that_can_not_be_written_costs_a_count(spool: DirectoryQueue) -> None:
    victim = spool.path.with_name("victim")
    victim.write_text("precious")
    room_in(spool).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    file.unlink()
    file.symlink_to(victim)
    room = room_in(spool, spool_max_messages=2)

    room.add(metric_message())
    with pytest.raises(SpoolError, match="is full"):
        room.add(metric_message())

    assert (spool.count(), victim.read_text()) == (2, "precious")
