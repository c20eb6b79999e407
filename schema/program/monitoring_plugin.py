"""Plugins of monitoring systems: one line with performance data, and an exit code of 0 to 3.

Thresholds are options: `--warning-NAME` and `--critical-NAME`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Callable, NamedTuple, NoReturn, Optional

from sam_pipeline.schema.program.command import CommandParser, number, print_json, print_lines, run
from sam_pipeline.schema.program.wording import one_line

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

CERTIFICATE_DAYS = "certificate_days"
SHARES = (3, 10)
"""A certificate is at most a warning in the last third of its life, critical in the last tenth."""


class PluginThreshold(NamedTuple):
    """The name and the meaning of a value, and the defaults at which it is a problem, or None."""

    name: str
    meaning: str
    warning: Optional[float]
    critical: Optional[float]


DAYS_LEFT = PluginThreshold("certificate-days", "days left of a certificate, or fewer", 14, 3)


class PluginParser(CommandParser):
    """Reports a usage error on standard output, since monitoring ignores standard error."""

    def error(self, message: str) -> NoReturn:
        subject = self.prog.replace("check_", "").replace("_", " ").upper()
        print_lines(f"{subject} UNKNOWN - {one_line(message)}; try {self.prog} --help")
        self.exit(UNKNOWN)


def plugin_parser(
    program: str, description: str, examples: str, thresholds: Sequence[PluginThreshold]
) -> CommandParser:
    """The parser of a plugin, with the options of its thresholds."""
    parser = PluginParser(prog=program, description=description, epilog=examples)
    for name, meaning, *defaults in thresholds:
        for level, default in zip(("warning", "critical"), defaults):
            shown = "never" if default is None else f"{default:g}"
            parser.add_argument(
                f"--{level}-{name}",
                type=number,
                metavar="N",
                default=default,
                help=f"{level.upper()} at N {meaning} (default: {shown})",
            )
    return parser


def run_plugin(
    parser: CommandParser,
    argv: Optional[Sequence[str]],
    check: Callable[[argparse.Namespace], int],
) -> int:
    """Run the plugin; any other exit code than its own becomes UNKNOWN."""
    code = run(parser, argv, check)
    return code if code in range(len(NAMES)) else UNKNOWN


class PluginReport:
    """What a plugin prints: the worst level, the reasons for it, and all values."""

    def __init__(self, args: argparse.Namespace, subject: str) -> None:
        self.texts: list[str] = []
        self._args = args
        self._subject = subject
        self._level = OK
        self._values: dict[str, float] = {}
        self._data: list[str] = []
        self._days_left: dict[str, float] = {}

    def raise_to(self, level: int, *texts: str) -> None:
        """Report at least this level, for these reasons."""
        self._level = max(self._level, level)
        self.texts += texts

    def judge(self, label: str, value: float, unit: str = "", text: str = "") -> None:
        """Add a value; where it reaches a threshold of that name, `text` is a reason."""
        limits = self._limits(label)
        level = OK
        for reached, limit in enumerate(limits, WARNING):
            if limit is not None and value >= limit:
                level = reached
        self.raise_to(level, *[text] * bool(level))
        shown = ";".join("" if limit is None else decimal(limit) for limit in limits)
        self._values[label] = value
        self._data.append(f"{label}={decimal(value)}{unit};{shown};0")

    def judge_certificate(self, file: str, begin: datetime, end: datetime, now: datetime) -> None:
        """Add the days left of a certificate; the fewest of all certificates are the value."""
        day = timedelta(days=1)
        self._days_left[file] = left = (end - now) / day
        level = OK
        limits = self._limits(CERTIFICATE_DAYS)
        for reached, (limit, share) in enumerate(zip(limits, SHARES), WARNING):
            if limit is not None and left <= min(limit, (end - begin) / day / share):
                level = reached
        verb = "expired" if left < 0 else "expires"
        self.raise_to(level, *[f"{file} {verb} on {end:%Y-%m-%d %H:%M} UTC"] * bool(level))

    def print(self) -> int:
        """Print the line or the JSON document, and return the level."""
        if self._days_left:
            limits = self._limits(CERTIFICATE_DAYS)
            shown = ";".join("" if limit is None else f"{decimal(limit)}:" for limit in limits)
            fewest = min(self._days_left.values())
            self._values[CERTIFICATE_DAYS] = fewest
            self._data.append(f"{CERTIFICATE_DAYS}={decimal(fewest)};{shown}")
        text = ", ".join(self.texts)
        if self._args.json:
            state = {"code": self._level, "state": NAMES[self._level], "text": text}
            print_json({**state, **self._values})
        else:
            line = one_line(text).replace("|", "/")
            data = f" | {' '.join(self._data)}" if self._data else ""
            print_lines(f"{self._subject} {NAMES[self._level]} - {line}{data}")
        return self._level

    def _limits(self, label: str) -> Sequence[Optional[float]]:
        return [getattr(self._args, f"{level}_{label}", None) for level in ("warning", "critical")]


def failure(args: argparse.Namespace, subject: str, error: Exception) -> int:
    """Print why the state can't be read, which is UNKNOWN."""
    report = PluginReport(args, subject)
    report.raise_to(UNKNOWN, str(error).replace("\n", "; ") or type(error).__name__)
    return report.print()


def decimal(value: float) -> str:
    """The number without an exponent, which few readers of performance data understand."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
