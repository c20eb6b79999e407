"""Stopping on signals, in order and in time."""

from __future__ import annotations

import signal
import threading

import pytest

from sam_pipeline.consumer.process import signals
from sam_pipeline.consumer.process.signals import StopRequest, handling_signals

SOON_S = 10.0


def send_to_ourselves(number: signal.Signals) -> None:
    # To the waiting thread itself: another test's thread may be open to signals.
    (thread,) = (candidate for candidate in threading.enumerate() if candidate.name == "signals")
    assert thread.ident is not None
    signal.pthread_kill(thread.ident, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_requests_a_stop(number: signal.Signals) -> None:
    request = StopRequest()

    with handling_signals(request):
        send_to_ourselves(number)

        assert request.stop.wait(SOON_S)
    assert not request.restarts()


def test_sighup_requests_a_restart() -> None:
    request = StopRequest()

    with handling_signals(request):
        send_to_ourselves(signal.SIGHUP)
        assert request.stop.wait(SOON_S)
        anew = request.restarts()
        still_stopping = request.stop.is_set()
        send_to_ourselves(signal.SIGTERM)
        assert request.stop.wait(SOON_S)

    assert (anew, still_stopping, request.restarts()) == (True, False, False)


def test_a_process_that_does_not_stop_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "DEADLINE_S", 0.05)
    codes: list[int] = []
    ended = threading.Event()

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    with handling_signals(StopRequest(), exit_now, lambda: codes.append(-1)):
        send_to_ourselves(signal.SIGTERM)
        assert ended.wait(SOON_S)

    assert codes == [-1, 0]


def test_a_process_that_stops_in_time_is_left_alone() -> None:
    codes: list[int] = []

    with handling_signals(StopRequest(), codes.append):
        send_to_ourselves(signal.SIGTERM)

    assert codes == []
    assert not {signal.SIGTERM, signal.SIGINT} & signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_empty_signal_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython returns it when SIGSTOP and SIGCONT arrive at the end of the wait."""
    wait = signal.sigtimedwait
    answers = [signal.struct_siginfo((-1015584256, 0, 0, 0, 0, 0, 0))]
    monkeypatch.setattr(signal, "sigtimedwait", lambda *of: answers.pop() if answers else wait(*of))
    request = StopRequest()

    with handling_signals(request):
        send_to_ourselves(signal.SIGTERM)
        assert request.stop.wait(SOON_S)

    assert answers == []
