"""`check_sam_consumer`: the state of the daemon for Nagios, Icinga and similar systems."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from sam_pipeline.consumer.commands.arguments import add_instance
from sam_pipeline.consumer.monitoring.certificates import CertificateLife
from sam_pipeline.consumer.monitoring.snapshot import DEGRADED, RUNNING, WAITING, Snapshot
from sam_pipeline.consumer.monitoring.state_file import is_alive, read_state
from sam_pipeline.consumer.settings.load import load_identity
from sam_pipeline.consumer.silence.silences import PLURALS
from sam_pipeline.schema.program.command import (
    CommandParser,
    common_options,
    number,
    print_json,
    print_lines,
    program_parser,
    run,
)
from sam_pipeline.schema.program.wording import one_line

PROGRAM = "check_sam_consumer"
OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
LEVEL_OF_STATE = {RUNNING: OK, DEGRADED: WARNING, WAITING: WARNING}
"""Other states are critical. If the database stays away, the age becomes critical."""

CERTIFICATE_DAYS = "certificate-days"

LEVELS: Sequence[tuple[str, str, tuple[float | None, float | None]]] = (
    ("age", "seconds without a commit while messages are pending", (300, 900)),
    ("backlog", "messages in memory and in spools", (None, None)),
    ("dead-letters", "open dead letters", (1, None)),
    ("dead-letters-per-hour", "new dead letters in the last hour", (100, 1000)),
    ("silent-classes", "classes of which nothing arrives", (None, 1)),
    ("silent-sites", "sites of which nothing arrives", (1, None)),
    ("silent-probes", "probes that have stopped reporting", (1, None)),
    (CERTIFICATE_DAYS, "days left of a certificate, or fewer", (14, 3)),
)
"""Name, meaning, and the defaults of --warning-NAME and --critical-NAME; None means never."""

MAX_NAMED = 3
"""The silent classes, sites or probes that are named."""
SHARES = (3, 10)
"""The same for a certificate that lives for days: the last third and tenth of its life."""

EXAMPLES = """\
examples:
  check_sam_consumer --config /etc/sam/sam.toml
  check_sam_consumer --config /etc/sam/sam.toml --instance 2
  check_sam_consumer --warning-age 600 --critical-age 3600 --critical-backlog 100000
  check_sam_consumer --critical-silent-probes 10 --warning-certificate-days 30

