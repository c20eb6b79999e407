"""Our commands in a directory of their own, in this process or as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from sam_pipeline.consumer.core import loop
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.postgres import as_role
from tests.services.spark_classes import spark_cache
from tests.support.database.with_schema import with_schema
from tests.support.invoke import TIMEOUT_S, call, invoke
from tests.support.invoke import Answer as Answer

PROGRAMS = Path(sys.executable).parent
SPOOL_SILENCE_S = 0.5
"""How long a spool must be empty until a drain in this process ends."""
RESULT = (
    *("sam-publish", "result", "--metric", "m", "--status", "OK"),
    *("--host", "ce01.example.org", "--flavour", "CE"),
)
"""Publishes a result; further options may follow."""
CLASSES = ("metricOutput", "serviceEndpoint", "siteGroup", "siteContact", "downtime")
ROLES = (
    ("sam-consume sender", "reader"),
    ("sam-consume", "loader"),
    ("sam-report run", "reporter"),
    ("sam-report exclusion", "reporter"),
    ("sam-report seal", "reporter"),
    ("sam-report", "reader"),
    ("sam-db audit", "reader"),
    ("sam-db archive restore", "owner"),
    ("sam-db archive", "archiver"),
    ("sam-db import gocdb", "topology"),
    ("sam-db import vofeed", "topology"),
    ("sam-db import cric", "topology"),
    ("sam-db import osg", "topology"),
    ("sam-db import argo", "topology"),
    ("sam-db import feeds", "topology"),
)
"""The role of a command, by its prefix; all other commands run as administrator."""


YEARS = 3653
"""The results of tests are of one day, however late the tests run."""


@dataclass(frozen=True)
class Workplace:
    """A directory with a `sam.toml`; commands run there as a person would run them."""

    directory: Path
    broker: str
    database: str
    name: str = "acceptance"
    destination_prefix: str = "/topic/grid.probe"
    consumer_settings: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def write_configuration(self) -> Workplace:
        text = f"""
[database]
url = "{self.database}"
[publisher]
brokers = ["{self.broker}"]
spool = "outbox"
[consumer]
name = "{self.name}"
brokers = ["{self.broker}"]
max_age = "{YEARS}d"
{self.consumer_settings}
{"".join(self._subscriptions())}
"""
        self.write("sam.toml", text)
        return self

    def run(self, *command: str | Path, stdin: str | bytes = "") -> Answer:
        """Run one of our programs in this process (see `invoke`)."""
        program, *arguments = map(str, command)
        environment = self.clean_environment([program, *arguments])
        with ExitStack() as stack:
            if self.broker.startswith("spool:"):
                stack.enter_context(patch.object(loop, "SILENCE_S", SPOOL_SILENCE_S))
            return invoke(program, *arguments, stdin=stdin, cwd=self.directory, env=environment)

    def process(
        self, *command: str | Path, stdin: str = "", timeout_s: float = TIMEOUT_S
    ) -> Answer:
        """Run one of our programs as a process, for what only a process can show."""
        program, *arguments = map(str, command)
        environment = self.clean_environment([program, *arguments])
        line = [str(PROGRAMS / program), *arguments]
        return call(line, self.directory, environment, stdin, timeout_s)

    def succeed(self, *command: str | Path, stdin: str | bytes = "") -> Answer:
        """Like `run`, but fail unless the exit code is 0."""
        answer = self.run(*command, stdin=stdin)
        assert answer.code == 0, str(answer)
        return answer

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command in the background, killed with its children on leaving the block."""
        log = self.directory / "running.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(PROGRAMS / command[0]), *command[1:]],
                cwd=self.directory,
                env=self.clean_environment(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)  # some contain a password
        return path

    def spooled(self, name: str) -> int:
        """The number of messages in a directory queue of this workplace."""
        return DirectoryQueue(self.directory / name).count()

    def clean_environment(self, command: Sequence[str] = ()) -> dict[str, str]:
        """The environment of this process without SAM_* variables, with the command's login."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
        kept["PATH"] = f"{PROGRAMS}{os.pathsep}{kept.get('PATH', os.defpath)}"
        state = {
            "XDG_STATE_HOME": str(self.directory / "state"),
            "XDG_CACHE_HOME": str(spark_cache()),
        }
        return {**kept, **state, **self._login(command), **self.environment}

    def _login(self, command: Sequence[str]) -> dict[str, str]:
        """The variable with the login of the command's role; only PostgreSQL has roles."""
        line = " ".join(command)
        role = next((role for prefix, role in ROLES if line.startswith(prefix)), None)
        if role is None or self.database.startswith("sqlite"):
            return {}
        return {"SAM_DATABASE_URL": as_role(self.database, role)}

    def _subscriptions(self) -> Iterator[str]:
        if self.broker.startswith("spool:"):
            return
        for name in CLASSES:
            destination = f"{self.destination_prefix}.{name}"
            yield f'[[consumer.subscription]]\ndestination = "{destination}"\nclass = "{name}"\n'


def embedded(directory: Path) -> Workplace:
    """A workplace with a spool and SQLite, with the schema applied."""
    workplace = embedded_workplace(directory)
    with_schema(workplace.database).dispose()
    return workplace


def embedded_workplace(directory: Path) -> Workplace:
    """Like `embedded`, without the database."""
    spool, database = f"spool://{directory / 'spool'}", f"sqlite:///{directory / 'sam.db'}"
    return Workplace(directory, spool, database).write_configuration()
