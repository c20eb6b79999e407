"""`check_sam_consumer`: the daemon's state for Nagios, Icinga and their kin."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from sam_pipeline.consumer.commands.status import add_instance
from sam_pipeline.consumer.config import load_who, state_places
from sam_pipeline.consumer.monitoring.snapshot import (
    DEGRADED,
    RUNNING,
    WAITING,
    Snapshot,
    Verdict,
    judge,
)
from sam_pipeline.consumer.monitoring.state_file import is_alive, read_state
from sam_pipeline.schema.program.command import CommandParser, common_options, run, to_json

PROGRAM = "check_sam_consumer"
OK, WARNING, CRITICAL, UNKNOWN = range(4)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

LEVELS: Sequence[tuple[str, str, tuple[float | None, float | None]]] = (
    ("age", "seconds without a commit while something waits", (300, 900)),
    ("backlog", "messages that wait here", (None, None)),
    ("dead-letters", "open dead letters", (1, None)),
)
"""Options, and from which values on it is a warning and critical; None: never."""

EXAMPLES = """\
examples:
  check_sam_consumer --config /etc/sam/sam.toml
  check_sam_consumer --config /etc/sam/sam.toml --instance 2
  check_sam_consumer --warning-age 600 --critical-age 3600 --critical-backlog 100000

The age is how long ago the last commit was while something waits to be committed; a daemon
without messages is of age 0, and no alarm. Exit codes are those of monitoring plugins:
  0 OK        it loads what comes
  1 WARNING   a broker is missing, the database is away, or a number is above its --warning
  2 CRITICAL  there is no process, it is stuck, or a number is above its --critical
  3 UNKNOWN   no state is to be had, or the configuration is bad
"""


@dataclass(frozen=True)
class Figure:
    """A number with the levels above which it is a warning, or critical; None: never."""

    label: str
    text: str
    value: float
    unit: str
    warning: float | None = None
    critical: float | None = None

    @property
    def level(self) -> int:
        if self.critical is not None and self.value >= self.critical:
            return CRITICAL
        return WARNING if self.warning is not None and self.value >= self.warning else OK

    def __str__(self) -> str:
        levels = ";".join(map(_plain, (self.warning, self.critical)))
        return f"{self.label}={_plain(self.value)}{self.unit};{levels};0"


def _plain(number: float | None) -> str:
    """Without an exponent, which few readers of such numbers know."""
    return "" if number is None else f"{number:.3f}".rstrip("0").rstrip(".")


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv, _check)


def make_parser() -> CommandParser:
    parser = _Parser(
        prog=PROGRAM,
        parents=[common_options()],
        description="Tell a monitoring system how the consumer on this host does.",
        epilog=EXAMPLES,
    )
    add_instance(parser)
    for name, words, defaults in LEVELS:
        for level, default in zip(("warning", "critical"), defaults, strict=True):
            shown = "never" if default is None else f"{default:g}"
            parser.add_argument(
                f"--{level}-{name}",
                type=float,
                metavar="N",
                default=default,
                help=f"{level.upper()} from so many {words} (default: {shown})",
            )
    return parser


class _Parser(CommandParser):
    def error(self, message: str) -> NoReturn:
        print(f"SAM CONSUMER UNKNOWN - {message}; try {self.prog} --help")
        self.exit(UNKNOWN)


def _check(args: argparse.Namespace) -> int:
    """Whatever goes wrong is UNKNOWN, in a line on standard output: nobody reads the other one."""
    try:
        name = load_who(args)
        said = read_state(state_places(), name)
    except Exception as error:
        return _tell(UNKNOWN, str(error) or type(error).__name__, [], args.json)
    now = datetime.now(UTC)
    verdict = judge(said, now, is_alive(said))
    figures = list(_figures(said, now, args))
    level = max(_level_of(verdict), *(figure.level for figure in figures))
    bad = [figure.text for figure in figures if figure.level]
    return _tell(level, ", ".join([f"{said.name} {verdict}", *bad]), figures, args.json)


def _level_of(verdict: Verdict) -> int:
    """A database that is away for a moment calls nobody: the age will, if it stays away."""
    return {RUNNING: OK, DEGRADED: WARNING, WAITING: WARNING}.get(verdict.state, CRITICAL)


def _figures(said: Snapshot, now: datetime, args: argparse.Namespace) -> Iterator[Figure]:
    since = min(filter(None, (said.behind_since, said.waiting_since)), default=now)
    age_s = max((now - since).total_seconds(), 0.0)
    words = f"nothing committed for {age_s:.0f} s"
    yield Figure("age", words, age_s, "s", args.warning_age, args.critical_age)
    words = f"{said.backlog} messages wait"
    levels = args.warning_backlog, args.critical_backlog
    yield Figure("backlog", words, said.backlog, "", *levels)
    letters = sum((said.open_dead_letters or {}).values())
    words = f"{letters} open dead letters"
    levels = args.warning_dead_letters, args.critical_dead_letters
    yield Figure("dead_letters", words, letters, "", *levels)
    if said.lag_s is not None:
        yield Figure("lag", f"lag {said.lag_s:.1f} s", said.lag_s, "s")
    yield Figure("messages", f"{said.messages} messages", said.messages, "c")
    yield Figure("rows", f"{said.rows} rows", said.rows, "c")


def _tell(level: int, text: str, figures: Sequence[Figure], as_json: bool) -> int:
    line = f"{WORDS[level]} - {' '.join(text.split()).replace('|', '/')}"
    if as_json:
        values = {figure.label: figure.value for figure in figures}
        print(to_json({"code": level, "state": WORDS[level], "text": text, **values}))
    else:
        print(f"SAM CONSUMER {line} | {' '.join(map(str, figures))}".removesuffix(" | "))
    return level


if __name__ == "__main__":
    sys.exit(main())