The age is the time since the last commit while messages are pending or the database is unavailable,
and 0 otherwise. What is silent is defined in docs/consumer.md. Of a certificate that lives for days
only, the last third is a warning and the last tenth critical. The exit status is that of monitoring
plugins:
  0 OK        messages are loaded
  1 WARNING   a broker or the database is unavailable, or a value reaches its --warning threshold
  2 CRITICAL  the process is missing or stuck, or a value reaches its --critical threshold
  3 UNKNOWN   the state or the configuration can't be read
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code of a monitoring plugin."""
    description = "Check the state of the consumer on this host for a monitoring system."
    parser = program_parser(PROGRAM, description, EXAMPLES, common_options(), _Parser)
    add_instance(parser)
    for name, meaning, defaults in LEVELS:
        for level, default in zip(("warning", "critical"), defaults, strict=True):
            shown = "never" if default is None else f"{default:g}"
            parser.add_argument(
                f"--{level}-{name}",
                type=number,
                metavar="N",
                default=default,
                help=f"{level.upper()} at N {meaning} (default: {shown})",
            )
    code = run(PROGRAM, parser, argv, check_consumer)
    return code if code in range(len(NAMES)) else UNKNOWN


class _Parser(CommandParser):
    def error(self, message: str) -> NoReturn:
        print_lines(f"SAM CONSUMER UNKNOWN - {one_line(message)}; try {self.prog} --help")
        self.exit(UNKNOWN)


def check_consumer(args: argparse.Namespace) -> int:
    """Print the state in one line; an error is UNKNOWN, since monitoring ignores standard error."""
    try:
        config = load_identity(args)
        snapshot = read_state(config.state_directories, config.process_name)
    except Exception as error:
        text = str(error).replace("\n", "; ") or type(error).__name__
        return _print(args, UNKNOWN, text, {}, "")
    now = datetime.now(UTC)
    health = snapshot.health(now, is_alive(snapshot))
    since = min(filter(None, (snapshot.behind_since, snapshot.waiting_since)), default=now)
    age_s = max((now - since).total_seconds(), 0.0)
    letters = sum((snapshot.open_dead_letters or {}).values())
    recent = snapshot.dead_letters_last_hour
    indicators = [
        ("age", f"nothing committed for {age_s:.0f} s", age_s, "s"),
        ("backlog", f"{snapshot.backlog} messages waiting", snapshot.backlog, ""),
        ("dead_letters", f"{letters} open dead letters", letters, ""),
        ("dead_letters_per_hour", f"{recent} dead letters in the last hour", recent, ""),
        *(
            (f"silent_{PLURALS[kind]}", _silence(snapshot, kind), count, "")
            for kind, count in snapshot.silent.items()
        ),
        *([] if snapshot.lag_s is None else [("lag", "", snapshot.lag_s, "s")]),
        ("messages", "", snapshot.messages, "c"),
        ("rows", "", snapshot.rows, "c"),
        ("duplicates", "", snapshot.duplicates, "c"),
    ]
    worst = LEVEL_OF_STATE.get(health.state, CRITICAL)
    texts, data = [f"{snapshot.name} {health}"], []
    for label, text, value, unit in indicators:
        level = OK
        limits = [getattr(args, f"{name}_{label}", None) for name in ("warning", "critical")]
        for reached, limit in enumerate(limits, WARNING):
            if limit is not None and value >= limit:
                level = reached
        worst = max(worst, level)
        texts += [text] if level else []
        shown = ";".join("" if limit is None else _decimal(limit) for limit in limits)
        data.append(f"{label}={_decimal(value)}{unit};{shown};0")
    values = {label: value for label, _, value, _ in indicators}
    if snapshot.certificates:
        days = [args.warning_certificate_days, args.critical_certificate_days]
        for life in snapshot.certificates:
            if level := _certificate_level(life, days, now):
                left = life.days_left(now)
                expired = left < 0
                when = f"on {life.end:%Y-%m-%d %H:%M} UTC"
                texts.append(f"{life.file} {'expired' if expired else 'expires'} {when}")
                worst = max(worst, level)
        fewest = min(life.days_left(now) for life in snapshot.certificates)
        shown = ";".join(f"{_decimal(limit)}:" for limit in days)
        data.append(f"certificate_days={_decimal(fewest)};{shown}")
        values["certificate_days"] = fewest
    return _print(args, worst, ", ".join(texts), values, f" | {' '.join(data)}")


def _certificate_level(life: CertificateLife, days: Sequence[float], now: datetime) -> int:
    """The level of a certificate; one that lives for days only is renewed later."""
    level = OK
    for reached, (limit, share) in enumerate(zip(days, SHARES, strict=True), WARNING):
        if life.days_left(now) <= min(limit, life.days / share):
            level = reached
    return level


def _silence(snapshot: Snapshot, kind: str) -> str:
    """How many classes, sites or probes are silent, and the names of the first ones."""
    count = snapshot.silent[kind]
    names = [silence.name for silence in snapshot.silences if silence.kind == kind][:MAX_NAMED]
    more = ["…"] if count > len(names) else []
    noun = kind if count == 1 else PLURALS[kind]
    return f"{count} {noun} silent ({', '.join(names + more)})"


def _decimal(number: float) -> str:
    """The number without an exponent, which few readers of performance data understand."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _print(
    args: argparse.Namespace, level: int, text: str, values: Mapping[str, float], data: str
) -> int:
    if args.json:
        print_json({"code": level, "state": NAMES[level], "text": text, **values})
    else:
        line = one_line(text).replace("|", "/")
        print_lines(f"SAM CONSUMER {NAMES[level]} - {line}{data}")
    return level
