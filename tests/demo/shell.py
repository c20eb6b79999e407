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
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
        self._environment = {**kept, **exports, "PATH": path}
        self._step = 0

    def heading(self, text: str) -> None:
        self._step += 1
        print(f"\n{self._step}. {text}", flush=True)

    def exports(self) -> str:
        """The line that sets the same variables in another terminal."""
        values = " ".join(f"{name}={value}" for name, value in self._exports.items())
        return f"export PATH={Path(sys.executable).parent}:$PATH {values}"

    def run(self, line: str, expect: Collection[int] = (0,), show_lines: int | None = None) -> None:
        """Print the line, run it, print the first lines of its output."""
        print(f"   $ {line}", flush=True)
        began = time.monotonic()
        done = self._call(line)
        lines = done.stdout.splitlines()
        for shown in lines[:show_lines]:
            print(f"     {shown}")
        if show_lines is not None and len(lines) > show_lines:
            print(f"     … {len(lines) - show_lines} more lines")
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
        logins = [url for prefix, url in self._databases.items() if line.startswith(prefix)]
        login = {"SAM_DATABASE_URL": logins[0]} if logins else {}
        return subprocess.run(
            line,
            shell=True,
            env={**self._environment, **login},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )
