"""Deadlines on the monotonic clock, also for calls that accept none."""

from __future__ import annotations

import _thread  # importing `threading` would make publishing a result 2 % slower
import time
from typing import Any, Callable, NamedTuple


class Deadline(NamedTuple):
    """The moment of the monotonic clock by which a call ends."""

    ends_at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    def remaining(self) -> float:
        """The seconds left, at least 0."""
        return max(0.0, self.ends_at - time.monotonic())

    @property
    def expired(self) -> bool:
        return self.remaining() == 0

    def share(self, parts: int) -> Deadline:
        """The end of the first of `parts` equal parts of the time that is left."""
        return Deadline.after(self.remaining() / parts)


class BackgroundCall:
    """A call that accepts no deadline, on a daemon thread of its own."""

    def __init__(self, call: Callable[..., Any], *arguments: object) -> None:
        self._outcome: list[tuple[Any, Exception | None]] = []
        self._done = _thread.allocate_lock()
        self._done.acquire()

        def run() -> None:
            try:
                self._outcome.append((call(*arguments), None))
            except Exception as error:  # raised by `result`
                self._outcome.append((None, error))
            self._done.release()

        _thread.start_new_thread(run, ())

    @property
    def finished(self) -> bool:
        return bool(self._outcome)

    def result(self, deadline: Deadline) -> Any:
        """Return the result of the call, or raise its exception.

        Raises:
            TimeoutError: the call is not finished; it goes on, and `result` may be called again.
        """
        if not self._done.acquire(timeout=deadline.remaining()):
            raise TimeoutError("no answer in time")
        self._done.release()
        value, error = self._outcome[0]
        if error:
            raise error
        return value


def within(deadline: Deadline, call: Callable[..., Any], *arguments: object) -> Any:
    """The result of a call that accepts no deadline; after it the call goes on, unnoticed.

    Raises:
        TimeoutError: it took longer. Also everything that the call itself raises.
    """
    return BackgroundCall(call, *arguments).result(deadline)
