"""`sam-db` in this process, on one database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import OK, USAGE
from tests.support.invoke import Answer, invoke


@dataclass(frozen=True)
class SamDb:
    """Commands in a directory; `environment` are further variables."""

    url: str
    directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str | Path, stdin: str | bytes = "") -> Answer:
        own = {"SAM_DATABASE_URL": self.url, "STATE_DIRECTORY": str(self.directory / "state")}
        variables = {**os.environ, **own, **self.environment}
        return invoke("sam-db", *arguments, stdin=stdin, cwd=self.directory, env=variables)

    def document(self, *arguments: str | Path) -> Any:
        """The JSON document of a command that succeeds."""
        answer = self(*arguments, "--json")
        assert answer.code == OK, str(answer)
        return answer.json

    def refusal(self, *arguments: str | Path) -> str:
        """The message of a usage error."""
        answer = self(*arguments)
        assert answer.code == USAGE, str(answer)
        return answer.err


def sam_db_on(engine: Engine, directory: Path, **environment: str) -> SamDb:
    return SamDb(url_of(engine), directory, environment)


def url_of(engine: Engine) -> str:
    """The URL of an engine's database, to configure a command with."""
    if engine.dialect.name == "sqlite":
        return f"sqlite:///{engine.get_execution_options()['sam_file']}"
    return engine.url.render_as_string(hide_password=False)


def upgrade_at_once(urls: Sequence[str]) -> list[list[str]]:
    """The versions that each of several processes applied; Alembic keeps its state in globals."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "sam_pipeline.sql", "upgrade", "--json"],
            env={**os.environ, "SAM_DATABASE_URL": url},
            stdout=subprocess.PIPE,
            text=True,
        )
        for url in urls
    ]
    return [json.loads(process.communicate(timeout=120)[0])["applied"] for process in processes]
