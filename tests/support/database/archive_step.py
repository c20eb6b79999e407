"""`sam-db` on an archive whose process dies with SIGKILL at one step, again and again.

    python -m tests.support.database.archive_step

Each line of the input is a step and the arguments of a command; each line of the output is the exit
code of the process that ran it. The steps are the changes of the store, each of them twice: before
it begins and after it is done; in a directory also the moment at which a file that is put has two
names. If there are fewer steps, the command ends as usual.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

# Imported once, not by each command; Arrow imports the first if it is there.
import pandas  # type: ignore[import-untyped]  # noqa: F401

from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.cli import main

CHANGES = ("put", "create", "delete", "workspace")


class DyingStore:
    """A store that kills the process at a step."""

    def __init__(self, store: Any, step: int) -> None:
        self._store, self._left = store, step
        unlink = os.unlink

        def unlink_after_step(path: Any, **options: Any) -> None:
            self._step()
            unlink(path, **options)

        os.unlink = unlink_after_step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._stepping(found) if name in CHANGES else found

    def _stepping(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any) -> Any:
            self._step()
            result = change(*arguments)
            self._step()
            return result

        return changed

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run(step: int, arguments: list[str]) -> None:
    opened = ArchiveConfig.open
    ArchiveConfig.open = lambda config: DyingStore(opened(config), step)  # type: ignore
    os.dup2(2, 1)
    os._exit(main(arguments))


if __name__ == "__main__":
    for line in sys.stdin:
        number, *rest = line.split()
        if (child := os.fork()) == 0:
            run(int(number), rest)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
