"""Of the process itself: signals, listening sockets, open files and the clock."""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer.process import signals
from sam_pipeline.consumer.process.listening import (
    OTHER_FILES,
    Listeners,
    allow_connections,
    inherited_sockets,
    listening_sockets,
)
from sam_pipeline.consumer.process.signals import StopRequest, handling_signals
from sam_pipeline.schema import times
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker, parse_broker
from sam_pipeline.schema.program.command import UNAVAILABLE
from tests.services.process import free_ports
from tests.support.invoke import invoke

SOON_S = 30.0
HOST = "127.0.0.1"


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
        anew, still_stopping = request.restarts(), request.stop.is_set()
        send_to_ourselves(signal.SIGTERM)
        assert request.stop.wait(SOON_S)

    assert (anew, still_stopping, request.restarts()) == (True, False, False)


def test_only_a_process_that_does_not_stop_in_time_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    with handling_signals(StopRequest(), codes.append):
        send_to_ourselves(signal.SIGTERM)
    assert codes == []
    assert not {signal.SIGTERM, signal.SIGINT} & signal.pthread_sigmask(signal.SIG_BLOCK, [])
    monkeypatch.setattr(signals, "DEADLINE_S", 0.05)
    ended = threading.Event()

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    with handling_signals(StopRequest(), exit_now, lambda: codes.append(-1)):
        send_to_ourselves(signal.SIGTERM)
        assert ended.wait(SOON_S)

    assert codes == [-1, 0]


def door(port: int, host: str = HOST) -> Broker:
    return parse_broker(f"listen+http://{host}:{port}")


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def listeners() -> Iterator[Listeners]:
    listeners = Listeners()
    yield listeners
    listeners.close()


def use(listeners: Listeners, broker: Broker) -> None:
    """Listen as a server does that ends again."""
    for item in listeners.sockets_of(broker):
        item.close()


def connects(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def test_a_port_stays_open_when_its_server_ends_until_no_url_has_it(listeners: Listeners) -> None:
    first, second = free_ports(2)
    for port in (first, second, second):  # the next server has the same socket
        use(listeners, door(port))
    open_at_first = connects(first), connects(second)
    listeners.retain([door(second)])
    retained = connects(first), connects(second)
    listeners.close()

    assert (open_at_first, retained, connects(second)) == ((True, True), (False, True), False)


def test_a_port_of_another_program_or_host_is_an_error(listeners: Listeners, port: int) -> None:
    with socket.create_server((HOST, port)), pytest.raises(OSError):
        listeners.sockets_of(door(port))
    with pytest.raises(OSError):
        listening_sockets("192.0.2.1", port)

    use(listeners, door(port))
    assert connects(port)


def test_the_socket_of_systemd_is_used_instead_of_a_new_one(port: int) -> None:
    with socket.create_server((HOST, port)) as systemd:
        listeners = Listeners([systemd.dup()])
        use(listeners, door(port, "0.0.0.0"))
        listeners.require_all_used([door(port)])
        listeners.close()

        assert connects(port)


def test_a_socket_of_systemd_that_no_url_has_is_a_problem(port: int) -> None:
    with socket.create_server((HOST, port)) as stream, socket.socket() as connection:
        listeners = Listeners([stream.dup(), connection.dup()])
        for urls, problems in (([door(port)], 1), ([], 2)):
            with pytest.raises(ConfigError) as caught:
                listeners.require_all_used(urls)
            assert len(caught.value.problems) == problems
        listeners.close()


def test_inherited_sockets_are_not_passed_on_and_other_descriptors_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_inherited = "sam_pipeline.consumer.process.listening.FIRST_INHERITED"
    with socket.create_server((HOST, 0)) as systemd:
        first = os.dup(systemd.fileno())
        os.set_inheritable(first, True)
        monkeypatch.setattr(first_inherited, first)
        (item,) = inherited_sockets(1)

        assert item.getsockname() == systemd.getsockname()
        assert not item.get_inheritable()
        item.close()
    readable, writable = os.pipe()
    monkeypatch.setattr(first_inherited, readable)
    assert inherited_sockets(1) == []
    os.close(readable)
    os.close(writable)


INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "soft_after"),
    [
        (1000, 1000, 500, 500, 1000),
        (300, 1000, 500, 500, 500 + OTHER_FILES),
        (300, INFINITY, 5000, 5000, 5000 + OTHER_FILES),
        (300, 1000, 5000, 1000 - OTHER_FILES, 1000),
        (100, 100, 5000, 1, 100),
    ],
)
def test_as_many_connections_are_allowed_as_the_hard_limit_permits(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    hard: int,
    wanted: int,
    allowed: int,
    soft_after: int,
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)

    assert allow_connections(wanted) == allowed
    assert limits == {resource.RLIMIT_NOFILE: (soft_after, hard)}


def test_a_consumer_with_a_wrong_clock_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "sam.toml"
    config.write_text(
        '[consumer]\nbrokers = ["spool:///nowhere"]\n[database]\nurl = "sqlite:///nowhere.db"\n'
    )
    monkeypatch.setattr(times, "NOT_BEFORE", datetime(9000, 1, 1, tzinfo=UTC))

    answer = invoke("sam-consume", "--config", config, "run", "--drain")

    assert (answer.code, "set the clock" in answer.err) == (UNAVAILABLE, True)
