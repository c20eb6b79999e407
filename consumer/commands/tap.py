"""`sam-consume tap`: print the messages that pass, without taking any."""

from __future__ import annotations

import argparse
import logging
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any

from sam_pipeline.consumer.settings.config import (
    ConsumerConfig,
    examine_consumer,
    problem_of_target,
)
from sam_pipeline.consumer.settings.tables import SubscriptionConfig
from sam_pipeline.consumer.sources.tap import TapInbox, make_taps, passing
from sam_pipeline.schema.errors import ConfigError, MessageRefused
from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.identity.policy import usable_policy
from sam_pipeline.schema.messages.decode import read
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.message import DESTINATION, Message, claimed_origin
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.net.broker import named_brokers, parse_broker
from sam_pipeline.schema.program.command import (
    OK,
    checked_argument,
    duration_argument,
    output_ended,
    print_json_line,
    print_lines,
    text_argument,
    whole_number,
)
from sam_pipeline.schema.program.wording import plural, printable
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import BadRecord, Reading
from sam_pipeline.schema.times import format_time

TIMEOUT_S = 10.0

EXAMPLES = """\
examples:
  sam-consume tap                                    what passes at all configured brokers
  sam-consume tap --class metricOutput --limit 5
  sam-consume tap --broker stomp://msg1.example.org --destination '/topic/grid.probe.*' --for 60s
  sam-consume tap --broker spool:///var/spool/sam-in --all
  sam-consume tap --json | jq -r '.records[].hostName'      one document on each line
  sam-consume tap --rows --limit 5                   the rows or dead letters they would become

Nothing is acknowledged, and no subscription or queue is left behind: the daemon still gets every
message. From a topic, tap shows the messages published while it runs; from a spool, also those that
wait. ActiveMQ Classic shows the messages that wait in a queue; other brokers can't do so without
delivering them, so tap skips queues there. If more messages arrive than can be printed, some are
skipped, and counted.

--rows decodes and judges the messages like the daemon, but stores nothing, so it does not detect
duplicates, nor what a trigger or a constraint of the database would refuse. Without a database only
the built-in classes are known, and the policy is not asked. On PostgreSQL, the login needs the role
sam_reader.

Exit code: 0 at the end, also after Ctrl-C; 69 if no broker could be reached for --timeout.
"""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SHOWN_LINES = 12
"""The lines of a message on a terminal, each cut to its width."""

logger = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="GLOB",
        type=text_argument,
        action="append",
        default=[],
        help="print only messages of these classes, for example 'service*'",
    )
    parser.add_argument(
        "--broker",
        dest="brokers",
        metavar="URL",
        type=checked_argument(problem_of_target),
        action="append",
        default=[],
        help="look at this broker or spool instead of all configured ones",
    )
    parser.add_argument(
        "--destination",
        dest="destinations",
        metavar="DESTINATION",
        type=checked_argument(partial(problem_of_destination, wildcards=True)),
        action="append",
        default=[],
        help="look at this topic or queue instead of the configured ones",
    )
    parser.add_argument(
        "--rows", action="store_true", help="print the rows that the messages would become"
    )
    parser.add_argument("--limit", type=whole_number(), metavar="N", help="end after N messages")
    parser.add_argument(
        "--for",
        dest="for_s",
        type=duration_argument,
        metavar="DURATION",
        help="end after this time, such as 60s",
    )
    parser.add_argument(
        "--all", dest="full", action="store_true", help="do not shorten messages on a terminal"
    )
    parser.add_argument(
        "--timeout",
        type=duration_argument,
        default=TIMEOUT_S,
        metavar="S",
        help="give up if no broker could be reached for S seconds (default: %(default)g)",
    )
    parser.set_defaults(handler=run_tap)


def run_tap(args: argparse.Namespace) -> int:
    """Print the wanted messages that pass until a limit, a signal, or the end of the reader.

    Raises:
        SourceUnreachable: no source could be read for `args.timeout`.
    """
    config = _config_of(args)
    policy = usable_policy(config.policy_file)
    patterns = [folded(pattern) for pattern in args.classes]
    limits = config.limits()
    preview_of = None
    if args.rows:
        from sam_pipeline.consumer.sinks.preview import previewing  # SQLAlchemy is an extra

        preview_of = previewing(args, config, policy)

    def wanted(message: Message) -> bool:
        name = folded(message.message_class or "")
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    def show(at: datetime, broker: str, message: Message) -> None:
        preview = preview_of(message, at) if preview_of else None
        if args.json:
            content = preview.document() if preview else records_document(message, limits)
            print_json_line({**head_document(at, broker, message), **content})
            return
        text = message.body.decode(errors="backslashreplace").rstrip("\n")
        body = [f"    {line}" for line in text.split("\n")] if text else []
        lines = [*preview.lines()] if preview else body
        if sys.stdout.isatty() and not args.full:
            lines = shortened(lines)
        print_lines(*head_lines(at, broker, message, limits), *lines, "")

    sources = make_taps(config, policy)
    if not sources:
        raise ConfigError(["nothing to look at: neither a broker nor a spool is configured"])
    ends_at = math.inf if args.for_s is None else time.monotonic() + args.for_s
    inbox = TapInbox(wanted)
    with _stopped_by_signals() as stop:

        def goes_on() -> bool:
            return not (stop.is_set() or time.monotonic() >= ends_at or output_ended())

        with closing(passing(sources, inbox, goes_on, args.timeout)) as deliveries:
            for delivery in islice(deliveries, args.limit):
                show(datetime.now(UTC), delivery.session.broker, delivery.message)
    if inbox.left_out:
        text = "%s left out: more arrived than could be printed"
        logger.warning(text, plural(inbox.left_out, "message"))
    return OK


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that a signal sets; a signal is the usual end of a tap, not an error."""
    stop = threading.Event()
    previous = [signal.signal(number, lambda *_: stop.set()) for number in SIGNALS]
    try:
        yield stop
    finally:
        for signal_number, handler in zip(SIGNALS, previous, strict=True):
            signal.signal(signal_number, handler)


def reading_of(message: Message, limits: Limits) -> Reading | MessageRefused:
    """The records of a message, or why it can't be read."""
    if refusal := refusal_of(message):
        return refusal
    try:
        return read(message, limits=limits)
    except MessageRefused as refused:
        return refused


