"""Prepare messages while a broker works on those before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T], Iterator[T]):
    """An iterator that fetches ahead, one item by each `work`, whenever somebody has the time.

    An error of the source is raised where its place is in the order.
    """

    def __init__(self, source: Iterator[T], most: int) -> None:
        self._source = source
        self._most = most
        self._ahead: deque[T] = deque()
        self._error: Exception | None = None

    def __next__(self) -> T:
        if self._ahead:
            return self._ahead.popleft()
        if self._error:
            raise self._error
        return next(self._source)

    def work(self) -> bool:
        """Fetch an item; False: there is nothing to do."""
        if self._error or len(self._ahead) >= self._most:
            return False
        try:
            self._ahead.append(next(self._source))
        except Exception as error:  # StopIteration, too
            self._error = error
            return False
        return True
