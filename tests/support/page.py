"""A page of docs/: its blocks of code, run as a reader would who types them in."""

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

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """`section` is the heading above it."""

    section: str
    language: str
    text: str


def read_page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[Block]:
    """All blocks of a page, in order."""
    found = []
    page = read_page(name)
    for section in re.split(r"^#+ ", page, flags=re.MULTILINE)[1:]:
        heading = section.splitlines()[0]
        found += [Block(heading, language, text) for language, text in BLOCK.findall(section)]
    return found


def shell(place: Workplace, script: str) -> Answer:
    """The script in the workplace, stopped by its first failure."""
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=place.directory,
        env=place.clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Answer([script], done.returncode, done.stdout, done.stderr)


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
    """A spool and the database `sam`, with its schema, on a server of the machine's own, as it
    seems: psql and its like find it by themselves."""
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
    """The same workplace for who uses the database by another name."""
    return replace(place, environment={**place.environment, "SAM_DATABASE_URL": url})
