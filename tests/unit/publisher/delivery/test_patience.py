"""Programs that run for long: nothing is lost while they wait, read ahead, or are terminated."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sam_pipeline.publisher.delivery.patience import deliver_until_safe
from sam_pipeline.publisher.delivery.publication import NoBrokerTookIt
from sam_pipeline.publisher.delivery.publish import courier_for
from sam_pipeline.publisher.delivery.read_ahead import ReadAhead
from sam_pipeline.publisher.delivery.termination import Termination
from sam_pipeline.publisher.errors import Terminated
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.copy_config import CopyTable
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.publishing import config_for, ids, messages, spooled


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


def test_what_does_not_fit_into_the_spool_waits_for_room(spool: DirectoryQueue) -> None:
    sent = messages(3)

    def drain() -> None:
        for name in list(spool.names()):
            assert spool.lock(name)
            spool.remove(name)

    termination: Any = Ending(repair=drain)
    with courier_for(config_for(spool_max_messages=2)) as courier:
        done = deliver_until_safe(courier, sent, 1.0, termination)

    assert ids(done.spooled) == ids(sent)
    assert (spool.count(), len(termination.waits)) == (1, 1)


def test_a_copy_whose_spool_fails_neither_loses_nor_doubles_anything(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("in the way")
    copy = CopyTable("b", ("spool:///dev/null/x",), spool=tmp_path / "b")
    config = PublisherConfig(spool=tmp_path / "a", copy=(copy,), state=tmp_path / "state")
    termination: Any = Ending(repair=(tmp_path / "b").unlink)
    sent = messages(3)

    with courier_for(config) as courier:
        done = deliver_until_safe(courier, sent, 1.0, termination)

    assert ids(done.spooled) == spooled("a") == spooled("b") == ids(sent)


def test_at_a_termination_it_is_tried_once_more_and_the_loss_is_an_error() -> None:
    termination: Any = Ending(at=3)
    with courier_for(PublisherConfig()) as courier, pytest.raises(NoBrokerTookIt) as raised:
        deliver_until_safe(courier, messages(3), 1.0, termination)

    assert raised.value.lost == 3
    assert termination.waits == [1.0, 2.0, 4.0]


def test_a_key_that_can_not_be_read_now_loses_nothing() -> None:
    def deliver(given: Sequence[Message], _: object) -> Any:
        if not termination.waits:
            raise ConfigError(["the key is gone"])
        return SimpleNamespace(receipts=[], spooled=given, _replace=SimpleNamespace)

    termination: Any = Ending()
    courier: Any = SimpleNamespace(deliver=deliver)
    sent = messages(3)

    assert ids(deliver_until_safe(courier, sent, 1.0, termination).spooled) == ids(sent)


def test_items_fetched_ahead_keep_their_order_up_to_a_limit() -> None:
    ahead = ReadAhead(iter(range(5)), max_items=2)
    first = next(ahead)

    assert [ahead.work() for _ in range(3)] == [True, True, False]
    assert [first, *ahead] == [0, 1, 2, 3, 4]


def test_an_error_is_raised_at_its_position() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = ReadAhead(broken(), max_items=10)
    assert [ahead.work() for _ in range(3)] == [True, False, False]

    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


@pytest.fixture
def termination() -> Iterator[Termination]:
    with Termination() as termination:
        yield termination
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_signal_only_sets_a_flag_and_ends_a_wait_for_input(termination: Termination) -> None:
    terminate()

    assert termination.received
    assert select.select([termination.descriptor], [], [], 5)[0]


def test_the_signal_interrupts_a_wait_for_a_broker_once(termination: Termination) -> None:
    termination.interrupts = True

    with pytest.raises(Terminated):
        terminate()
    terminate()


def test_work_beside_a_wait_is_finished_before_the_interrupt(termination: Termination) -> None:
    finished = []
    termination.interrupts = True

    with pytest.raises(Terminated):
        termination.shielded(lambda: terminate() or finished.append(True) or True)()

    assert finished
