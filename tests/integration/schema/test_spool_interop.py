"""Queues shared with the DQS libraries of the field: each side reads the other's elements."""

from __future__ import annotations

from pathlib import Path

import pytest
from messaging.message import Message as ForeignMessage
from messaging.queue.dqs import DQS

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message

LONG = "café au lait\n" * 100


@pytest.fixture
def ours(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def theirs(ours: DirectoryQueue) -> DQS:
    return DQS(path=str(ours.path))


@pytest.mark.parametrize(
    "body",
    ["", "plain", "caf\u00e9", LONG, b"", b"plain", b"\xff\x00\xfe", LONG.encode("latin-1")],
)
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_we_read_elements_written_by_the_dqs_library(
    ours: DirectoryQueue, body: str | bytes, compression: str | None
) -> None:
    header = {"destination": "/topic/x", "subject": "caf\u00e9"}
    DQS(path=str(ours.path), compression=compression).add_message(ForeignMessage(body, header))

    (name,) = ours.names()

    expected = body.encode() if isinstance(body, str) else body
    assert ours.read(name) == Message(header, expected)


@pytest.mark.parametrize(
    "message",
    [
        metric_message(),
        Message({}, b""),
        Message({"subject": "caf\u00e9: x\n"}, LONG.encode()),
        Message({"a": "b"}, b"\xff\x00\xfe"),
    ],
    ids=["metric", "empty", "text", "bytes"],
)
def test_the_dqs_library_reads_our_elements(
    ours: DirectoryQueue, theirs: DQS, message: Message
) -> None:
    name = ours.add(message)

    (listed,) = theirs
    assert (listed, theirs.lock(listed)) == (name, True)
    read = theirs.get_message(listed)

    body = read.body.encode() if read.is_text() else read.body
    assert (dict(read.header), body) == (dict(message.headers), message.body)


def test_both_list_the_same_elements_and_each_respects_the_locks_of_the_other(
    ours: DirectoryQueue, theirs: DQS
) -> None:
    for _ in range(20):
        mine, yours = ours.add(metric_message()), theirs.add_message(ForeignMessage("x"))
    listed = list(ours.names())

    assert (listed, listed) == (list(theirs), sorted(listed))
    assert theirs.count() == len(listed) == 40
    assert (ours.lock(mine), theirs.lock(yours)) == (True, True)
    assert (theirs.lock(mine), ours.lock(yours)) == (False, False)
    theirs.remove(yours)
    ours.remove(mine)
    assert theirs.count() == ours.count() == 38
