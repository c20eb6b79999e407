"""`check_sam_consumer`: the state of the daemon for Nagios, Icinga and similar systems."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime

from sam_pipeline.consumer.commands.arguments import add_instance
from sam_pipeline.consumer.core.silence import PLURALS
from sam_pipeline.consumer.monitoring.snapshot import (
    DEGRADED,
    RUNNING,
    WAITING,
    is_alive,
    read_state,
)
from sam_pipeline.consumer.settings.config import examine_consumer
from sam_pipeline.schema.program.command import CommandParser
from sam_pipeline.schema.program.monitoring_plugin import (
    CRITICAL,
    DAYS_LEFT,
    OK,
    WARNING,
    PluginReport,
    PluginThreshold,
    failure,
    plugin_parser,
    run_plugin,
)

PROGRAM = "check_sam_consumer"
SUBJECT = "SAM CONSUMER"
LEVEL_OF_STATE = {RUNNING: OK, DEGRADED: WARNING, WAITING: WARNING}
"""Other states are critical. If the database stays away, the age becomes critical."""

THRESHOLDS = (
    PluginThreshold("age", "seconds without a commit while messages are pending", 300, 900),
    PluginThreshold("backlog", "messages in memory and in spools", None, None),
    PluginThreshold("dead-letters", "open dead letters", 1, None),
    PluginThreshold("dead-letters-per-hour", "new dead letters in the last hour", 100, 1000),
    PluginThreshold("silent-classes", "classes of which nothing arrives", None, 1),
    PluginThreshold("silent-sites", "sites of which nothing arrives", 1, None),
    PluginThreshold("silent-probes", "probes that have stopped reporting", 1, None),
    DAYS_LEFT,
)

MAX_NAMED = 3
"""The silent classes, sites or probes, and the reasons, that are named."""
CLASS_BROKEN = "class-broken"
"""As in sql.loading.batch, which a plugin does not load."""

EXAMPLES = """\
examples:
  check_sam_consumer --config /etc/sam/sam.toml
  check_sam_consumer --config /etc/sam/sam.toml --instance 2
  check_sam_consumer --warning-age 600 --critical-age 3600 --critical-backlog 100000
  check_sam_consumer --critical-silent-probes 10 --warning-certificate-days 30

The age is the time since the last commit while messages are pending or the database is unavailable,
and 0 otherwise. docs/consumer.md defines silence. For a short-lived certificate, the last third of
its lifetime is a warning, the last tenth critical. The exit code is that of monitoring plugins:
  0 OK        messages are loaded
  1 WARNING   a broker or the database is unavailable, or a value reaches its --warning threshold
  2 CRITICAL  the process is missing or stuck, a class is broken, or a value reaches its --critical
              threshold
  3 UNKNOWN   the state or the configuration can't be read
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code of a monitoring plugin."""
    return run_plugin(make_parser(), argv, check_consumer)


def make_parser() -> CommandParser:
    description = "Check the state of the consumer on this host for a monitoring system."
    parser = plugin_parser(PROGRAM, description, EXAMPLES, THRESHOLDS)
    add_instance(parser)
    return parser


def check_consumer(args: argparse.Namespace) -> int:
    """Print the state in one line; an error is UNKNOWN, since monitoring ignores standard error."""
    try:
        config = examine_consumer(args, args.instance).only("name", "broker_urls")
        snapshot = read_state(config.state_directories, config.process_name)
    except Exception as error:
        return failure(args, SUBJECT, error)
    now = datetime.now(UTC)
    health = snapshot.health(now, is_alive(snapshot))
    report = PluginReport(args, SUBJECT)
    report.raise_to(LEVEL_OF_STATE.get(health.state, CRITICAL), f"{snapshot.name} {health}")
    since = min(filter(None, (snapshot.behind_since, snapshot.waiting_since)), default=now)
    age_s = max((now - since).total_seconds(), 0.0)
    report.judge("age", age_s, "s", f"nothing committed for {age_s:.0f} s")
    report.judge("backlog", snapshot.backlog, text=f"{snapshot.backlog} messages waiting")
    by_reason = {name: count for name, count in (snapshot.open_dead_letters or {}).items() if count}
    letters = sum(by_reason.values())
    worst = sorted(by_reason, key=lambda name: (name != CLASS_BROKEN, -by_reason[name]))
    named = [f"{name}: {by_reason[name]}" for name in worst[:MAX_NAMED]]
    more = ["…"] if len(worst) > MAX_NAMED else []
    text = f"{letters} open dead letters ({', '.join(named + more)})"
    report.judge("dead_letters", letters, text=text)
    if broken := by_reason.get(CLASS_BROKEN):
        report.raise_to(CRITICAL, f"a class is broken: {broken} messages of it can't be loaded")
    recent = snapshot.dead_letters_last_hour
    report.judge("dead_letters_per_hour", recent, text=f"{recent} dead letters in the last hour")
    for kind, count in snapshot.silent.items():
        noun = kind if count == 1 else PLURALS[kind]
        names = [one.name for one in snapshot.silences if one.kind == kind][:MAX_NAMED]
        more = ["…"] if count > len(names) else []
        text = f"{count} {noun} silent ({', '.join(names + more)})"
        report.judge(f"silent_{PLURALS[kind]}", count, text=text)
    if snapshot.lag_s is not None:
        report.judge("lag", snapshot.lag_s, "s")
    for label in ("messages", "rows", "duplicates"):
        report.judge(label, getattr(snapshot.counts, label), "c")
    for life in snapshot.certificates:
        report.judge_certificate(life.file, life.begin, life.end, now)
    return report.print()
