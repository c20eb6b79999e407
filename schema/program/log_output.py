"""Log lines go to standard error, in UTC, as text or as JSON.

Repetitions of a line are counted and not written. A log that can't be written (disk full, reader
gone) never stops the program: its lines are counted, too.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from typing import Any, Optional

from sam_pipeline.schema.program.wording import printable, printable_json

EVERY_S = 60.0
"""The number of repetitions is written after this time (s)."""


def set_up(verbosity: int, log_format: str) -> None:
    """Log at a level (1: debug, 0: info, -1: errors only) in a format ("text" or "json")."""
    level = {1: logging.DEBUG, 0: logging.INFO, -1: logging.ERROR}[verbosity]
    handler = FoldingHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in ("sqlalchemy", "alembic", "py4j", "urllib3"):
        logging.getLogger(library).setLevel(logging.ERROR)


def dropped_lines() -> int:
    """The number of log lines of this process that could not be written so far."""
    handlers = logging.getLogger().handlers
    return sum(handler.dropped for handler in handlers if isinstance(handler, FoldingHandler))


class FoldingHandler(logging.Handler):
    """Writes lines to a stream; a line equal to the last one is only counted.

    Two lines are equal if logger, level, text and exception are. "last line repeated N times" is
    written before the next line, at the end, and a minute after the first repetition.
    """

    lock: Any  # the base class holds it while it calls emit()

    def __init__(self, stream: Any, every_s: float = EVERY_S) -> None:
        super().__init__()
        self.dropped = 0
        self._stream = stream
        self._every_s = every_s
        self._last_key: object = None
        self._repetition: Optional[logging.LogRecord] = None
        self._repeated = 0
        self._timer: Optional[threading.Timer] = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            error = record.exc_info[1] if record.exc_info else None
            key = record.name, record.levelno, record.getMessage(), repr(error)
            if key != self._last_key:
                self._write_repeated()
                self._write(record)
                self._last_key = key
                return
            self._repetition = record
            self._repeated += 1
            if self._timer is None:
                self._timer = threading.Timer(self._every_s, self._end_repetition)
                self._timer.daemon = True
                self._timer.start()
        except Exception:  # the arguments do not fit the text: a bug in the caller
            self.handleError(record)

    def close(self) -> None:
        with self.lock:
            self._write_repeated()
        super().close()

    def _end_repetition(self) -> None:
        with self.lock:
            self._write_repeated()
            self._last_key = None  # a line that repeats for ever is written once a minute

    def _write_repeated(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        last, times = self._repetition, self._repeated
        self._repetition, self._repeated = None, 0
        if last is not None:
            text = f"last line repeated {'once' if times == 1 else f'{times} times'}"
            where = (last.name, last.levelno, last.pathname, last.lineno)
            summary = logging.LogRecord(*where, text, None, None)
            summary.created = last.created
            self._write(summary)

    def _write(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError, AttributeError):  # full or gone; closed; no stream at all
            self.dropped += 1


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return self._indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return self._indented(stack_info)

    def _indented(self, text: str) -> str:
        """The lines of a traceback, none of which can be taken for a line of the log."""
        return "\n".join(f"  {printable(line)}" for line in text.split("\n"))


class _JsonFormatter(_TextFormatter):
    """One JSON object per line: time, level, logger, message and any traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = logging.Formatter.formatException(self, record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))
