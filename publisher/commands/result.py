"""`sam-publish result`: publish one record, made from the options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import datetime, timezone

from sam_pipeline.publisher.commands.arguments import (
    add_broker_options,
    add_message_options,
    add_record_options,
    config_of,
    headers_of,
    record_of,
)
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.delivery.outgoing import fitted
from sam_pipeline.publisher.errors import PublishUsage
from sam_pipeline.publisher.probe.values import this_host
from sam_pipeline.publisher.settings import RECORD_KEYS, PublisherConfig
from sam_pipeline.schema.messages.message import MAX_BYTES, Message, pack
from sam_pipeline.schema.records.normalise import HOST_STATES, normalise
from sam_pipeline.schema.records.text import Record, unescaped
from sam_pipeline.schema.times import format_time, require_set_clock

DESCRIPTION = "Publish one metric result."
EXAMPLES = """\
examples:
  sam-publish result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE
  df -h | sam-publish result --metric org.example.Disk --status WARNING --host se01.example.org \\
      --flavour SE --summary "91 % used" --details -
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=handle)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("--metric", required=True, metavar="NAME", help="name of the metric")
    parser.add_argument(
        "--status",
        required=True,
        help="OK, WARNING, CRITICAL, UNKNOWN or 0 to 3; of a host also UP, DOWN, UNREACHABLE",
    )
    parser.add_argument("--host", help="host of the service")
    parser.add_argument("--flavour", help="flavour of the service, such as CE")
    parser.add_argument("--summary", metavar="TEXT", help="the result in one line")
    parser.add_argument(
        "--details", metavar="TEXT", help="any number of lines; `-` reads standard input"
    )
    parser.add_argument(
        "--performance-data", metavar="TEXT", help="such as `load1=0.4;9;12 load5=0.3`"
    )
    parser.add_argument(
        "--from-nagios",
        action="store_true",
        help=r"the texts are macros of Nagios: in the details `\n` is a line end, `\\` a backslash",
    )
    add_record_options(parser)
    parser.add_argument("--timestamp", metavar="ISO-TIME", help="time of the result (default: now)")
    add_broker_options(parser)
    add_message_options(parser)


def handle(args: argparse.Namespace) -> int:
    config = config_of(args)
    record, headers = record_of(args), headers_of(args, config)
    if config.record:
        record = config.completed(record)
    missing = [name for name in ("host", "flavour") if RECORD_KEYS[name] not in record]
    if missing:
        options = ", ".join(f"--{name}" for name in missing)
        raise PublishUsage(f"required, unless [publisher.record] has defaults: {options}")
    record["metricStatus"] = HOST_STATES.get(args.status.upper(), args.status)
    if args.from_nagios:
        record["detailsData"] = unescaped(record.get("detailsData", "")).rstrip()
    elif record.get("detailsData") == "-":
        details = sys.stdin.buffer.read() if sys.stdin else b""  # it may be closed
        record["detailsData"] = details.decode("utf-8", "replace").rstrip()
    messages = [messages_of(record, config, headers)]
    if not (config.targets or config.copy):  # there is nothing to wait for
        return publish_and_report(messages, config, args)
    # With `signal`, 1.1 ms.
    from sam_pipeline.publisher.delivery.termination import Termination

    with Termination() as termination:
        return publish_and_report(messages, config, args, termination=termination)


def messages_of(
    record: Record, config: PublisherConfig, headers: Mapping[str, str]
) -> list[Message]:
    """The messages of a record; `timestamp` defaults to now, `gatheredAt` to this host.

    Raises:
        RecordRefused: it can never be loaded.
    """
    now = datetime.now(timezone.utc)
    require_set_clock(now)
    record.setdefault("timestamp", format_time(now))
    if "gatheredAt" not in record:
        record["gatheredAt"] = this_host()  # may have to ask DNS
    rows = normalise(record, config.message_class, {}, now)
    messages = list(pack(rows, config.message_class, headers=headers))
    for position, message in enumerate(messages):
        if len(message.body) > MAX_BYTES:
            messages[position] = fitted(message, config)
    return messages
