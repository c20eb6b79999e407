"""A daemon that reads a spool while its database fails."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import Daemon
from tests.support.consumer.site import WAIT_S, Site, eventually, make_site

LOCK_TIMEOUT = "500ms"
SHORT_WAITS = {
    "postgresql": f"options=-c%20lock_timeout%3D{LOCK_TIMEOUT}",
    "sqlite": "timeout=0.5",
}
"""The URL parameter that limits the wait for a lock or for another writer."""

WAITING = "nothing is acked"
"""Logged when the database cannot take a batch and the consumer waits for it."""

LOADER_SESSIONS = """
    FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE '%loader%'
"""


@dataclass(frozen=True)
class SpoolSite:
    """A site that reads one spool; `bad` messages become dead letters."""

    site: Site
    queue: DirectoryQueue

    def fill(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.queue.add(message)

    def pending(self) -> list[str]:
        """The elements that are not acked yet."""
        return [path.name for path in self.queue.path.glob("*/*") if path.suffix != ".lck"]

    @contextmanager
    def daemon(self, *prefix: str) -> Iterator[Daemon]:
        with logged_daemon(self.site, *prefix) as daemon:
            yield daemon

    def wait_until_loaded(self, rows: int, dead_letters: int = 0) -> None:
        """Wait until the spool is empty, then check the numbers."""
        eventually(lambda: not self.pending())
        assert (self.site.rows(), self.site.letters()) == (rows, dead_letters)


def spool_site(directory: Path, database: str) -> SpoolSite:
    """A site whose consumer waits for locks only briefly."""
    dialect = database.partition("+")[0].partition(":")[0]
    url = f"{database}?{SHORT_WAITS[dialect]}"
    spool = directory / "spool"
    return SpoolSite(make_site(directory, url, [f"spool://{spool}"]), DirectoryQueue(spool))


@contextmanager
def logged_daemon(site: Site, *prefix: str) -> Iterator[Daemon]:
    """The daemon, run by the command `prefix` if given, and killed on leaving the block.

    It must still be running then, unless the block has waited for its end.
    """
    log_file = site.config.with_name("log")
    with log_file.open("ab") as stderr:
        process = subprocess.Popen([*prefix, *site.command("run")], stderr=stderr)
    try:
        yield Daemon(process, log_file)
        waited_for = process.returncode is not None
        assert waited_for or process.poll() is None
    finally:
        process.kill()
        process.wait(WAIT_S)
        print(log_file.read_text())


def bad_result() -> Message:
    return metric_message(metric_result(metricStatus="FINE"))


def site_group(name: str) -> Message:
    lines = ("siteName: S", f"groupName: {name}", "groupType: region")
    body = "\n".join([*lines, "validFrom: 2026-11-01T00:00:00Z", "EOT", ""])
    return new_message("siteGroup", body)


def end_sessions(site: Site) -> int:
    """Terminate the loader's backends, wait until they are gone, and return their number."""
    ended = int(site.scalar(f"SELECT count(pg_terminate_backend(pid)) {LOADER_SESSIONS}"))
    eventually(lambda: site.scalar(f"SELECT count(*) {LOADER_SESSIONS}") == 0)
    return ended


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