def head_lines(at: datetime, broker: str, message: Message, limits: Limits) -> list[str]:
    """When a message arrived, what it is, and where it comes from."""
    headers, reading = message.headers, reading_of(message, limits)
    origin = list(filter(None, claimed_origin(headers)))
    count = (
        f"can't be read: {reading.reason}: {reading.text}"
        if isinstance(reading, MessageRefused)
        else plural(len(reading), "record")
    )
    return [
        f"{format_time(at)}  {message.message_class or 'no class'}  {message.message_id}",
        f"  from {broker} {headers.get(DESTINATION, '')}".rstrip(),
        f"  identity {identity_of(message)}"
        + (f"; claims to come from {', '.join(origin)}" if origin else ""),
        f"  {count}, {plural(len(message.body), 'byte')}",
    ]


def shortened(lines: Sequence[str]) -> list[str]:
    """The first of the lines, cut to the width of the terminal."""
    width = max(shutil.get_terminal_size().columns, 20)
    shown = [printable(line) for line in lines[:SHOWN_LINES]]
    cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in shown]
    more = len(lines) - len(shown)
    return [*cut, f"    … {plural(more, 'more line')} (--all)"] if more else cut


def head_document(at: datetime, broker: str, message: Message) -> dict[str, Any]:
    """The same facts as in `head_lines`, and all headers."""
    headers = message.headers
    return {
        "time": at,
        "broker": broker,
        "destination": headers.get(DESTINATION),
        "class": message.message_class,
        "message_id": message.message_id,
        "identity": identity_of(message),
        "origin": claimed_origin(headers)._asdict(),
        "headers": dict(headers),
        "bytes": len(message.body),
    }


def records_document(message: Message, limits: Limits) -> dict[str, Any]:
    """The records of a message as read; one that can't be read has its reason and its text."""
    reading = reading_of(message, limits)
    if isinstance(reading, MessageRefused):
        problem = {"reason": reading.reason, "error": reading.text}
        body = message.body.decode(errors="backslashreplace")
        return {"record_count": None, "records": [], "problem": problem, "body": body}
    records = [
        {"reason": record.reason, "error": record.text, "raw": record.raw.decode(errors="replace")}
        if isinstance(record, BadRecord)
        else record.fields
        for record in reading
    ]
    return {"record_count": len(records), "records": records}


def _config_of(args: argparse.Namespace) -> ConsumerConfig:
    """The configuration of a tap, which needs no name; raises ConfigError.

    The brokers and destinations that the arguments name are read instead of those configured. What
    is configured for one of them applies.
    """
    destinations = args.destinations
    configured = examine_consumer(args).values.get("broker_urls", ())
    url_of = {str(parse_broker(url)): url for url in configured}  # it may have a user
    urls = tuple(url_of.get(str(parse_broker(url)), url) for url in args.brokers)
    findings = examine_consumer(args, broker_urls=urls or None)
    if findings.problems:
        raise ConfigError(findings.problems)
    config = ConsumerConfig(**findings.values)
    if urls:
        names = named_brokers(urls)
        tables = (table for table in config.broker if str(table.broker) in names)
        config = config.replace(broker=tuple(tables))
    if destinations:
        known = {item.destination: item for item in config.subscription}
        of_spools = [item for item in config.subscription if item.spool]
        wanted = [known.get(name) or SubscriptionConfig(destination=name) for name in destinations]
        read = {*map(str, config.brokers)}  # each reads all of them, whatever its table says
        tables = (
            table.replace(destinations=None) if str(table.broker) in read else table
            for table in config.broker
        )
        config = config.replace(subscription=(*of_spools, *wanted), broker=tuple(tables))
    problems = [*config.connection_problems()]
    for broker in config.network_brokers:
        if not destinations and not config.subscriptions_at(broker):
            problems.append(f"{broker}: no subscription is configured, and no --destination given")
    if problems:
        raise ConfigError([f"[consumer] {problem}" for problem in problems])
    return config
