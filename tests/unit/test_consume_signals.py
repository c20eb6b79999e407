"""Stopping in order, and in time."""

from __future__ import annotations

import signal
import threading

import pytest

from consumer import signals
from consumer.signals import stopping_on_signals

SOON_S = 10.0


def send_to_ourselves(number: signal.Signals) -> None:
    # To the waiting thread itself: another test's thread may be open to signals.
    (thread,) = (each for each in threading.enumerate() if each.name == "signals")
    assert thread.ident is not None
    signal.pthread_kill(thread.ident, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_says_stop(number: signal.Signals) -> None:
    stop = threading.Event()

    with stopping_on_signals(stop):
        send_to_ourselves(number)

        assert stop.wait(SOON_S)


def test_a_process_that_does_not_stop_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "DEADLINE_S", 0.05)
    codes: list[int] = []
    ended = threading.Event()

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    with stopping_on_signals(threading.Event(), exit_now):
        send_to_ourselves(signal.SIGTERM)
        assert ended.wait(SOON_S)

    assert codes == [0]


def test_a_process_that_stops_in_time_is_left_alone() -> None:
    codes: list[int] = []

    with stopping_on_signals(threading.Event(), codes.append):
        send_to_ourselves(signal.SIGTERM)

    assert codes == []
    assert not {signal.SIGTERM, signal.SIGINT} & signal.pthread_sigmask(signal.SIG_BLOCK, [])
