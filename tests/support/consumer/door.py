"""A consumer that accepts messages by HTTP, on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.services.process import HOST, free_ports, port_is_open
from tests.support.consumer.daemon import Daemon, running
from tests.support.consumer.site import Site
from tests.support.http_client import HttpClient
from tests.support.waiting import eventually

PATH = "/v1/messages"
COMMITTED, KEPT = 200, 202
STORED = (COMMITTED, KEPT)
WITH_RETRY_AFTER = (429, 503)
REPEAT = (*WITH_RETRY_AFTER, 504)
"""The answers to a message that is good, but was not stored in time."""


class Door(NamedTuple):
    """`name` is that by which tests count its answers."""

    name: str
    port: int
    tls: bool = False

    @property
    def listen_url(self) -> str:
        return f"listen+{self._http}://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """For publishers."""
        return f"sam+{self._http}://{HOST}:{self.port}"

    @property
    def _http(self) -> str:
        return "https" if self.tls else "http"

    def client(self) -> HttpClient:
        return HttpClient(self.port)


def new_door(name: str = "door", *, tls: bool = False) -> Door:
    return Door(name, *free_ports(1), tls)


def servlet_site(directory: Path, door: Door) -> Site:
    """A consumer that reads the door alone, and whose option `--to` says where messages go."""
    directory.mkdir(exist_ok=True)
    config = directory / "sam.toml"
    lines = ("[consumer]", f'name = "{door.name}"', f'brokers = ["{door.listen_url}"]', "")
    config.write_text("\n".join(lines))
    return Site(config, database="", name=door.name)


@contextmanager
def listening(site: Site, door: Door, *options: str) -> Iterator[Daemon]:
    """The daemon, once its door is open, killed when the block ends."""
    with running(site, *options) as daemon:
        eventually(lambda: port_is_open(door.port) or not daemon.alive)
        assert daemon.alive, daemon.log
        yield daemon
