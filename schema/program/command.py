"""Shared by all command lines: exit codes, common options, logging, output."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache, partial
from importlib import import_module
from typing import Any, Callable, NoReturn, Optional, TextIO, Union

from sam_pipeline.schema import VERSION, errors
from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.log import lazy_logger, when_first_used
from sam_pipeline.schema.program.wording import printable, printable_json
from sam_pipeline.schema.times import format_time, parse_duration

OK = 0
USAGE = errors.USAGE
BAD_DATA = errors.BAD_DATA
NO_INPUT = errors.NO_INPUT
UNAVAILABLE = errors.UNAVAILABLE
BUG = errors.BUG
CANNOT_CREATE = errors.CANNOT_CREATE
IO_ERROR = errors.IO_ERROR
TRY_LATER = errors.TRY_LATER
NO_PERMISSION = errors.NO_PERMISSION
CONFIG = errors.CONFIG
INTERRUPTED = 130
TERMINATED = 143

MAX_INTEGER = 2**63 - 1
"""The largest integer of the databases."""

_unwritten: list[OSError] = []
"""Why standard output could not be written in this call of `run`."""
_readers_gone: list[BrokenPipeError] = []
"""Why it could not, if the reader of the pipe, such as `head`, has closed it."""

_DEFAULTS = {"config": None, "verbosity": 0, "log_format": "text", "json": False}

logger = lazy_logger(__name__)

# Help and usage are in English: looking for a translation of every text, on disk, would make
# publishing a result 3 % slower.
argparse._ = str  # type: ignore[attr-defined]


class CommandParser(argparse.ArgumentParser):
    """A parser with the common options that exits with 64 after a usage error.

    An unknown option is reported by the command that does not know it, with the nearest name.
    Without any argument, a parser with commands prints them; `help COMMAND` is `COMMAND --help`.
    """

    advice = ""
    """What to write instead of unknown options that no `--` precedes."""

    def __init__(self, **keywords: Any) -> None:
        # Without a width argparse imports shutil, which would make publishing a result 4 % slower.
        formatter = partial(argparse.HelpFormatter, width=78)
        keywords = {"parents": [common_options()], "formatter_class": formatter, **keywords}
        super().__init__(allow_abbrev=False, add_help=False, **keywords)

    def add_subparsers(self, **keywords: Any) -> Any:
        return super().add_subparsers(
            **{"prog": self.prog, "required": True, "metavar": "COMMAND", **keywords}
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = sys.argv[1:] if args is None else list(args)
        if self._subparsers and not self._given:
            self.exit(USAGE, _help().commands_text(self))
        if self._subparsers and self._given[0] == "help":
            self._given = [*self._given[1:], "--help"]
        namespace, unknown = super().parse_known_args(self._given, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        message = _help().explained(self, self._given, message, self.advice)
        self.exit(USAGE, f"{self.prog}: error: {printable(message)}\nTry: {self.prog} --help\n")

    def format_help(self) -> str:
        return str(_help().help_text(self))

    def _print_message(self, message: str, file: Any = None) -> None:
        print_text(message, file or sys.stderr)


class LazyCommand(CommandParser):
    """A command whose module is imported, and whose options are added, when it is called.

    So a program starts quickly, and without the packages that only some of its commands need.
    """

    def __init__(self, module: str = "", **keywords: Any) -> None:
        super().__init__(**({"parents": []} if module else {}), **keywords)
        self._module = module

    def load_options(self) -> None:
        """Import the module and add its options, unless that was done."""
        if self._module:
            name, _, function = self._module.partition(":")
            getattr(import_module(name), function or "add_options")(self)
            self._add_container_actions(common_options())
            self._module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.load_options()
        return super().parse_known_args(args, namespace)


def program_parser(
    program: str,
    description: str,
    examples: str,
    package: str,
    commands: Mapping[str, Mapping[str, tuple[str, str]]],
) -> CommandParser:
    """The parser of a program, with its commands in groups.

    Each has the name of its module in `package`, and a summary. The module has a function
    `add_options`, unless another one is named as `MODULE:FUNCTION`.
    """
    parser = CommandParser(prog=program, description=description, epilog=examples)
    actions = parser.add_subparsers(dest="command", parser_class=LazyCommand)
    actions.groups = commands
    for group in commands.values():
        for name, (module, summary) in group.items():
            add_action(actions, name, None, summary, module=f"{package}.{module}")
    return parser


def add_action(
    actions: Any,
    name: str,
    handler: Optional[Callable[[argparse.Namespace], int]],
    summary: str,
    epilog: str = "",
    **keywords: Any,
) -> Any:
    """Add a command or an action to `actions` (of add_subparsers); return its parser."""
    description = f"{summary[0].upper()}{summary[1:]}."
    parser = actions.add_parser(
        name, help=summary, description=description, epilog=epilog, **keywords
    )
    if handler:
        parser.set_defaults(handler=handler, usage_error=parser.error)
    return parser


AddOption = Callable[[argparse.ArgumentParser], object]


class Verb:
    """A command below a noun, such as `list`: its summary, its action, and its options."""

    def __init__(
        self, summary: str, handler: Callable[[argparse.Namespace], int], *options: AddOption
    ) -> None:
        self.summary, self.handler, self.options = summary, handler, options


def option(*names: str, **keywords: Any) -> AddOption:
    """An argument of a `Verb`, as of `add_argument`."""
    return lambda parser: parser.add_argument(*names, **keywords)


def add_verbs(noun: argparse.ArgumentParser, examples: str, **verbs: Verb) -> None:
    """Add the commands below a noun, by their names."""
    noun.epilog = examples
    actions = noun.add_subparsers()
    for name, verb in verbs.items():
        parser = add_action(actions, name, verb.handler, verb.summary, examples)
        for add in verb.options:
            add(parser)


@cache
def common_options() -> argparse.ArgumentParser:
    """A parent parser: the options that each program accepts before and after its subcommand."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    add = parser.add_argument_group("common options").add_argument
    add(
        "--config",
        metavar="FILE",
        help="the configuration file (default: $SAM_CONFIG, else the first of ./sam.toml,"
        " ~/.config/sam/sam.toml and /etc/sam/sam.toml)",
    )
    add(
        *("-v", "--verbose"),
        dest="verbosity",
        action="store_const",
        const=1,
        help="also log debug messages",
    )
    add(
        *("-q", "--quiet"),
        dest="verbosity",
        action="store_const",
        const=-1,
        help="log errors only, and do not report success",
    )
    add("--log-format", choices=["text", "json"], help="format of the log on stderr")
    add("--json", action="store_true", help="print the result as one JSON document")
    add("-h", "--help", action="help", help="print this help")
    add("-V", "--version", action=_Version, nargs=0, help="print the version")
    return parser


