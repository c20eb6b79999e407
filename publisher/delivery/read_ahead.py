"""Prepare messages while a broker works on the previous ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T], Iterator[T]):
    """An iterator that fetches up to `max_items` items ahead, one with each call of `work`.

    An error of the source is raised after the items that precede it.
    """

    def __init__(self, source: Iterator[T], max_items: int) -> None:
        self._source = source
        self._max_items = max_items
        self._ahead: deque[T] = deque()
        self._error: Exception | None = None

    def __next__(self) -> T:
        if self._ahead:
            return self._ahead.popleft()
        if self._error:
            raise self._error
        return next(self._source)

    def work(self) -> bool:
        """Fetch an item; return False if there was nothing to do."""
        if self._error or len(self._ahead) >= self._max_items:
            return False
        try:
            self._ahead.append(next(self._source))
        except Exception as error:  # including StopIteration
            self._error = error
            return False
        return True
