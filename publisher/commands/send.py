"""`sam-publish send`: publish records of files or of standard input, as they are read."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sam_pipeline.publisher.commands.arguments import add_how, add_where
from sam_pipeline.publisher.commands.options import config_of, headers_of
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.delivery.publication import BATCH
from sam_pipeline.publisher.delivery.read_ahead import ReadAhead
from sam_pipeline.publisher.probe.input import (
    RefusedRecord,
    raw_message,
    read_blocks,
    read_records,
    read_sources,
)
from sam_pipeline.schema.messages.message import MAX_RECORDS, pack

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from sam_pipeline.publisher.settings.config import PublisherConfig
    from sam_pipeline.schema.messages.message import Message
    from sam_pipeline.schema.records.text import Record

DESCRIPTION = """\
Publish records from files or standard input: text (`key: value` lines, ended by EOT) or JSON (an
object or an array of objects), packed into messages of at most 100 records or 64 kB.

A bad record is refused with its file and line, exit code 65; the others are published.
"""
EXAMPLES = """\
examples:
  sam-publish send results.txt
  sam-publish send --class serviceEndpoint endpoints.json
  sam-publish send --dry-run results.txt
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("files", nargs="*", metavar="FILE", help="`-` or none: standard input")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--one-per-message", action="store_true", help="do not pack records")
    form.add_argument("--raw", action="store_true", help="each file unread, as one message")
    add_where(parser)
    add_how(parser)


def handle(args: argparse.Namespace) -> int:
    config = config_of(args)
    refused: list[RefusedRecord] = []
    messages: Iterator[Message]
    headers = headers_of(args, config)
    if args.raw:
        blocks = read_sources(args.files)
        messages = (raw_message(block, config.message_class, headers) for block in blocks)
    else:
        size = 1 if args.one_per_message else MAX_RECORDS
        records = _records(args, config, refused)
        messages = pack(records, config.message_class, size, headers=headers)
    if args.files and all(map(os.path.isfile, args.files)):  # a pipe could hold us up
        messages = ReadAhead(messages, BATCH)
    return publish_and_report(messages, config, args, refused)


def _records(
    args: argparse.Namespace, config: PublisherConfig, refused: list[RefusedRecord]
) -> Iterator[Record]:
    """The good ones; the others are reported on stderr as they are read."""
    now = datetime.now(timezone.utc)
    for block in read_blocks(args.files):
        for item in read_records(block, config.message_class, now):
            if isinstance(item, RefusedRecord):
                print(f"sam-publish: error: {item}", file=sys.stderr)
                refused.append(item)
            else:
                yield item
