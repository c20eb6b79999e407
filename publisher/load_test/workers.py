"""Processes beside the tool, so that it measures the broker and not the lock of Python.

Each has a pipe to the process that conducts the test. It ends by itself when that one dies.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Callable

from sam_pipeline.publisher.errors import PublishError

READY, FAILED, PROGRESS, DONE = "ready", "failed", "progress", "done"
"""The first item of what a worker says."""
GO, STOP, EMPTY, END = "go", "stop", "empty", "end"
"""The first item of what it is asked to do."""
PROGRESS_S = 0.1
JOIN_S = 5.0

Work = Callable[..., None]


class Worker:
    """A process that does some work, and the pipe to it."""

    def __init__(self, work: Work, arguments: Sequence[Any], others: Sequence[Worker]) -> None:
        """`others`: started earlier; the new process must not keep their pipes open."""
        fork = multiprocessing.get_context("fork")  # in one file, no other process finds us
        self.pipe, end = fork.Pipe()
        inherited = [self.pipe, *(other.pipe for other in others)]
        self._process = fork.Process(target=_main, args=(work, arguments, end, inherited))
        self._process.start()
        end.close()

    def say(self, *request: object) -> None:
        """Ask for something; a process that has ended hears nothing."""
        with suppress(OSError):
            self.pipe.send(request)

    def end(self) -> None:
        """Close the pipe, which ends the process, and wait for that."""
        self.pipe.close()
        self._process.join(JOIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(
    work: Work, arguments: Sequence[Any], pipe: Connection, inherited: Sequence[Connection]
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # the conducting process decides
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    for other in inherited:
        other.close()
    try:
        work(pipe, *arguments)
    except PublishError as error:
        _say(pipe, FAILED, str(error))
    except Exception as error:
        _say(pipe, FAILED, f"a bug: {type(error).__name__}: {error}")


def _say(pipe: Connection, *answer: object) -> None:
    with suppress(OSError):
        pipe.send(answer)
