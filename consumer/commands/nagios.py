"""`check_sam_consumer`: the daemon's state for Nagios, Icinga and similar systems."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from sam_pipeline.consumer.commands.status import add_instance
from sam_pipeline.consumer.config import load_who, state_places
from sam_pipeline.consumer.monitoring.snapshot import DEGRADED, RUNNING, WAITING, Snapshot
from sam_pipeline.consumer.monitoring.state_file import is_alive, read_state
from sam_pipeline.schema.program.command import CommandParser, common_options, run, to_json

PROGRAM = "check_sam_consumer"
OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
LEVEL_OF_STATE = {RUNNING: OK, DEGRADED: WARNING, WAITING: WARNING}
"""Others are critical. A database that is away is critical by the age, if it stays away."""

LEVELS: Sequence[tuple[str, str, tuple[float | None, float | None]]] = (
    ("age", "seconds without a commit while something waits", (300, 900)),
    ("backlog", "messages that wait here", (None, None)),
    ("dead-letters", "open dead letters", (1, None)),
)
"""Options: name, meaning, and defaults of --warning-NAME and --critical-NAME; None: never."""

EXAMPLES = """\
examples:
  check_sam_consumer --config /etc/sam/sam.toml
  check_sam_consumer --config /etc/sam/sam.toml --instance 2
  check_sam_consumer --warning-age 600 --critical-age 3600 --critical-backlog 100000

The age is the time since the last commit while messages wait to be committed; without messages
it is 0, and no alarm. Exit codes are those of monitoring plugins:
  0 OK        messages are loaded
  1 WARNING   a broker is missing, the database is away, or a number reaches its --warning
  2 CRITICAL  there is no process, it is stuck, or a number reaches its --critical
  3 UNKNOWN   the state can't be read, or the configuration is bad
"""


@dataclass(frozen=True)
class Indicator:
    """A number with the levels that make it a warning, or critical; None: never."""

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
        levels = ";".join(map(_decimal, (self.warning, self.critical)))
        return f"{self.label}={_decimal(self.value)}{self.unit};{levels};0"


def _decimal(number: float | None) -> str:
    """Without an exponent, which few readers of performance data know."""
    return "" if number is None else f"{number:.3f}".rstrip("0").rstrip(".")


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv, _check)


def make_parser() -> CommandParser:
    parser = _Parser(
        prog=PROGRAM,
        parents=[common_options()],
        description="Report to a monitoring system how the consumer on this host does.",
        epilog=EXAMPLES,
    )
    add_instance(parser)
    for name, meaning, defaults in LEVELS:
        for level, default in zip(("warning", "critical"), defaults, strict=True):
            shown = "never" if default is None else f"{default:g}"
            parser.add_argument(
                f"--{level}-{name}",
                type=float,
                metavar="N",
                default=default,
                help=f"{level.upper()} from N {meaning} on (default: {shown})",
            )
    return parser


class _Parser(CommandParser):
    def error(self, message: str) -> NoReturn:
        print(f"SAM CONSUMER UNKNOWN - {message}; try {self.prog} --help")
        self.exit(UNKNOWN)


def _check(args: argparse.Namespace) -> int:
    """Any error is UNKNOWN, in a line on standard output: nobody reads standard error."""
    try:
        name = load_who(args)
        snapshot = read_state(state_places(), name)
    except Exception as error:
        return _print(UNKNOWN, str(error) or type(error).__name__, [], args.json)
    now = datetime.now(UTC)
    health = snapshot.health(now, is_alive(snapshot))
    indicators = list(_indicators(snapshot, now, args))
    level = max(
        LEVEL_OF_STATE.get(health.state, CRITICAL), *(indicator.level for indicator in indicators)
    )
    problems = [indicator.text for indicator in indicators if indicator.level]
    text = ", ".join([f"{snapshot.name} {health}", *problems])
    return _print(level, text, indicators, args.json)


def _indicators(snapshot: Snapshot, now: datetime, args: argparse.Namespace) -> Iterator[Indicator]:
    since = min(filter(None, (snapshot.behind_since, snapshot.waiting_since)), default=now)
    age_s = max((now - since).total_seconds(), 0.0)
    letters = sum((snapshot.open_dead_letters or {}).values())
    for label, text, value, unit in (
        ("age", f"nothing committed for {age_s:.0f} s", age_s, "s"),
        ("backlog", f"{snapshot.backlog} messages wait", snapshot.backlog, ""),
        ("dead_letters", f"{letters} open dead letters", letters, ""),
    ):
        warning, critical = (getattr(args, f"{level}_{label}") for level in ("warning", "critical"))
        yield Indicator(label, text, value, unit, warning, critical)
    if snapshot.lag_s is not None:
        yield Indicator("lag", f"lag {snapshot.lag_s:.1f} s", snapshot.lag_s, "s")
    yield Indicator("messages", f"{snapshot.messages} messages", snapshot.messages, "c")
    yield Indicator("rows", f"{snapshot.rows} rows", snapshot.rows, "c")


def _print(level: int, text: str, indicators: Sequence[Indicator], as_json: bool) -> int:
    if as_json:
        values = {indicator.label: indicator.value for indicator in indicators}
        print(to_json({"code": level, "state": NAMES[level], "text": text, **values}))
    else:
        line = f"{NAMES[level]} - {' '.join(text.split()).replace('|', '/')}"
        print(f"SAM CONSUMER {line} | {' '.join(map(str, indicators))}".removesuffix(" | "))
    return level
