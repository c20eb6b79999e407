"""`sam-consume status`: the state of the daemon, from its state file and its process."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from sam_pipeline.consumer.commands.arguments import add_instance
from sam_pipeline.consumer.core.silence import PLURALS
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import (
    STOPPED,
    Health,
    Snapshot,
    is_alive,
    read_state,
    to_document,
)
from sam_pipeline.consumer.settings.config import examine_consumer
from sam_pipeline.schema.messages.counts import listed
from sam_pipeline.schema.program.command import OK, UNAVAILABLE, print_json, print_lines, text_table
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time

JUDGED_LATE = timedelta(seconds=60)
"""While the daemon is behind or not connected, it can't judge the time since."""

EXAMPLES = """\
examples:
  sam-consume status
  sam-consume status --instance 2
  sam-consume status --json

States:
  running    messages are loaded and acked
  waiting    the database is unavailable or a disk is full; the brokers keep the messages
  degraded   a broker is not connected, or a spool cannot be read in part or in whole: the messages
             there wait, all others are loaded; or a file can't be used, and its old content is
  stuck      the process exists but does nothing; the watchdog of systemd will end it
  stopped    the process does not run

Exit code: 0 if running, 69 in any other state.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_instance(parser)
    parser.set_defaults(handler=run_status)


def run_status(args: argparse.Namespace) -> int:
    """Print the state of the daemon.

    Raises:
        NoState: no daemon has written a state file; not with --json.
    """
    config = examine_consumer(args, args.instance).only("name", "broker_urls")
    try:
        snapshot = read_state(config.state_directories, config.process_name)
    except NoState as error:
        if not args.json:
            raise
        missing = {"name": config.process_name, "state": STOPPED, "why": str(error)}
        print_json({**missing, "healthy": False})
        return UNAVAILABLE
    now = datetime.now(UTC)
    health = snapshot.health(now, is_alive(snapshot))
    if args.json:
        judged = {**asdict(health), "healthy": health.healthy, "backlog": snapshot.backlog}
        print_json({"name": snapshot.name, **judged, **to_document(snapshot)})
    else:
        print_lines(*_lines(snapshot, health, now))
    return OK if health.healthy else UNAVAILABLE


def _lines(snapshot: Snapshot, health: Health, now: datetime) -> list[str]:
    """Facts, of which one without a name continues the line above, then tables."""
    commit = "none yet"
    if snapshot.last_commit:
        age_s = max((now - snapshot.last_commit).total_seconds(), 0)
        commit = f"{format_time(snapshot.last_commit)}, {age_s:.0f} s ago"
    rates = f"{snapshot.messages_per_s:.1f} messages/s, {snapshot.rows_per_s:.1f} rows/s"
    facts = [
        ("process", f"{snapshot.pid}, since {format_time(snapshot.since)}"),
        ("last commit", commit),
        ("lag", "unknown" if snapshot.lag_s is None else f"{snapshot.lag_s:.1f} s"),
        ("backlog", f"{snapshot.backlog} messages; {snapshot.held_bytes} bytes in memory"),
        ("rates", rates),
        ("counted", plural(snapshot.counts.messages, "message")),
        *(("", text) for text in snapshot.counts.texts()),
        ("dead letters", f"{snapshot.dead_letters_last_hour} in the last hour"),
    ]
    if snapshot.open_dead_letters is not None:
        open_letters = +Counter(snapshot.open_dead_letters)
        facts.append(("", f"{open_letters.total()} open in the database{listed(open_letters)}"))
    if snapshot.requests or snapshot.connections:
        requests = plural(sum(snapshot.requests.values()), "request")
        connections = plural(snapshot.connections, "connection")
        facts.append(("HTTP", f"{requests}{listed(snapshot.requests)}, {connections}"))
    if snapshot.coverage:
        counts = [
            f"{count} {kind if count == 1 else PLURALS[kind]}"
            for kind, count in snapshot.silent.items()
        ]
        until = snapshot.coverage.until
        is_late = now - until >= JUDGED_LATE
        late = f"; not judged since {format_time(until)} (docs: Silence)" if is_late else ""
        facts.append(("silent", f"{', '.join(counts)}{late}"))
    for life in snapshot.certificates:
        left = f"{life.days_left(now):.0f} days left, expires on {life.end:%Y-%m-%d}"
        facts.append(("certificate", f"{life.file}: {left}"))
    if snapshot.log_lines_dropped:
        facts.append(("log", f"{snapshot.log_lines_dropped} lines could not be written"))
    lines = [f"{snapshot.name}: {health}", *(f"{name:<14}{value}" for name, value in facts)]
    brokers = [
        (item.broker, item.messages, item.held, item.spool_elements, "; ".join(item.missing))
        for item in snapshot.brokers
    ]
    lines += ["", *text_table(("broker", "messages", "held", "waiting", "missing"), brokers)]
    if snapshot.counts.rows_by_class:
        classes = [
            (name, rows, snapshot.counts.duplicates_by_class[name])
            for name, rows in snapshot.counts.rows_by_class.items()
        ]
        lines += ["", *text_table(("class", "rows", "duplicates"), classes)]
    if snapshot.silences:
        rows_of = [
            (
                silence.kind,
                silence.name,
                format_time(silence.last) if silence.last else "never",
                f"{silence.limit_s:.0f} s",
            )
            for silence in snapshot.silences
        ]
        lines += ["", *text_table(("silent", "name", "last", "limit"), rows_of)]
    return lines
