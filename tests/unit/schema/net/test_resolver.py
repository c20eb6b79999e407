"""Resolving names under a deadline, and deadlines for calls that have none."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.net.resolver import Resolver

real_getaddrinfo = socket.getaddrinfo


def test_a_hanging_call_ends_at_its_deadline() -> None:
    over = threading.Event()
    started = time.monotonic()

    with pytest.raises(TimeoutError):
        within(Deadline.after(0.1), over.wait, 10)
    over.set()

    assert 0.1 <= time.monotonic() - started < 1


def test_a_call_within_its_deadline_returns_or_raises_normally() -> None:
    assert within(Deadline.after(5), int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        within(Deadline.after(5), int, "seven")


def test_a_slow_look_up_runs_once_and_answers_the_next_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, queries = threading.Event(), 0

    def slow(host: str, port: int, *arguments: Any) -> Any:
        nonlocal queries
        if arguments[-1] & socket.AI_NUMERICHOST:
            return real_getaddrinfo(host, port, *arguments)
        queries += 1
        answer.wait(10)
        return real_getaddrinfo(f"192.0.2.{queries}", port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    resolver = Resolver()

    def ips_of(timeout_s: float) -> list[str]:
        return resolver.ips_of("msg.example.org", 61613, Deadline.after(timeout_s))

    for _ in range(3):
        with pytest.raises(OSError, match="name resolution failed: no answer in time"):
            ips_of(0.05)
    answer.set()

    assert ips_of(10) == ["192.0.2.1"]
    assert ips_of(10) == ["192.0.2.2"]  # what was answered is not remembered


def test_an_unresolved_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")]

    def answer(host: str, port: int, *arguments: Any) -> Any:
        if arguments[-1] & socket.AI_NUMERICHOST:
            return real_getaddrinfo(host, port, *arguments)
        if failures:
            raise failures.pop()
        return real_getaddrinfo("192.0.2.1", port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    resolver = Resolver()

    with pytest.raises(OSError, match="resolution failed: temporary failure"):
        resolver.ips_of("msg.example.org", 61613, Deadline.after(5))

    assert resolver.ips_of("msg.example.org", 61613, Deadline.after(5)) == ["192.0.2.1"]
