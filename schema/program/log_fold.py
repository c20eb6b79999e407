"""The handler of all logs: a line that comes again and again is told once, and then its number.

A log that can't be written (disk full, reader gone) stops nobody's work: its lines are counted.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Optional

EVERY_S = 60.0
"""How long repetitions are held back at most."""


def dropped_lines() -> int:
    """How many lines of this process's log could not be written until now."""
    folding = (each for each in logging.getLogger().handlers if isinstance(each, FoldingHandler))
    return sum(handler.dropped for handler in folding)


class FoldingHandler(logging.Handler):
    """Writes lines to a stream; a line equal to the last one is only counted.

    Equal are logger, level, text and exception. "last line repeated N times" is written when
    another line comes, at the end, and a minute after the first repetition.
    """

    def __init__(self, stream: Any, every_s: float = EVERY_S) -> None:
        super().__init__()
        self.dropped = 0
        self._stream = stream
        self._every_s = every_s
        self._last: Optional[logging.LogRecord] = None
        self._last_key: object = None
        self._repeated = 0
        self._timer: Optional[threading.Timer] = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            key = _key(record)
            if key == self._last_key:
                self._count(record)
                return
            self._tell_repeated()
            self._write(record)
            self._last_key = key
        except Exception:  # arguments that do not fit their text: a bug of the caller
            self.handleError(record)

    def close(self) -> None:
        with self._exclusively():
            self._tell_repeated()
        super().close()

    def _count(self, record: logging.LogRecord) -> None:
        self._last = record
        self._repeated += 1
        if self._timer is None:
            self._timer = threading.Timer(self._every_s, self._minute_is_over)
            self._timer.daemon = True
            self._timer.start()

    def _minute_is_over(self) -> None:
        with self._exclusively():
            self._tell_repeated()
            self._last_key = None  # the next one is told in full again

    def _tell_repeated(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        last, times = self._last, self._repeated
        self._last, self._repeated = None, 0
        if last is not None:
            self._write(_told_again(last, times))

    def _write(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError, AttributeError):  # full or gone; closed; none at all
            self.dropped += 1

    def _exclusively(self) -> Any:
        return self.lock  # which the base class holds while it calls emit()


def _key(record: logging.LogRecord) -> object:
    error = record.exc_info[1] if record.exc_info else None
    return record.name, record.levelno, record.getMessage(), repr(error)


def _told_again(last: logging.LogRecord, times: int) -> logging.LogRecord:
    words = "last line repeated once" if times == 1 else f"last line repeated {times} times"
    told = logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, words, None, None)
    told.created = last.created
    return told
