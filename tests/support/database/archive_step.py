"""`sam-db` on an archive whose process dies with SIGKILL at one step.

    python -m tests.support.database.archive_step STEP ARGUMENTS…

The steps are the changes of the store, each of them twice: before it begins and after it is done;
in a directory also the moment at which a file that is put has two names. If there are fewer steps,
the program ends as usual.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

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


def kill_at(step: int) -> None:
    opened = ArchiveConfig.open

    def open_dying(config: ArchiveConfig) -> Any:
        return DyingStore(opened(config), step)

    ArchiveConfig.open = open_dying  # type: ignore[method-assign]


if __name__ == "__main__":
    kill_at(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
