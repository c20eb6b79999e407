"""Listening sockets: which one belongs to a URL, and which ones stay open."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from sam_pipeline.consumer.process.listening import (
    Listeners,
    inherited_sockets,
    listening_sockets,
)
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import Broker, parse_broker
from tests.services.process import free_ports

HOST = "127.0.0.1"


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


def connects(port: int, host: str = HOST) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


def test_a_port_stays_open_when_its_server_ends(listeners: Listeners, port: int) -> None:
    use(listeners, door(port))

    assert connects(port)
    use(listeners, door(port))  # the next server has the same one
    listeners.close()
    assert not connects(port)


def test_a_port_is_closed_once_no_url_has_it(listeners: Listeners) -> None:
    first, second = free_ports(2)
    use(listeners, door(first))
    use(listeners, door(second))
    listeners.retain([door(second)])

    assert not connects(first)
    assert connects(second)


def test_a_port_of_another_program_is_an_error(listeners: Listeners, port: int) -> None:
    with socket.create_server((HOST, port)), pytest.raises(OSError):
        listeners.sockets_of(door(port))

    use(listeners, door(port))
    assert connects(port)


def test_a_name_is_heard_at_each_of_its_addresses(port: int) -> None:
    addresses = {item[4][0] for item in socket.getaddrinfo("localhost", port)}
    sockets = listening_sockets("localhost", port)

    assert {item.getsockname()[0] for item in sockets} <= addresses
    assert connects(port)
    for item in sockets:
        item.close()


def test_an_address_of_another_host_is_an_error(port: int) -> None:
    with pytest.raises(OSError):
        listening_sockets("192.0.2.1", port)


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

        with pytest.raises(ConfigError) as caught:
            listeners.require_all_used([door(port)])
        assert len(caught.value.problems) == 1
        with pytest.raises(ConfigError) as caught:
            listeners.require_all_used([])
        assert len(caught.value.problems) == 2
        listeners.close()


def test_inherited_descriptors_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as systemd:
        first = os.dup(systemd.fileno())
        os.set_inheritable(first, True)
        monkeypatch.setattr("sam_pipeline.consumer.process.listening.FIRST_INHERITED", first)
        (item,) = inherited_sockets(1)

        assert item.getsockname() == systemd.getsockname()
        assert not item.get_inheritable()
        item.close()


def test_a_descriptor_that_is_not_a_socket_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    readable, writable = os.pipe()
    monkeypatch.setattr("sam_pipeline.consumer.process.listening.FIRST_INHERITED", readable)

    assert inherited_sockets(1) == []
    os.close(readable)
    os.close(writable)
