"""`sam-publish result`: publish the one record that the options describe."""

from __future__ import annotations

import sys

from sam_pipeline.publisher.commands.arguments import add_how, add_optional_keys, add_where
from sam_pipeline.publisher.commands.options import config_of, headers_of, record_of
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.probe.host_name import this_host
from sam_pipeline.schema.messages.message import pack
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.times import format_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from sam_pipeline.publisher.settings.config import PublisherConfig
    from sam_pipeline.schema.messages.message import Message
    from sam_pipeline.schema.records.text import Record

EXAMPLES = """\
examples:
  sam-publish result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE
  df -h | sam-publish result --metric org.example.Disk --status WARNING --host se01.example.org \\
      --flavour SE --summary "91 % used" --details -
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--metric", required=True, metavar="NAME")
    parser.add_argument("--status", required=True, help="OK, WARNING, CRITICAL, UNKNOWN or 0 to 3")
    parser.add_argument("--host", required=True, help="that was measured")
    parser.add_argument("--flavour", required=True, help="of the service there, such as CE")
    parser.add_argument("--summary", metavar="TEXT", help="one line")
    parser.add_argument("--details", metavar="TEXT", help="many lines; `-`: standard input")
    parser.add_argument("--performance-data", metavar="TEXT")
    add_optional_keys(parser)
    parser.add_argument("--timestamp", metavar="TIME", help="of the measurement (default: now)")
    add_where(parser)
    add_how(parser)


def handle(args: argparse.Namespace) -> int:
    config = config_of(args)
    record = record_of(args)
    if record.get("detailsData") == "-":
        record["detailsData"] = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip()
    return publish_and_report(messages_of(record, config, args), config, args)


def messages_of(record: Record, config: PublisherConfig, args: argparse.Namespace) -> list[Message]:
    """The record as it travels: of now and this host, unless it says otherwise.

    Raises:
        RecordRefused: it can never be loaded.
    """
    from datetime import datetime, timezone

    now = datetime.now(timezone.utc)
    record.setdefault("timestamp", format_time(now))
    if "gatheredAt" not in record:
        record["gatheredAt"] = this_host()  # which may have to ask DNS
    rows = normalise(record, config.message_class, {}, now)
    return list(pack(rows, config.message_class, headers=headers_of(args, config)))
