"""A running `sam-consume` with a door in front of a database, and raw requests to it.

with door_site(tmp_path, answer_timeout_s=1) as site:
    answer = site.ask(post())
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps
from pathlib import Path

from tests.support.consumer.daemon import Daemon, site_of
from tests.support.consumer.door import Door, listening, new_door
from tests.support.consumer.site import Site
from tests.support.http_client import HttpAnswer
from tests.support.raw_http import RawConnection, request

NOTHING: Mapping[str, str | int] = {}


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
    consumer: Mapping[str, str | int] = NOTHING,
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
