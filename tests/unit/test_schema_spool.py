"""The directory queue on disk."""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from pathlib import Path

import pytest

from schema.errors import DamagedElement, SpoolError
from schema.message import Message
from schema.spool import DirectoryQueue, written_at
from tests.builders import metric_message


def test_what_was_added_is_read_back_oldest_first(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    messages = [metric_message(), metric_message(), Message({"a": "é"}, b"\xff\0")]

    for message in messages:
        queue.add(message)

    assert [queue.read(name) for name in queue.names()] == messages


def test_an_element_can_be_locked_once_until_it_is_unlocked(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())

    assert queue.lock(name)
    assert not queue.lock(name)
    queue.unlock(name)
    assert queue.lock(name)


def test_a_removed_element_is_gone_with_its_lock(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)

    queue.remove(name)

    assert queue.count() == 0
    assert not queue.lock(name)
    assert not list(tmp_path.rglob("*.lck"))


def test_a_queue_that_is_not_there_is_empty(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "none")

    queue.purge()

    assert queue.count() == 0
    assert not queue.path.exists()


def test_what_killed_processes_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    queue.lock(name)
    lock, temporary = tmp_path / f"{name}.lck", tmp_path / f"{name}.tmp"
    temporary.touch()

    queue.purge()
    fresh = lock.exists(), temporary.exists()
    os.utime(lock, (0, time.time() - 601))
    os.utime(temporary, (0, time.time() - 301))
    queue.purge()

    assert fresh == (True, True)
    assert (lock.exists(), temporary.exists()) == (False, False)
    assert queue.count() == 1


def test_empty_directories_are_swept_except_the_newest(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    for name in ("00000000", "0000003c", "00000078"):
        (tmp_path / name).mkdir()

    queue.purge()

    assert [path.name for path in tmp_path.iterdir()] == ["00000078"]


def test_a_damaged_element_is_put_aside_with_its_reason(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.add(metric_message())
    (queue.path / name).write_bytes(b'{"body": "cut')
    queue.lock(name)

    with pytest.raises(DamagedElement) as caught:
        queue.read(name)
    aside = queue.quarantine(name, str(caught.value))

    assert queue.count() == 0
    assert aside.read_bytes() == b'{"body": "cut'
    assert name in aside.with_name(f"{aside.name}.reason").read_text()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"body": 1}', b'{"header": {"a": 1}}'])
def test_an_element_without_a_message_is_damaged(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "00000000").mkdir()
    (tmp_path / "00000000" / "00000000000000").write_bytes(content)

    with pytest.raises(DamagedElement):
        DirectoryQueue(tmp_path).read("00000000/00000000000000")


@pytest.mark.parametrize("encoding", ["base64", "base64+zlib", "utf8+base64+zlib", "utf8"])
def test_elements_of_other_writers_are_read(tmp_path: Path, encoding: str) -> None:
    body = "caf\u00e9".encode()
    packed = zlib.compress(body) if "zlib" in encoding else body
    text = base64.b64encode(packed).decode() if "base64" in encoding else packed.decode()
    element = {"header": {"x": "y"}, "body": text, "text": "utf8" in encoding, "encoding": encoding}
    (tmp_path / "00000000").mkdir()
    (tmp_path / "00000000" / "00000000000000").write_text(json.dumps(element))

    message = DirectoryQueue(tmp_path).read("00000000/00000000000000")

    assert message == Message({"x": "y"}, body)


def test_other_names_are_ignored(tmp_path: Path) -> None:
    queue = DirectoryQueue(tmp_path)
    name = queue.add(metric_message())
    (tmp_path / "README").touch()
    (tmp_path / name.split("/")[0] / "notes.txt").touch()

    assert list(queue.names()) == [name]


def test_a_name_tells_when_its_element_was_written(tmp_path: Path) -> None:
    name = DirectoryQueue(tmp_path).add(metric_message())

    assert abs(written_at(name).timestamp() - time.time()) < 60


def test_a_spool_that_cannot_be_written_says_where_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SpoolError, match=r"cannot write to .*/spool: Not a directory"):
        DirectoryQueue(tmp_path / "file" / "spool").add(metric_message())
