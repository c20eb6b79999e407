"""SIGTERM while a command publishes."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

import pytest

from sam_pipeline.publisher.delivery.termination import Termination
from sam_pipeline.publisher.errors import Terminated


@pytest.fixture
def termination() -> Iterator[Termination]:
    with Termination() as termination:
        yield termination


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_signal_only_sets_a_flag_and_ends_a_wait_for_input(termination: Termination) -> None:
    terminate()

    readable, _, _ = select.select([termination.descriptor], [], [], 5)
    assert termination.received
    assert readable


def test_the_signal_interrupts_a_wait_for_a_broker_once(termination: Termination) -> None:
    termination.interrupts = True

    with pytest.raises(Terminated):
        terminate()
    terminate()


def test_work_beside_a_wait_is_finished_before_the_interrupt(termination: Termination) -> None:
    finished = []

    def work() -> bool:
        terminate()
        finished.append(True)
        return True

    termination.interrupts = True
    with pytest.raises(Terminated):
        termination.shielded(work)()

    assert finished


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Termination() as termination:
            termination.interrupts = True
            terminate()
            assert not termination.received
    finally:
        signal.signal(signal.SIGTERM, before)


def test_after_the_block_the_signal_has_its_default_action() -> None:
    with Termination():
        pass

    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
