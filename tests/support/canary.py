"""Runs commands and collects everything that others can see of them: nothing of it is secret."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_S = 120.0
POLL_S = 0.02
"""The first of the growing intervals at which the command lines are read."""


@dataclass
class Watched:
    """A directory in which commands run; `seen` has their output, and all command lines."""

    directory: Path
    environment: Mapping[str, str]
    seen: list[str] = field(default_factory=list)

    def run(self, *command: str | Path, timeout_s: float = TIMEOUT_S) -> int:
        """Run a command without a traceback; its exit code."""
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=self.directory,
            env=dict(self.environment),
            text=True,
        )
        began = time.monotonic()
        while process.poll() is None and (elapsed_s := time.monotonic() - began) < timeout_s:
            self.seen += command_lines()
            time.sleep(max(POLL_S, elapsed_s / 10))
        out, err = process.communicate(timeout=timeout_s)
        assert "Traceback" not in err, (command, err)
        self.seen += [out, err]
        return process.returncode


def command_lines() -> Iterator[str]:
    """The command line of every process of this machine, as `ps` shows it."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_text(errors="replace")


def stored_in(directory: Path, *, except_for: Sequence[Path] = ()) -> Iterator[str]:
    """Names and contents of all files below a directory."""
    for path in directory.rglob("*"):
        yield str(path)
        if path.is_file() and path not in except_for:
            yield path.read_text(errors="replace")


def assert_hidden(canaries: Iterable[str], texts: Iterable[str]) -> None:
    for text in texts:
        for canary in canaries:
            assert canary not in text, f"{canary} in {text[:2000]}"