class _Version(argparse.Action):
    """Prints the version like all other output: that never fails."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print_lines(f"{parser.prog.split()[0]} {VERSION}")
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


def number(text: str) -> float:
    """The argparse `type` of a number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number (expected 0 or more)")
    return value


def duration_argument(text: str) -> float:
    """The argparse `type` of a duration in seconds of at least 0: `10`, `10s`, `5m`."""
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        try:
            return number(text)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(str(error)) from None


def checked_argument(problem_of: Callable[[str], Optional[str]]) -> Callable[[str], str]:
    """The argparse `type` of a text that has no problem."""

    def checked(text: str) -> str:
        if problem := problem_of(text):
            raise argparse.ArgumentTypeError(problem)
        return text

    return checked


def text_argument(text: str) -> str:
    """The argparse `type` of a name or a text, which must not be empty, as `$UNSET` would be."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("is not valid UTF-8") from None
    return text.strip()


def run(
    parser: argparse.ArgumentParser,
    argv: Optional[Sequence[str]],
    handler: Optional[Callable[[argparse.Namespace], int]] = None,
) -> int:
    """Parse `argv`, set up logging and call `handler`, or the command's own; return the exit code.

    An error becomes lines on stderr and an exit code. Output that can't be written is an error too,
    but never stops the handler.
    """
    _open_closed_streams()
    _unwritten.clear()
    _readers_gone.clear()
    lines: list[str] = []
    log_format = "text"
    ended: Optional[SystemExit] = None
    try:
        args = argparse.Namespace(**{**_DEFAULTS, **vars(parser.parse_args(argv))})

        log_format = args.log_format

        def set_up_logging() -> None:
            _log_output().set_up(args.verbosity, args.log_format)

        if "logging" in sys.modules:
            set_up_logging()
        else:
            when_first_used(set_up_logging)
        code = int((handler or args.handler)(args))
    except SystemExit as exit:  # --help, a usage error, a signal
        ended, code = exit, exit.code if isinstance(exit.code, int) else OK
    except SamError as error:
        lines, code = [*error.lines], error.exit_code
    except KeyboardInterrupt:
        lines, code = ["interrupted"], INTERRUPTED
    except OSError as error:
        logger.debug("traceback of the error", exc_info=True)
        lines, code = [str(error)], IO_ERROR
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            lines, code = errors.how_to_install(error.name or ""), UNAVAILABLE
        if not lines:
            logger.debug("traceback of the bug", exc_info=True)
            bug = f"a bug: {type(error).__name__}: {error}"
            lines, code = [f"{bug} (-v shows the traceback)"], BUG
    _flush(sys.stdout)
    if _unwritten:
        lines.append(f"standard output can't be written: {_unwritten[0].strerror}")
        code = code or IO_ERROR
    if lines and (log_format == "json" or "JOURNAL_STREAM" in os.environ):
        formatted = _log_output().error_lines(parser.prog, lines, log_format)
        print_text("".join(f"{line}\n" for line in formatted), sys.stderr)
    else:
        print_lines(*[f"{parser.prog}: error: {line}" for line in lines], file=sys.stderr)
    _flush(sys.stderr)
    if ended is not None and not _unwritten:
        raise ended
    return code


def print_lines(*lines: object, file: Optional[TextIO] = None) -> None:
    """Print each argument on a line of its own (see `printable`), on standard output or `file`.

    Like all printing here it never fails: `run` reports what could not be written.
    """
    for line in lines:
        print_text(f"{printable(str(line))}\n", file)


def print_done(
    args: argparse.Namespace, *lines: object, success: bool = True, file: Optional[TextIO] = None
) -> None:
    """Report the outcome at once, like `print_lines`; with -q only if it was not a success."""
    if args.verbosity >= 0 or not success:
        print_lines(*lines, file=file)
        _flush(file or sys.stdout)


def output_ended() -> bool:
    """Flush standard output; returns whether its reader is gone or it can't be written."""
    _flush(sys.stdout)
    if _unwritten or _readers_gone:
        return True
    reader = select.poll()
    reader.register(sys.stdout, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in reader.poll(0))


