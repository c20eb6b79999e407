"""Shared by all command lines: exit codes, common options, logging, output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional, TextIO

from sam_pipeline.schema import errors
from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.log import lazy_logger, when_first_used
from sam_pipeline.schema.program.wording import printable, printable_json

OK = 0
USAGE = 64
BAD_DATA = errors.BAD_DATA
NO_INPUT = 66
UNAVAILABLE = 69
BUG = errors.BUG
CANNOT_CREATE = errors.CANNOT_CREATE
IO_ERROR = errors.IO_ERROR
TRY_LATER = 75
NO_PERMISSION = errors.NO_PERMISSION
CONFIG = errors.CONFIG
INTERRUPTED = 130

MAX_INTEGER = 2**63 - 1
"""The largest integer of the databases."""
if TYPE_CHECKING:
    from datetime import date

_DEFAULTS = {"config": None, "verbosity": 0, "log_format": "text", "json": False}

logger = lazy_logger(__name__)

# Help and usage are in English: looking for a translation of every text, on disk, would make
# publishing a result 3 % slower.
argparse._ = str  # type: ignore[attr-defined]


class CommandParser(argparse.ArgumentParser):
    """A parser that exits with 64 after a usage error, and keeps the line breaks of help texts."""

    def __init__(self, **keywords: Any) -> None:
        # Without a width argparse imports shutil, which would make publishing a result 4 % slower.
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(2).columns) or 80
        except (OSError, ValueError):
            columns = 80
        formatter = partial(argparse.RawDescriptionHelpFormatter, width=columns - 2)
        keywords.setdefault("formatter_class", formatter)
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {printable(message)}\nTry: {self.prog} --help\n")


def program_parser(
    program: str, description: str, examples: str, common: argparse.ArgumentParser
) -> CommandParser:
    """The parser of a program, with the common options and `--version`."""
    parser = CommandParser(prog=program, description=description, epilog=examples, parents=[common])
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    return parser


def common_options() -> argparse.ArgumentParser:
    """A parent parser: the options that each program accepts before and after its subcommand."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group("common options")
    group.add_argument("--config", metavar="FILE", help="read this sam.toml")
    group.add_argument(
        "-v", dest="verbosity", action="store_const", const=1, help="log debug messages, too"
    )
    group.add_argument(
        "-q", dest="verbosity", action="store_const", const=-1, help="log errors only"
    )
    group.add_argument("--log-format", choices=["text", "json"], help="format of the log on stderr")
    group.add_argument("--json", action="store_true", help="print the result as one JSON document")
    return parser


class _Version(argparse.Action):
    """Looks up the version only when asked to: that takes longer than publishing a result."""

    def __init__(self, option_strings: list[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print_lines(f"{parser.prog} {version('sam-pipeline')}")
        parser.exit()


def whole_number(at_least: int = 1, at_most: int = MAX_INTEGER) -> Callable[[str], int]:
    """The argparse `type` of a whole number within limits."""

    def convert(text: str) -> int:
        # int() also accepts digits of other scripts, and is slow with thousands of digits.
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if at_least <= number <= at_most:
            return number
        limits = f"{at_least} or more" if at_most == MAX_INTEGER else f"{at_least} to {at_most}"
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number (expected {limits})")

    return convert


def day_argument(text: str) -> date:
    """The argparse `type` of a day, `YYYY-MM-DD`."""
    from sam_pipeline.schema.times import parse_day

    try:
        return parse_day(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(
    program: str,
    parser: argparse.ArgumentParser,
    argv: Optional[Sequence[str]],
    handler: Callable[[argparse.Namespace], int],
) -> int:
    """Parse `argv`, set up logging and call `handler`; return the exit code.

    An error becomes one line on stderr and an exit code.
    """
    args = argparse.Namespace(**{**_DEFAULTS, **vars(parser.parse_args(argv))})

    def set_up_logging() -> None:
        from sam_pipeline.schema.program import log_output

        log_output.set_up(args.verbosity, args.log_format)

    if "logging" in sys.modules:
        set_up_logging()
    else:
        when_first_used(set_up_logging)
    try:
        code = handler(args)
        sys.stdout.flush()
    except SamError as error:
        return _fail(program, error.lines, error.exit_code)
    except KeyboardInterrupt:
        return _fail(program, ["interrupted"], INTERRUPTED)
    except BrokenPipeError:  # nobody reads our output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        logger.debug("traceback of the error", exc_info=True)
        return _fail(program, [str(error)], IO_ERROR)
    except Exception as error:
        logger.debug("traceback of the bug", exc_info=True)
        bug = f"a bug: {type(error).__name__}: {error}"
        return _fail(program, [f"{bug} (-v shows the traceback)"], BUG)
    return code


def print_lines(*lines: object, file: Optional[TextIO] = None) -> None:
    """Print each argument on a line of its own (see `printable`), on standard output or `file`."""
    for line in lines:
        print(printable(str(line)), file=file)


def print_json(value: object, file: Optional[TextIO] = None) -> None:
    """Print one JSON document, on standard output or `file`: see `to_json`."""
    print(to_json(value), file=file)


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table; numbers are right-aligned, None is an empty cell."""
    body = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    widths, numeric = [], []
    for title, *cells in zip(columns, *body):
        widths.append(max(map(len, (title, *cells))))
        numbers = (cell.replace(".", "", 1).lstrip("-") for cell in cells if cell not in ("", "-"))
        numeric.append(all(map(str.isdigit, numbers)))
    lines = [list(columns), ["-" * width for width in widths], *body]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric)
        ).rstrip()
        for line in lines
    ]


def to_json(value: object) -> str:
    """One JSON document; times as `…Z`, days as `YYYY-MM-DD`, decimals as numbers."""
    import json  # slow to import, and most calls print a line of text
    from datetime import date, datetime
    from decimal import Decimal

    from sam_pipeline.schema.times import format_time

    def encode(value: object) -> object:
        if isinstance(value, datetime):
            return format_time(value)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Decimal):
            return float(value)
        raise TypeError(f"{type(value).__name__} has no JSON form")

    return printable_json(json.dumps(value, indent=2, ensure_ascii=False, default=encode))


def _fail(program: str, lines: Iterable[str], code: int) -> int:
    try:
        for line in lines:
            print_lines(f"{program}: error: {line}", file=sys.stderr)
    except (OSError, ValueError):  # stderr is full or closed: the exit code remains
        pass
    return code
