"""The code blocks of the pages in docs/, run as a reader would type them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.services import missing
from tests.services.postgres import PostgresServer
from tests.support.commands import Answer, Workplace

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def production_example() -> dict[str, Any]:
    """deploy/sam.toml, with the keys and tables that are comments there."""
    example = (ROOT / "deploy" / "sam.toml").read_text()
    return tomllib.loads(re.sub(r"^# (?=\w+ = |\[\[)", "", example, flags=re.MULTILINE))


@dataclass(frozen=True)
class Block:
    """`section` is the heading above it."""

    section: str
    language: str
    text: str


class Page:
    """The code blocks of a page, and which of them the tests use."""

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
        """The blocks in a language, in order, of the sections whose headings contain `section`."""
        blocks = [
            block
            for block in self.blocks
            if block.language == language and section in block.section
        ]
        assert blocks, section
        self._used.update(blocks)
        return [block.text for block in blocks]

    def examples(self, section: str) -> list[list[str]]:
        """The cells of the table in a section, without the table head."""
        rows = re.findall(r"^\| (.*) \|$", self._sections[section], re.MULTILINE)
        return [row.split(" | ") for row in rows[1:]]

    def unused(self, *languages: str) -> list[str]:
        """The sections with a block that no test uses."""
        return [
            block.section
            for block in self.blocks
            if block.language in languages and block not in self._used
        ]


def shell(workplace: Workplace, *scripts: str) -> Answer:
    """Run the scripts in one shell in the workplace, which stops at the first failure."""
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -euo pipefail", *scripts])],
        cwd=workplace.directory,
        env=workplace.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    return Answer(scripts, done.returncode, done.stdout, done.stderr)


def on_sqlite(directory: Path) -> Workplace:
    """A workplace with a spool and `sam.db`, for pages that use the sqlite3 command."""
    if not shutil.which("sqlite3"):
        missing("sqlite3", "apt-get install sqlite3")
    workplace = Workplace(
        directory,
        broker=f"spool://{directory / 'spool'}",
        database=f"sqlite:///{directory / 'sam.db'}",
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    return workplace


@contextmanager
def on_postgresql(directory: Path, server: PostgresServer) -> Iterator[Workplace]:
    """A workplace with a spool and the database `sam`; the environment points psql to it."""
    server.execute("CREATE DATABASE sam")
    workplace = Workplace(
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
        workplace.succeed("sam-db", "upgrade")
        yield workplace
    finally:
        server.execute("DROP DATABASE sam WITH (FORCE)")


def with_database(workplace: Workplace, url: str) -> Workplace:
    """The same workplace with another URL of the database."""
    return replace(workplace, environment={**workplace.environment, "SAM_DATABASE_URL": url})
