"""Calls functions in other processes: pages are drawn on all processors while others are read."""

from __future__ import annotations

import gc
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

# A forked process has the values to work on already: they need not be sent.
_FORK = get_context("fork")


def in_processes(works: Iterable[Callable[[], T]], at_most: int) -> Iterator[T]:
    """The results of the functions, in order. At most `at_most` processes run at a time.

    While they run, the next function is taken from `works`. A function must not use a connection to
    the database, which is that of this process. Its exception is raised here.
    """
    running: deque[tuple[Any, Connection]] = deque()
    try:
        for work in works:
            if len(running) == at_most:
                yield _result(*running.popleft())
            receiver, sender = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=_call, args=(work, sender), daemon=True)
            process.start()
            sender.close()
            running.append((process, receiver))
        while running:
            yield _result(*running.popleft())
    finally:
        for process, _ in running:
            process.terminate()
            process.join()


@contextmanager
def collecting_less() -> Iterator[None]:
    """Pause the search for cyclic garbage: it is slow with many rows, which have hardly any."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _result(process: Any, receiver: Connection) -> Any:
    try:
        result, error = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"a process ended early, with code {process.exitcode}") from None
    process.join()
    receiver.close()
    if error is not None:
        raise error
    return result


def _call(work: Callable[[], object], sender: Connection) -> None:
    # Ctrl-C reaches all processes; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A cursor of the other process, if collected here, would be closed on the connection of both.
    gc.disable()
    try:
        sent: tuple[object, Exception | None] = (work(), None)
    except Exception as error:
        sent = (None, error)
    sender.send(sent)
