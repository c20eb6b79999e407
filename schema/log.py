"""Loggers that import `logging` when they first log.

Most calls of `sam-publish` log nothing; importing it would make each of them 17 % slower.
"""

from __future__ import annotations

import _thread  # `threading` is slower to import
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from logging import Logger

_set_up: list[Callable[[], None]] = []
_setting_up = _thread.RLock()


def lazy_logger(name: str) -> Logger:
    """Like `logging.getLogger`, without the import until something is logged."""
    return _LazyLogger(name)  # type: ignore[return-value]


def when_first_used(set_up: Callable[[], None]) -> None:
    """Call `set_up` just before the first line is logged by a lazy logger."""
    _set_up[:] = [set_up]


class _LazyLogger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        from logging import getLogger

        with _setting_up:  # another thread waits until it is done
            while _set_up:
                _set_up.pop()()
        return getattr(getLogger(self._name), method)
