"""A daemon at work while a database is made to fail: its log is waited for, its way is changed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.site import WAIT_S, Site, eventually, make_site

LOCK_TIMEOUT = "500ms"
SHORT_WAITS = {
    "postgresql": f"options=-c%20lock_timeout%3D{LOCK_TIMEOUT}",
    "sqlite": "timeout=0.5",
}
"""For a lock or for another writer, as a URL says it."""

WAITING = "nothing is acked"
"""Logged when the database cannot take a batch and the consumer waits for it."""

LOADER_SESSIONS = """
    FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE '%loader%'
"""


@dataclass(frozen=True)
class Daemon:
    """A running `sam-consume run`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for_words(self, *words: str) -> str:
        """The first line of the log with all of these."""
        eventually(lambda: self._lines(words))
        return self._lines(words)[0]

    def _lines(self, words: Sequence[str]) -> list[str]:
        return [line for line in self.said.splitlines() if all(word in line for word in words)]


@dataclass(frozen=True)
class SpoolSite:
    """A site that reads one spool; `bad` messages become dead letters."""

    site: Site
    queue: DirectoryQueue

    def fill(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.queue.add(message)

    def left(self) -> list[str]:
        """What was not acked."""
        return [path.name for path in self.queue.path.glob("*/*") if path.suffix != ".lck"]

    @contextmanager
    def daemon(self, *prefix: str) -> Iterator[Daemon]:
        with logged_daemon(self.site, *prefix) as daemon:
            yield daemon

    def wait_until_loaded(self, rows: int, dead_letters: int = 0) -> None:
        """Their numbers, once nothing is left to load."""
        eventually(lambda: not self.left())
        assert (self.site.rows(), dead_letter_count(self.site)) == (rows, dead_letters)


def spool_site(directory: Path, database: str) -> SpoolSite:
    """Whose consumer waits for locks only for a moment."""
    dialect = database.partition("+")[0].partition(":")[0]
    url = f"{database}?{SHORT_WAITS[dialect]}"
    spool = directory / "spool"
    return SpoolSite(make_site(directory, url, [f"spool://{spool}"]), DirectoryQueue(spool))


@contextmanager
def logged_daemon(site: Site, *prefix: str) -> Iterator[Daemon]:
    """`prefix` is a command that runs it; it is killed on leaving the block.

    Until then it must live, unless the block itself waits for its end.
    """
    log = site.config.with_name("log")
    with log.open("ab") as stderr:
        process = subprocess.Popen([*prefix, *site.command("run")], stderr=stderr)
    try:
        yield Daemon(process, log)
        waited_for = process.returncode is not None
        assert waited_for or process.poll() is None
    finally:
        process.kill()
        process.wait(WAIT_S)
        print(log.read_text())


def bad_result() -> Message:
    return metric_message(metric_result(metricStatus="FINE"))


def site_group(name: str) -> Message:
    lines = ("siteName: S", f"groupName: {name}", "groupType: region")
    body = "\n".join([*lines, "validFrom: 2026-11-01T00:00:00Z", "EOT", ""])
    return new_message("siteGroup", body)


def dead_letter_count(site: Site) -> int:
    return int(site.scalar("SELECT count(*) FROM dead_letter"))


def point(site: Site, old: str, new: str) -> None:
    """Change a part of the configured URL of the database."""
    text = site.config.read_text()
    assert old in text
    site.config.write_text(text.replace(old, new, 1))


def end_sessions(site: Site) -> int:
    """Terminate the loader's backends; how many these were, once they are gone."""
    ended = int(site.scalar(f"SELECT count(pg_terminate_backend(pid)) {LOADER_SESSIONS}"))
    eventually(lambda: site.scalar(f"SELECT count(*) {LOADER_SESSIONS}") == 0)
    return ended


def fill_up(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
