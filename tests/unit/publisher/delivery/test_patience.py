"""Messages of a program that runs for ever: none is lost while neither broker nor spool works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sam_pipeline.publisher.delivery.patience import deliver_until_safe
from sam_pipeline.publisher.delivery.publication import NoBrokerTookIt
from sam_pipeline.publisher.delivery.publish import courier_for
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.copy_config import CopyTable
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message


class Ending:
    """A termination that arrives in the wait number `at`, before which `repair` is called."""

    def __init__(self, at: int = 99, repair: Any = lambda: None) -> None:
        self.received = False
        self.interrupts = False
        self.waits: list[float] = []
        self._at = at
        self._repair = repair

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.received = len(self.waits) >= self._at
        self._repair()


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.message_id for message in messages]


@pytest.fixture
def messages() -> Iterator[list[Message]]:
    yield [metric_message() for _ in range(3)]


def test_what_does_not_fit_into_the_spool_waits_for_room(
    tmp_path: Path, messages: list[Message]
) -> None:
    config = PublisherConfig(spool=tmp_path / "spool", spool_max_messages=2)
    queue = DirectoryQueue(tmp_path / "spool")

    def drain() -> None:
        for name in list(queue.names()):
            assert queue.lock(name)
            queue.remove(name)

    termination: Any = Ending(repair=drain)
    with courier_for(config) as courier:
        done = deliver_until_safe(courier, messages, 1.0, termination)

    assert ids(done.spooled) == ids(messages)
    assert queue.count() == 1
    assert len(termination.waits) == 1


def test_a_copy_whose_spool_is_full_neither_loses_nor_doubles_anything(
    tmp_path: Path, messages: list[Message]
) -> None:
    (tmp_path / "b").write_text("in the way")
    copy = CopyTable("b", ("spool:///dev/null/x",), spool=tmp_path / "b")
    config = PublisherConfig(spool=tmp_path / "a", copy=(copy,), state=tmp_path / "state")
    termination: Any = Ending(repair=(tmp_path / "b").unlink)

    with courier_for(config) as courier:
        done = deliver_until_safe(courier, messages, 1.0, termination)

    assert ids(done.spooled) == ids(messages)
    for name in ("a", "b"):
        queue = DirectoryQueue(tmp_path / name)
        assert [queue.read(e).message_id for e in queue.names()] == ids(messages), name


def test_at_a_termination_it_is_tried_once_more_and_the_loss_is_an_error(
    tmp_path: Path, messages: list[Message]
) -> None:
    termination: Any = Ending(at=3)
    with courier_for(PublisherConfig()) as courier, pytest.raises(NoBrokerTookIt) as raised:
        deliver_until_safe(courier, messages, 1.0, termination)

    assert raised.value.lost == 3
    assert termination.waits == [1.0, 2.0, 4.0]


def test_a_key_that_can_not_be_read_now_loses_nothing(messages: list[Message]) -> None:
    def deliver(given: Sequence[Message], _: object) -> Any:
        if not termination.waits:
            raise ConfigError(["the key is gone"])
        return SimpleNamespace(receipts=[], spooled=given, _replace=SimpleNamespace)

    termination: Any = Ending()
    courier: Any = SimpleNamespace(deliver=deliver)

    done = deliver_until_safe(courier, messages, 1.0, termination)

    assert ids(done.spooled) == ids(messages)
