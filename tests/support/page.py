"""Pages of docs/: their blocks of code, run as if typed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.services import missing
from tests.services.postgres import PostgresServer
from tests.support.commands import Answer, Workplace

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """`section` is the heading above it."""

    section: str
    language: str
    text: str


class Page:
    """The blocks of code of a page, and which of them the tests use."""

    def __init__(self, name: str) -> None:
        page = (ROOT / name).read_text(encoding="utf-8")
        parts = re.split(r"^#+ (.*)\n", page, flags=re.MULTILINE)[1:]
        self._sections = dict(zip(parts[::2], parts[1::2], strict=True))
        self.blocks = [
            Block(heading, *block)
            for heading, text in self._sections.items()
            for block in BLOCK.findall(text)
        ]
        self._used: set[Block] = set()

    def texts(self, language: str, section: str = "") -> list[str]:
        """The blocks of a language, in order; of sections whose headings have these words."""
        blocks = [
            block
            for block in self.blocks
            if block.language == language and section in block.section
        ]
        assert blocks, section
        self._used.update(blocks)
        return [block.text for block in blocks]

    def examples(self, section: str) -> list[list[str]]:
        """The cells of the table of a section, without its head."""
        rows = re.findall(r"^\| (.*) \|$", self._sections[section], re.MULTILINE)
        return [row.split(" | ") for row in rows[1:]]

    def unused(self, *languages: str) -> list[str]:
        """The sections with a block that no test uses."""
        return [
            block.section
            for block in self.blocks
            if block.language in languages and block not in self._used
        ]


def shell(place: Workplace, *scripts: str) -> Answer:
    """One shell in the workplace for all of them, stopped by its first failure."""
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -euo pipefail", *scripts])],
        cwd=place.directory,
        env=place.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    return Answer(scripts, done.returncode, done.stdout, done.stderr)


def on_sqlite(directory: Path) -> Workplace:
    """A spool and `sam.db`, with its schema; for pages that use the sqlite3 command."""
    if not shutil.which("sqlite3"):
        missing("sqlite3", "apt-get install sqlite3")
    place = Workplace(
        directory,
        broker=f"spool://{directory / 'spool'}",
        database=f"sqlite:///{directory / 'sam.db'}",
    ).write_configuration()
    place.succeed("sam-db", "upgrade")
    return place


@contextmanager
def on_postgresql(directory: Path, server: PostgresServer) -> Iterator[Workplace]:
    """A spool and the database `sam`, with its schema; psql finds the server by itself."""
    server.execute("CREATE DATABASE sam")
    place = Workplace(
        directory,
        broker=f"spool://{directory / 'spool'}",
        database=server.url("sam"),
        environment={
            "PGHOST": server.host,
            "PGPORT": str(server.port),
            "PGUSER": server.user,
            "PGPASSWORD": server.password,
        },
    ).write_configuration()
    try:
        place.succeed("sam-db", "upgrade")
        yield place
    finally:
        server.execute("DROP DATABASE sam WITH (FORCE)")


def with_database(place: Workplace, url: str) -> Workplace:
    """The same workplace with another URL of the database."""
    return replace(place, environment={**place.environment, "SAM_DATABASE_URL": url})
