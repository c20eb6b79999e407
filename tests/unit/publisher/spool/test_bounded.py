"""The limits of a spool: they are never exceeded, and never refuse a message that fits."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from pathlib import Path

import pytest

from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.spool import count as spool_count
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.publisher.spool.count import CountFile
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


def room_in(spool: DirectoryQueue, state: str | None = "state", **bounds: object) -> BoundedSpool:
    """The spool as seen by a process that has just started."""
    directory = spool.path.with_name(state) if state else None
    config = PublisherConfig(spool=spool.path, state=directory, **bounds)  # type: ignore[arg-type]
    return BoundedSpool(spool.path, config, config.shares_spool)


def ids(spool: DirectoryQueue) -> list[str]:
    return [spool.read(name).message_id for name in spool.names()]


def messages(count: int) -> list[Message]:
    return [metric_message() for _ in range(count)]


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
    assert ids(spool) == [first.message_id, second.message_id]


def test_a_spool_is_bounded_by_its_bytes_too(spool: DirectoryQueue) -> None:
    message = metric_message()
    size = len(serialise(message))
    room = room_in(spool, spool_max_bytes=size * 2 - 1)
    room.add(message)

    with pytest.raises(SpoolError, match=f"of {size} bytes refused"):
        room.add(message)


def test_as_many_messages_as_fit_are_stored(spool: DirectoryQueue) -> None:
    room = room_in(spool, spool_max_messages=120)
    offered, stored = messages(130), []

    with pytest.raises(SpoolError, match="is full"):
        for message in room.add_all(offered):
            stored.append(message)

    assert stored == offered[:120]
    assert ids(spool) == [message.message_id for message in offered[:120]]


def test_with_drop_oldest_the_newest_stay_and_the_dropped_are_counted_and_logged(
    spool: DirectoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    room = room_in(spool, spool_max_messages=3, spool_when_full="drop-oldest")
    offered = messages(5)

    with caplog.at_level(logging.ERROR):
        stored = list(room.add_all(offered))

    assert stored == offered
    assert ids(spool) == [message.message_id for message in offered[2:]]
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
    assert ids(spool) == [message.message_id for message in (kept, *newer)]


def test_a_message_above_the_bound_drops_nothing(spool: DirectoryQueue) -> None:
    small = metric_message()
    bound = len(serialise(small)) + 10
    room = room_in(spool, spool_max_bytes=bound, spool_when_full="drop-oldest")
    room.add(small)

    with pytest.raises(SpoolError, match="is full"):
        room.add(Message({}, b"x" * bound))

    assert ids(spool) == [small.message_id]


def test_drained_messages_make_room_immediately(spool: DirectoryQueue) -> None:
    room_in(spool, spool_max_messages=1).add(metric_message())
    spool.remove(next(spool.names()))

    room_in(spool, spool_max_messages=1).add(metric_message())

    assert spool.count() == 1


def test_the_next_process_continues_counting_without_reading_the_spool(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_in(spool).add(metric_message())
    monkeypatch.setattr(DirectoryQueue, "walk", lambda *_: pytest.fail("it counted again"))

    room_in(spool).add(metric_message())

    assert CountFile(spool.path, spool.path.with_name("state")).read().messages == 2


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"path": 1}', b"null", b'{"path": "/other", "messages": 9}']
)
def test_the_spool_is_counted_again_if_the_count_is_damaged(
    spool: DirectoryQueue, damage: bytes
) -> None:
    room_in(spool).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    file.write_bytes(damage)

    room_in(spool).add(metric_message())

    assert json.loads(file.read_bytes())["messages"] == 2


def test_the_count_of_another_spool_is_ignored(spool: DirectoryQueue) -> None:
    room_in(spool).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    count_file = json.loads(file.read_bytes())
    file.write_text(json.dumps({**count_file, "path": "/another", "messages": 50}))

    room_in(spool).add(metric_message())

    assert json.loads(file.read_bytes())["messages"] == 2


@pytest.mark.parametrize("minutes", [2, -3 * 24 * 60])
def test_an_outdated_count_is_counted_again(spool: DirectoryQueue, minutes: int) -> None:
    room_in(spool).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    count_file = json.loads(file.read_bytes())
    count_file.update(messages=50, counted_at=count_file["counted_at"] - minutes * 60)
    file.write_text(json.dumps(count_file))

    room_in(spool).add(metric_message())

    assert json.loads(file.read_bytes())["messages"] == 2


def test_a_process_that_keeps_the_count_locked_does_not_block_others(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_count, "PATIENCE_S", 0.05)
    room_in(spool, spool_max_messages=1).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    with open(file) as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        with pytest.raises(SpoolError, match="is full"):
            room_in(spool, spool_max_messages=1).add(metric_message())


def test_a_read_only_state_directory_only_costs_a_count(
    spool: DirectoryQueue,
) -> None:
    spool.path.with_name("state").touch()
    room = room_in(spool, spool_max_messages=2)

    stored = [room.add(message) for message in messages(2)]

    assert list(spool.names()) == stored
    with pytest.raises(SpoolError, match="is full"):
        room.add(metric_message())


def test_a_link_in_place_of_the_count_is_not_followed(spool: DirectoryQueue) -> None:
    room_in(spool).add(metric_message())
    (file,) = spool.path.with_name("state").iterdir()
    victim = spool.path.with_name("victim")
    victim.write_text("precious")
    file.unlink()
    os.symlink(victim, file)

    room_in(spool).add(metric_message())

    assert victim.read_text() == "precious"
    assert spool.count() == 2