def print_json(value: object, file: Optional[TextIO] = None) -> None:
    """Print one JSON document, on standard output or `file`: see `to_json`."""
    print_text(f"{to_json(value)}\n", file)


def print_json_line(value: object) -> None:
    """Print one of many JSON documents, on a line of its own."""
    print_text(f"{to_json(value, indent=None)}\n")


def print_json_array(items: Iterable[object]) -> None:
    """Print one JSON document, an array; each item as soon as it is known.

    The array is closed even if an error follows the last item.
    """
    before = "[\n  "
    try:
        for item in items:
            print_text(before + to_json(item).replace("\n", "\n  "))
            before = ",\n  "
    finally:
        print_text("[]\n" if before[0] == "[" else "\n]\n")


def print_text(text: Union[str, bytes], file: Optional[TextIO] = None) -> None:
    """Print a text as it is, on standard output or `file`."""
    file = file or sys.stdout
    try:
        if isinstance(text, str):
            file.write(text)
        else:
            file.buffer.write(text)
    except OSError as error:
        _discard(file, error)


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table; numbers are right-aligned, None is an empty cell."""
    body = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    widths, numeric = [], []
    for title, *cells in zip(columns, *body):
        widths.append(max(map(len, (title, *cells))))
        numbers = (cell.replace(".", "", 1).lstrip("+-") for cell in cells if cell not in ("", "-"))
        numeric.append(all(map(str.isdigit, numbers)))
    lines = [list(columns), ["-" * width for width in widths], *body]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric)
        ).rstrip()
        for line in lines
    ]


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Print a table, or if it has no rows, that there are none."""
    print_lines(*text_table(columns, rows) if rows else [empty])


def to_json(value: object, indent: Optional[int] = 2) -> str:
    """One JSON document; times as `…Z`, days as `YYYY-MM-DD`, decimals as numbers.

    Without `indent` it is on one line.
    """

    def encode(value: object) -> object:
        if isinstance(value, datetime):
            return format_time(value)
        if isinstance(value, date):
            return value.isoformat()
        return float(value)  # type: ignore[arg-type]  # a Decimal; of another class it is a bug

    return printable_json(json.dumps(value, indent=indent, ensure_ascii=False, default=encode))


def _help() -> Any:
    """The module `help`, which few calls need."""
    from sam_pipeline.schema.program import help

    return help


def _log_output() -> Any:
    """The module `log_output`: with `logging`, a call that logs nothing would be 17 % slower."""
    from sam_pipeline.schema.program import log_output

    return log_output


def _open_closed_streams() -> None:
    """Write to /dev/null where the caller has closed standard output or standard error.

    Otherwise the next file or socket would take its place, and errors would go to standard output.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, open(descriptor, "w", closefd=False))  # noqa: SIM115


def _flush(stream: TextIO) -> None:
    """Flush at the end of a program, where Python itself would fail with a traceback and 120."""
    try:
        stream.flush()
    except OSError as error:
        _discard(stream, error, at_the_end=True)


def _discard(stream: TextIO, error: OSError, at_the_end: bool = False) -> None:
    """Discard what follows on standard output, or at the end on standard error, and note why.

    It is not an error if a reader such as `head` has read enough.
    """
    if stream is sys.stdout:
        if isinstance(error, BrokenPipeError):
            _readers_gone.append(error)
        else:
            _unwritten.append(error)
    if stream is sys.stdout or at_the_end:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
