"""Runs commands as a person would type them, and prints each with the time it took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.services.process import ServerProcess

OK = frozenset({0})
TIMEOUT_S = 600


class StepFailed(Exception):
    """A command ended with an unexpected exit code."""


class Shell:
    """One terminal with its exported variables.

    `databases`: the database URL with the program's login, by the prefix of a command.
    """

    def __init__(self, exports: Mapping[str, str], databases: Mapping[str, str]) -> None:
        self._exports = exports
        self._databases = databases
        self._environment = _clean_environment(exports)
        self._step = 0

    def heading(self, text: str) -> None:
        self._step += 1
        print(f"\n{self._step}. {text}", flush=True)

    def exports(self) -> str:
        """The line that sets the same variables in another terminal."""
        values = " ".join(f"{name}={value}" for name, value in self._exports.items())
        return f"export PATH={Path(sys.executable).parent}:$PATH {values}"

    def run(self, line: str, expect: Collection[int] = OK, show_lines: int | None = None) -> None:
        """Print the line, run it, print the first lines of its output."""
        print(f"   $ {line}", flush=True)
        began = time.monotonic()
        done = self._call(line)
        _show(done.stdout.splitlines(), show_lines)
        note = f", exit {done.returncode}" if done.returncode else ""
        print(f"     ({time.monotonic() - began:.1f} s{note})", flush=True)
        if done.returncode not in expect:
            raise StepFailed(f"exit code {done.returncode} of: {line}")

    @contextmanager
    def background(self, line: str, ready: Callable[[], bool], log: Path) -> Iterator[None]:
        """Print the line, and run it until the block ends, which begins when it is ready."""
        print(f"   $ {line} &", flush=True)
        began = time.monotonic()
        process = ServerProcess(["sh", "-c", f"exec {line}"], log, ready, env=self._environment)
        process.start()
        print(f"     ({time.monotonic() - began:.1f} s)", flush=True)
        try:
            yield
        finally:
            process.stop()

    def ask(self, line: str) -> str:
        """The output of a command, without printing anything."""
        done = self._call(line)
        if done.returncode:
            raise StepFailed(f"exit code {done.returncode} of: {line}")
        return done.stdout

    def _call(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line,
            shell=True,
            env={**self._environment, **self._login(line)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )

    def _login(self, line: str) -> dict[str, str]:
        url = next(
            (url for prefix, url in self._databases.items() if line.startswith(prefix)), None
        )
        return {"SAM_DATABASE_URL": url} if url else {}


def _show(lines: list[str], show_lines: int | None) -> None:
    for line in lines[:show_lines]:
        print(f"     {line}")
    if show_lines is not None and len(lines) > show_lines:
        print(f"     … {len(lines) - show_lines} more lines")


def _clean_environment(exports: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without SAM_* variables, with the exported ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, **exports, "PATH": path}
