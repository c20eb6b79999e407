"""`sam-consume status`: how the daemon does, as it says itself and as the process shows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.consumer.config import load_who, state_places
from sam_pipeline.consumer.core.tally import listed
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import STOPPED, Snapshot, Verdict, judge, to_document
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


def add_command(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "status",
        parents=[common],
        help="state, lag, backlog, rates, last commit, per broker and per class",
        epilog=EXAMPLES,
    )
    add_instance(command)
    command.set_defaults(handler=run_status)


def add_instance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--instance",
        type=_number,
        metavar="N",
        help="which of several processes that share the subscriptions, which need shared = true",
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"want a number from 1 on, not {text!r}")
    return int(text)


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
    verdict = judge(snapshot, now, is_alive(snapshot))
    if args.json:
        print(to_json(document(snapshot, verdict)))
    else:
        print("\n".join(_lines(snapshot, verdict, now)))
    return OK if verdict.healthy else UNAVAILABLE


def document(snapshot: Snapshot, verdict: Verdict) -> dict[str, object]:
    """The verdict first."""
    judged = {"state": verdict.state, "why": verdict.why, "healthy": verdict.healthy}
    told = to_document(snapshot)
    return {"name": told["name"], **judged, "backlog": snapshot.backlog, **told}


def _lines(said: Snapshot, verdict: Verdict, now: datetime) -> Iterator[str]:
    yield f"{said.name}: {verdict}"
    width = 14
    for name, value in _facts(said, now):
        yield f"{name:<{width}}{value}"
    brokers = [
        (each.broker, each.messages, each.held, each.spool_elements, "; ".join(each.missing))
        for each in said.brokers
    ]
    yield ""
    yield text_table(("broker", "messages", "held", "waiting", "missing"), brokers)
    if said.rows_by_class:
        yield ""
        yield text_table(("class", "rows"), list(said.rows_by_class.items()))


def _facts(said: Snapshot, now: datetime) -> Iterator[tuple[str, str]]:
    yield "process", f"{said.pid}, since {format_time(said.since)}"
    yield "last commit", _ago(said.last_commit, now) if said.last_commit else "none yet"
    yield "lag", "unknown" if said.lag_s is None else f"{said.lag_s:.1f} s"
    yield "backlog", f"{said.backlog} messages; {said.held_bytes} bytes are held"
    yield "rates", f"{said.messages_per_s:.1f} messages/s, {said.rows_per_s:.1f} rows/s"
    yield "loaded", f"{said.messages} messages, {said.rows} rows, {said.checks} checks"
    yield "dead letters", f"{sum(said.dead_letters.values())} new{listed(said.dead_letters)}"
    waiting = said.open_dead_letters
    if waiting is not None:
        yield "", f"{sum(waiting.values())} open in the database{listed(waiting)}"
    if said.ignored_keys:
        yield "ignored keys", listed(said.ignored_keys).strip(" ()")
    if said.damaged_elements:
        yield "damaged", f"{said.damaged_elements} spool elements were put aside"
    if said.log_lines_dropped:
        yield "log", f"{said.log_lines_dropped} lines could not be written"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{format_time(moment)}, {max((now - moment).total_seconds(), 0):.0f} s ago"
