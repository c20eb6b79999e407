"""Log lines go to standard error, in UTC, as text or as JSON.

If that is the journal of systemd, each line begins with its priority (sd-daemon(3)), and text has
no time, which the journal adds. Repetitions of a line are counted and not written. A log that can't
be written (disk full, reader gone) never stops the program: its lines are also counted.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Optional

from sam_pipeline.schema.program.wording import printable, printable_json

EVERY_S = 60.0
"""The number of repetitions is written after this time (s)."""
FIELDS = (
    *("broker", "message_id", "message_class", "login", "publisher"),
    *("claimed_host", "claimed_program", "claimed_user"),
)
"""The attributes, given as `extra`, that JSON lines contain."""
PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""The priorities of syslog by the lowest level of each; below them it is 7, debug."""


def set_up(verbosity: int, log_format: str) -> None:
    """Log at a level (1: debug, 0: info, -1: errors only) in a format ("text" or "json")."""
    level = {1: logging.DEBUG, 0: logging.INFO, -1: logging.ERROR}[verbosity]
    handler = FoldingHandler(sys.stderr)
    handler.setFormatter(_formatter(log_format))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in ("sqlalchemy", "alembic", "urllib3", "py4j"):
        logging.getLogger(library).setLevel(logging.ERROR)


def error_lines(program: str, texts: Iterable[str], log_format: str) -> list[str]:
    """The errors that end a program, as lines of its log."""
    formatter = _formatter(log_format, "%(name)s: error: %(message)s")
    return [
        formatter.format(logging.LogRecord(program, logging.ERROR, "", 0, "%s", (text,), None))
        for text in texts
    ]


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
            self._last_key = None  # a line that repeats forever is written once a minute

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


def _formatter(log_format: str, line: str = "") -> logging.Formatter:
    """The formatter of standard error; `line` replaces the usual format of text."""
    try:  # the variable is inherited by programs whose standard error is something else
        status = os.fstat(sys.stderr.fileno())
        is_journal = os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    except (OSError, ValueError, AttributeError):
        is_journal = False
    time_of_line = "" if is_journal else "%(asctime)s "
    line = line or f"{time_of_line}%(levelname)s %(name)s: %(message)s"
    formatter = _JsonFormatter() if log_format == "json" else _TextFormatter(line)
    return _JournalFormatter(formatter) if is_journal else formatter


class _JournalFormatter(logging.Formatter):
    """Puts the priority before each line, also of a traceback."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        priority = next((n for level, n in PRIORITIES if record.levelno >= level), 7)
        lines = self._formatter.format(record).split("\n")
        return "\n".join(f"<{priority}>{line}" for line in lines)


class _TextFormatter(logging.Formatter):
    def __init__(self, line: Optional[str] = None) -> None:
        super().__init__(line, "%Y-%m-%dT%H:%M:%SZ")
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
    """One JSON object per line: time, level, logger, message, and any FIELDS and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = vars(record)
        line.update((name, given[name]) for name in FIELDS if given.get(name))
        if record.exc_info:
            line["traceback"] = logging.Formatter.formatException(self, record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))
