"""`sam-consume status`: how the daemon does, by its state file and its process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, astuple
from datetime import UTC, datetime

from sam_pipeline.consumer.commands.arguments import add_instance
from sam_pipeline.consumer.config import load_who, state_places
from sam_pipeline.consumer.core.tally import listed
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import STOPPED, Snapshot, to_document
from sam_pipeline.consumer.monitoring.state_file import is_alive, read_state
from sam_pipeline.schema.program.command import OK, UNAVAILABLE, text_table, to_json
from sam_pipeline.schema.times import format_time

EXAMPLES = """\
examples:
  sam-consume status
  sam-consume status --instance 2
  sam-consume status --json

States, and what becomes of messages:
  running    they are loaded and acked
  waiting    the database is away, or a disk full: the brokers keep them, nothing is lost
  degraded   those of a broker that is missing stay there; the others are loaded
  stuck      the process is there and does nothing: systemd's watchdog will end it
  stopped    there is no process

Exit 0 when running, 69 in any other state.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_instance(parser)
    parser.set_defaults(handler=run_status)


def run_status(args: argparse.Namespace) -> int:
    name = load_who(args)
    try:
        snapshot = read_state(state_places(), name)
    except NoState as error:
        if not args.json:
            raise
        print(to_json({"name": name, "state": STOPPED, "why": str(error), "healthy": False}))
        return UNAVAILABLE
    now = datetime.now(UTC)
    health = snapshot.health(now, is_alive(snapshot))
    if args.json:
        judged = {**asdict(health), "healthy": health.healthy, "backlog": snapshot.backlog}
        print(to_json({"name": snapshot.name, **judged, **to_document(snapshot)}))
    else:
        lines = [f"{snapshot.name}: {health}"]
        lines += [f"{name:<14}{value}" for name, value in _facts(snapshot, now)]
        brokers = [
            (broker, messages, held, elements, "; ".join(missing))
            for broker, messages, held, missing, elements in map(astuple, snapshot.brokers)
        ]
        lines += ["", text_table(("broker", "messages", "held", "waiting", "missing"), brokers)]
        if snapshot.rows_by_class:
            lines += ["", text_table(("class", "rows"), list(snapshot.rows_by_class.items()))]
        print("\n".join(lines))
    return OK if health.healthy else UNAVAILABLE


def _facts(of: Snapshot, now: datetime) -> Iterator[tuple[str, str]]:
    yield "process", f"{of.pid}, since {format_time(of.since)}"
    commit = "none yet"
    if of.last_commit:
        age_s = max((now - of.last_commit).total_seconds(), 0)
        commit = f"{format_time(of.last_commit)}, {age_s:.0f} s ago"
    yield "last commit", commit
    yield "lag", "unknown" if of.lag_s is None else f"{of.lag_s:.1f} s"
    yield "backlog", f"{of.backlog} messages; {of.held_bytes} bytes are held"
    yield "rates", f"{of.messages_per_s:.1f} messages/s, {of.rows_per_s:.1f} rows/s"
    yield "loaded", f"{of.messages} messages, {of.rows} rows, {of.checks} checks"
    yield "dead letters", f"{sum(of.dead_letters.values())} new{listed(of.dead_letters)}"
    waiting = of.open_dead_letters
    if waiting is not None:
        yield "", f"{sum(waiting.values())} open in the database{listed(waiting)}"
    if of.ignored_keys:
        yield "ignored keys", listed(of.ignored_keys).strip(" ()")
    if of.damaged_elements:
        yield "damaged", f"{of.damaged_elements} spool elements were put aside"
    if of.log_lines_dropped:
        yield "log", f"{of.log_lines_dropped} lines could not be written"
