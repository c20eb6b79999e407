"""Our commands in this process: `invoke("sam-db", "check")` gives exit code, output and errors.

A command sees the working directory, the environment and the standard streams that it would have as
a process, and leaves nothing behind. What only a process can show (signals, start-up, closed
streams, the umask) is for `Workplace.process` and `Workplace.running`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

from sam_pipeline.publisher.delivery.outgoing import signer_of

TIMEOUT_S = 180.0
MODULES = {
    "sam-publish": "sam_pipeline.publisher.cli",
    "sam-consume": "sam_pipeline.consumer.cli",
    "sam-db": "sam_pipeline.sql.cli",
    "sam-report": "sam_pipeline.spark_jobs.cli",
    "check_sam_consumer": "sam_pipeline.consumer.commands.nagios",
    "check_sam_publisher": "sam_pipeline.publisher.commands.nagios",
}


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    command: Sequence[str]
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"{' '.join(self.command)} -> {self.code}\n{self.out}\n{self.err}"


def call(
    command: Sequence[str | Path],
    cwd: Path,
    env: Mapping[str, str],
    stdin: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Run a command as a process and wait for its end."""
    line = [str(part) for part in command]
    done = subprocess.run(
        line, input=stdin, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s
    )
    return Answer(line, done.returncode, done.stdout, done.stderr)


def invoke(
    program: str,
    *arguments: str | Path,
    stdin: str | bytes = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Answer:
    """Call a program's `main`; `env` is the whole environment, by default that of the test."""
    main = import_module(MODULES[program]).main
    signer_of.cache_clear()  # a process reads its key itself
    argv = [str(argument) for argument in arguments]
    with ExitStack() as stack:
        streams = {
            name: stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", newline=""))
            for name in ("stdin", "stdout", "stderr")
        }
        streams["stdin"].buffer.write(stdin if isinstance(stdin, bytes) else stdin.encode())
        streams["stdin"].seek(0)
        for name, stream in streams.items():
            stack.enter_context(patch.object(sys, name, stream))
        stack.enter_context(patch.object(sys, "argv", [program, *argv]))
        if env is not None:
            stack.enter_context(patch.dict(os.environ, env, clear=True))
        stack.enter_context(chdir(cwd or Path.cwd()))
        stack.enter_context(_own_logging())
        if program == "sam-report":
            stack.enter_context(_shared_spark())
        try:
            code = main(argv)
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = (_read(streams[name]) for name in ("stdout", "stderr"))
    return Answer([program, *argv], code, out, err)


def _read(stream: IO[str]) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


@contextmanager
def _own_logging() -> Iterator[None]:
    """The handlers and levels of pytest return when the command has ended.

    py4j logs by itself when an object of a Spark session that has ended is collected.
    """
    root = logging.getLogger()
    handlers, level, filters = root.handlers, root.level, root.filters
    root.handlers, root.filters = [], [lambda record: "py4j" not in record.pathname]
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers, root.filters = handlers, filters
        root.setLevel(level)


@contextmanager
def _shared_spark() -> Iterator[None]:
    """Reports on this machine use the session of all tests; a start of Spark takes seconds."""
    from sam_pipeline.spark_jobs.compute import reports
    from tests.support.reports.spark_session import shared_context

    start = reports.running

    @contextmanager
    def running(master: str, settings: Mapping[str, str], timeout_s: float) -> Iterator[Any]:
        if master.startswith("local") and not settings:
            yield shared_context()
        else:
            with start(master, settings, timeout_s) as context:
                yield context

    with patch.object(reports, "running", running):
        yield
