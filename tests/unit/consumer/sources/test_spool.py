"""The directory queue as a source."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, acknowledge
from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import SubscriptionConfig
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.spool import Claims, SpoolSource
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    IDENTITY,
    identity_of,
    uid_identity,
    with_identity,
)
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.foreign import make_stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.spool.disk import spool_error
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message
from tests.support.waiting import SOON_S, eventually


class Scene:
    """A queue, an inbox, and the source that connects them."""

    def __init__(self, directory: Path, capacity: int = 100) -> None:
        self.path = directory / "spool"
        self.state = directory / "state"
        self.queue = DirectoryQueue(self.path)
        self.inbox = Inbox(capacity)
        self.subscription: dict[str, Any] = {}
        self.relays: Collection[int] = ()

    def source(self) -> SpoolSource:
        broker = Broker("spool", path=str(self.path))
        config = ConsumerConfig(
            name="site-a",
            state_directory=self.state,
            max_message_bytes=10_000,
            trusted_relays=tuple(map(str, self.relays)),
            subscription=(SubscriptionConfig(destination=str(broker), **self.subscription),),
        )
        return SpoolSource(broker, config, SignatureCheck())

    @contextmanager
    def delivering(self) -> Iterator[SpoolSource]:
        source, stop = self.source(), threading.Event()
        thread = threading.Thread(target=source.run, args=(self.inbox, stop))
        thread.start()
        try:
            yield source
        finally:
            stop.set()
            thread.join(SOON_S)
            assert not thread.is_alive()

    def take(self, count: int) -> list[Delivery]:
        return self.inbox.take(BatchRule(count, SOON_S, 1.0), wait_s=SOON_S)

    def take_messages(self, count: int) -> list[Message]:
        return [delivery.message for delivery in self.take(count)]

    def locks(self) -> list[str]:
        return [path.name for path in self.path.glob("*/*.lck")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def add(queue: DirectoryQueue, count: int) -> list[Message]:
    messages = [metric_message() for _ in range(count)]
    for message in messages:
        queue.add(message)
    return messages


def from_us(message: Message) -> Message:
    """An element, as the source delivers it: sent by the owner of its file."""
    return with_identity(message, uid_identity(os.geteuid()))


def test_an_element_is_delivered_once_and_removed_by_its_ack_alone(scene: Scene) -> None:
    messages = add(scene.queue, 3)

    with scene.delivering():
        taken = scene.take(3)
        for delivery in taken[:2]:
            acknowledge([delivery])
        again = scene.inbox.take(BatchRule(1, 0, 0), wait_s=1.0)

    assert [delivery.message for delivery in taken] == [*map(from_us, messages)]
    assert again == []
    assert [scene.queue.read(name) for name in scene.queue.names()] == messages[2:]
    assert scene.locks() == []


@pytest.mark.parametrize("mode", [0o660, 0o602])
def test_nobody_is_known_as_the_sender_of_an_element_that_others_may_write(
    scene: Scene, mode: int
) -> None:
    scene.relays = [os.geteuid()]
    (name,) = add_claim(scene.queue)
    (scene.path / name).chmod(mode)

    with scene.delivering():
        [message] = scene.take_messages(1)

    assert identity_of(message) == ANONYMOUS


def add_claim(queue: DirectoryQueue) -> list[str]:
    """An element that says who has sent it, as a relay writes it."""
    return [queue.add(with_identity(metric_message(), "token:nagios1"))]


def test_the_lock_of_a_delivery_does_not_expire(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.consumer.sources.spool.PURGE_S", 0.0)
    add(scene.queue, 1)

    with scene.delivering():
        scene.take(1)
        (lock,) = scene.path.glob("*/*.lck")
        os.utime(lock, (0, time.time() - 3600))

        eventually(lambda: lock.stat().st_mtime > time.time() - 600)


def test_an_element_locked_by_another_reader_is_skipped_also_after_a_kill(scene: Scene) -> None:
    add(scene.queue, 2)
    others, _ = scene.queue.names()
    assert scene.queue.lock(others)

    with scene.delivering():
        scene.take(1)
        (claims,) = scene.state.glob("*.claims")
        claimed = claims.read_bytes()
    claims.write_bytes(claimed)  # as a killed process leaves it

    with scene.delivering():
        scene.take(1)
        assert scene.inbox.take(BatchRule(1, 0, 0), wait_s=0.3) == []
    assert scene.locks() == [f"{others.split('/')[1]}.lck"]


def test_the_locks_of_a_killed_process_are_released_at_once(scene: Scene) -> None:
    add(scene.queue, 1)
    (name,) = scene.queue.names()
    killed = Claims(scene.state, "site-a", str(scene.path))
    with pytest.raises(SourceTaken, match="another sam-consume named 'site-a'"):
        scene.source().run(scene.inbox, threading.Event())
    killed.add(name)
    assert scene.queue.lock(name)
    killed.close()  # as the kernel does for a killed process

    with scene.delivering():
        assert len(scene.take(1)) == 1


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, *names: str) -> None:
    """Let the file system refuse a method of the queue, for these elements or for all."""
    original = getattr(DirectoryQueue, method)

    def refusing(queue: DirectoryQueue, *arguments: Any) -> Any:
        if names and arguments[0] not in names:
            return original(queue, *arguments)
        error = PermissionError(errno.EACCES, "Permission denied")
        raise spool_error(f"cannot {method} in the spool {queue.path}", error)

    monkeypatch.setattr(DirectoryQueue, method, refusing)


def wait_until_missing(source: SpoolSource, *texts: str) -> None:
    eventually(lambda: all(text in str(source.missing()) for text in texts), reason=texts)


@pytest.mark.parametrize("can_be_moved", [True, False])
def test_a_damaged_element_does_not_hold_up_others(scene: Scene, can_be_moved: bool) -> None:
    add(scene.queue, 2)
    damaged, _ = scene.queue.names()
    (scene.path / damaged).write_bytes(b"{")
    bad = Path(f"{scene.path}.bad")
    if not can_be_moved:
        bad.touch()

    with scene.delivering() as source:
        assert len(scene.take(1)) == 1
        if can_be_moved:
            eventually(lambda: not source.missing())
        else:
            wait_until_missing(source, f"first {damaged}: ", str(bad))

    assert scene.inbox.take_counts() == Counts(damaged_elements=int(can_be_moved))
    assert scene.locks() == []


@pytest.mark.parametrize("method", ["lock", "opened_for_reading", "names"])
def test_what_cannot_be_used_is_reported_and_tried_again_beside_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    messages = add(scene.queue, 2)
    name, _ = scene.queue.names()
    refuse(monkeypatch, method, *([] if method == "names" else [name]))

    with scene.delivering() as source:
        if method == "names":
            wait_until_missing(source, "cannot names in the spool", "Permission denied")
        else:
            assert scene.take_messages(1) == [from_us(messages.pop())]
            wait_until_missing(source, "1 element in ", f"first {name}: ", "Permission denied")
            time.sleep(0.5)  # it is tried again
            assert len(caplog.messages) == 1
        monkeypatch.undo()
        assert scene.take_messages(len(messages)) == [*map(from_us, messages)]
        eventually(lambda: not source.missing())

    assert scene.locks() == []


def test_an_acked_element_is_removed_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    add(scene.queue, 1)

    with scene.delivering() as source:
        taken = scene.take(1)
        refuse(monkeypatch, "remove")
        acknowledge(taken)
        wait_until_missing(source, "1 element in ", "Permission denied")
        monkeypatch.undo()
        eventually(lambda: not source.missing())
        again = scene.inbox.take(BatchRule(1, 0, 0), wait_s=0.5)

    assert again == []
    assert scene.queue.count() == 0


def test_a_source_stops_even_if_the_inbox_is_full(tmp_path: Path) -> None:
    scene = Scene(tmp_path, capacity=1)
    add(scene.queue, 3)

    with scene.delivering() as source:
        eventually(scene.locks)
        assert source.missing()  # not everything that is there has been delivered

    assert scene.locks() == []
    assert scene.queue.count() == 3


def test_an_element_without_headers_gets_those_of_the_subscription(scene: Scene) -> None:
    own = {"message_class": "own", "format": "nstream", "rename": {"a": "b"}}
    scene.subscription = own
    scene.queue.add(Message({}, b"{}"))
    scene.queue.add(metric_message())

    with scene.delivering():
        plain, named = scene.take_messages(2)

    assert plain.headers.items() > make_stamp("own", "nstream", {"a": "b"}).headers.items()
    assert named.message_class == "metricOutput"


US = uid_identity(os.geteuid())


@pytest.mark.parametrize(
    ("is_relay", "claimed", "identity"),
    [
        (False, "key:root", US),
        (True, "token:nagios1", "token:nagios1"),
        (True, "key:nagios1", US),  # its signature says so, or nothing
        (True, "anonymous", "anonymous"),
        (True, "", US),
        (True, "token:\0", US),  # no database stores it
    ],
)
def test_an_element_is_from_the_owner_of_its_file_unless_that_is_a_relay(
    scene: Scene, is_relay: bool, claimed: str, identity: str
) -> None:
    scene.relays = {os.geteuid()} if is_relay else ()
    scene.queue.add(metric_message(**{IDENTITY: claimed}))

    with scene.delivering():
        (message,) = scene.take_messages(1)

    assert identity_of(message) == identity
