"""How a log line looks: on standard error, in UTC, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Optional

from sam_pipeline.schema.program.log_fold import FoldingHandler


def set_up(verbosity: int, log_format: str) -> None:
    """Log at a level (1: debug, 0: info, -1: errors only) in a format ("text" or "json")."""
    level = {1: logging.DEBUG, 0: logging.INFO, -1: logging.ERROR}[verbosity]
    handler = FoldingHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in ("sqlalchemy", "alembic", "py4j", "urllib3"):
        logging.getLogger(library).setLevel(logging.ERROR)


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: Optional[str] = None) -> str:
        return _utc(record)


def _utc(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))


class _JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _utc(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
