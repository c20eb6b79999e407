"""A consumer that accepts messages by HTTP, on a free port, and raw requests to it.

with door_site(tmp_path, answer_timeout="1s") as site:
    answer = site.ask(post())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.services.process import HOST, free_ports, port_is_open
from tests.support.consumer.daemon import Daemon, running, site_of
from tests.support.consumer.site import Site
from tests.support.http_client import HttpAnswer, HttpClient
from tests.support.raw_http import RawConnection, request
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
    return Door(name, free_ports(1)[0], tls)


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


@dataclass(frozen=True)
class DoorSite:
    door: Door
    site: Site
    daemon: Daemon

    def connect(self, timeout_s: float = 20.0) -> RawConnection:
        return RawConnection(self.door.port, timeout_s)

    def ask(self, data: bytes, method: str = "POST") -> HttpAnswer:
        """The answer to one request on a connection of its own."""
        with self.connect() as connection:
            connection.send(data)
            return connection.answer(method)

    def get(self, path: str) -> HttpAnswer:
        return self.ask(request("GET", path))

    def rows(self, metric: str = "%") -> int:
        """The number of rows of metrics with names like this."""
        query = f"SELECT count(*) FROM metricOutput WHERE metricName LIKE '{metric}'"
        return int(self.site.scalar(query))

    def letters(self) -> int:
        """The number of dead letters."""
        return int(self.site.scalar("SELECT count(*) FROM dead_letter"))


@contextmanager
def door_site(
    directory: Path,
    database: str = "",
    *,
    tls: bool = False,
    consumer: Mapping[str, str | int] = MappingProxyType({}),
    **settings: str | int | float | bool,
) -> Iterator[DoorSite]:
    """A consumer that listens; `settings` are keys of [consumer.door], the others in `consumer`."""
    door = new_door(tls=tls)
    site = site_of(directory, [door.listen_url], database=database, name=door.name, **consumer)
    lines = [f"{key} = {dumps(value)}" for key, value in settings.items()]
    with site.config.open("a") as config:
        config.write("\n".join(["[consumer.door]", *lines, ""]))
    with listening(site, door) as daemon:
        yield DoorSite(door, site, daemon)
