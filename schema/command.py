"""What the command lines of all programs share: exit codes, common options, logging, output."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Callable, NoReturn, Optional

from schema import errors
from schema.errors import SamError
from schema.times import format_time

OK = 0
USAGE = 64
BAD_DATA = errors.BAD_DATA
NO_INPUT = 66
UNAVAILABLE = 69
BUG = errors.BUG
CANNOT_CREATE = errors.CANNOT_CREATE
IO_ERROR = 74
TRY_LATER = 75
NO_PERMISSION = 77
CONFIG = errors.CONFIG
INTERRUPTED = 130

_DEFAULTS = {"config": None, "verbosity": 0, "log_format": "text", "json": False}

logger = logging.getLogger(__name__)


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose usage errors exit 64 and whose help keeps its line breaks."""

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {message}\nTry: {self.prog} --help\n")


def common_options() -> argparse.ArgumentParser:
    """The options every program takes before and after any subcommand: a parent parser."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("common options")
    group.add_argument("--config", metavar="FILE", help="sam.toml to read")
    group.add_argument(
        "-v", dest="verbosity", action="store_const", const=1, help="log what is done in detail"
    )
    group.add_argument(
        "-q", dest="verbosity", action="store_const", const=-1, help="log errors only"
    )
    group.add_argument("--log-format", choices=["text", "json"], help="of the log on stderr")
    group.add_argument("--json", action="store_true", help="print the result as one JSON document")
    return parser


def run(
    program: str,
    parser: argparse.ArgumentParser,
    argv: Optional[Sequence[str]],
    handler: Callable[[argparse.Namespace], int],
) -> int:
    """Parse, set up logging and call `handler`; every error becomes one line and an exit code."""
    args = parser.parse_args(argv)
    for name, value in _DEFAULTS.items():
        if not hasattr(args, name):
            setattr(args, name, value)
    _set_up_logging(args.verbosity, args.log_format)
    try:
        code = handler(args)
        sys.stdout.flush()
    except SamError as error:
        return _fail(program, str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail(program, "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output went away; nothing is left to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        logger.debug("the error in full", exc_info=True)
        return _fail(program, str(error), IO_ERROR)
    except Exception as error:
        logger.debug("the bug in full", exc_info=True)
        words = f"a bug: {type(error).__name__}: {error} (-v shows where)"
        return _fail(program, words, BUG)
    return code


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An aligned table for a terminal or a pipe; numbers to the right, None empty."""
    body = [["" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in body) for at in range(len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *body)]
    lines = [list(columns), ["-" * width for width in widths], *body]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric)
        ).rstrip()
        for line in lines
    )


def to_json(value: object) -> str:
    """One JSON document; times as `…Z`, days as `YYYY-MM-DD`, decimals as numbers."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).lstrip("-").isdigit() or cell in ("", "-")


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not for JSON")


def _fail(program: str, text: str, code: int) -> int:
    for line in text.splitlines() or [""]:
        print(f"{program}: error: {line}", file=sys.stderr)
    return code


def _set_up_logging(verbosity: int, log_format: str) -> None:
    level = {1: logging.DEBUG, 0: logging.INFO, -1: logging.ERROR}[verbosity]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in ("stomp", "stomp.py", "sqlalchemy", "alembic", "py4j", "urllib3"):
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
