"""`sam-publish send`: publish records from files or standard input while reading them."""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from itertools import chain

from sam_pipeline.publisher.commands.arguments import (
    add_broker_options,
    add_message_options,
    config_of,
    headers_of,
    seconds_argument,
)
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.delivery.outgoing import fitted_record, outgoing, require_deliverable
from sam_pipeline.publisher.delivery.publication import BATCH
from sam_pipeline.publisher.delivery.termination import Termination
from sam_pipeline.publisher.probe.input import RecordRules, RefusedRecord, bursts, read_files
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.message import (
    CLASS,
    MAX_RECORDS,
    MESSAGE_ID,
    Message,
    new_message_id,
)
from sam_pipeline.schema.program.command import print_lines
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, built_in
from sam_pipeline.schema.records.input_file import STDIN, InputFile, PipePatience, refuse_missing
from sam_pipeline.schema.times import require_set_clock

DESCRIPTION = """\
Publish records from files or standard input: text (`key: value` lines, each record ended by EOT)
or JSON (an array of objects, or one object per line), gzipped or not, packed into messages of at
most 100 records or 64 kB.

A bad record is refused with its file and line (exit code 65); the others are published. Records
from a pipe are published within --flush-s seconds. After SIGTERM no more input is read, and the
records that were read go to the spool (exit code 143).
"""
EXAMPLES = """\
examples:
  sam-publish send results.txt
  sam-publish send results.jsonl.gz
  sam-publish send --class serviceEndpoint endpoints.json
  sam-publish send --dry-run results.txt
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=handle)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="`-`, or no FILE, reads standard input"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--one-per-message", action="store_true", help="do not pack records")
    form.add_argument("--raw", action="store_true", help="send each file unchanged, as one message")
    parser.add_argument(
        "--flush-s",
        type=seconds_argument,
        default=1.0,
        metavar="S",
        help="publish records from a pipe within S seconds of their arrival (default: 1)",
    )
    add_broker_options(parser)
    add_message_options(parser)


def handle(args: argparse.Namespace) -> int:
    config = config_of(args)
    headers = headers_of(args, config)
    refused: list[RefusedRecord] = []

    def messages(patience: PipePatience) -> Iterator[Iterator[Message]]:
        now = partial(datetime.now, timezone.utc)
        if built_in(config.message_class) is METRIC_OUTPUT:
            require_set_clock(now())
        fit = partial(fitted_record, config=config, headers=headers)
        rules = RecordRules(config.message_class, now, config.completed, fit)
        found = read_files(args.files, rules, patience)
        max_records = 1 if args.one_per_message else MAX_RECORDS
        return bursts(found, report, config.message_class, headers, max_records)

    def raw_messages() -> Iterator[Message]:
        """One message with the unchanged bytes of each file."""
        refuse_missing(args.files, "nothing was sent")
        for name in args.files or [STDIN]:
            with InputFile(name, decompress=False) as file:
                ours = {CLASS: config.message_class, MESSAGE_ID: new_message_id()}
                message = Message({**ours, "persistent": "true", **headers}, file.read())
            try:
                require_deliverable(message, config)
            except MessageRefused as refusal:
                report(RefusedRecord(file.name, 1, refusal.reason, refusal.text))
            else:
                yield message

    def report(record: RefusedRecord) -> None:
        print_lines(f"sam-publish: error: {record}", file=sys.stderr)
        if args.json or not refused:  # without a document, the memory does not grow
            refused.append(record)

    raw = [list(raw_messages())] if args.raw else None
    with Termination() as termination:
        if raw:
            return publish_and_report(raw, config, args, refused=refused, termination=termination)
        read = messages(PipePatience(args.flush_s, termination.descriptor))
        if args.files and all(map(os.path.isfile, args.files)):  # reading a pipe could block
            source = chain.from_iterable(read)
            # Each copy makes a signature of its own.
            ahead = ReadAhead(
                source if config.copy else (outgoing(message, config) for message in source), BATCH
            )
            return publish_and_report(
                [ahead],
                config,
                args,
                refused=refused,
                meanwhile=termination.shielded(ahead.work),
                termination=termination,
            )
        return publish_and_report(read, config, args, refused=refused, termination=termination)


class ReadAhead(Iterator[Message]):
    """An iterator that fetches up to `max_items` messages ahead, one with each call of `work`.

    An error of the source is raised after the messages that precede it.
    """

    def __init__(self, source: Iterator[Message], max_items: int) -> None:
        self._source = source
        self._max_items = max_items
        self._ahead: deque[Message] = deque()
        self._error: Exception | None = None

    def __next__(self) -> Message:
        if self._ahead:
            return self._ahead.popleft()
        if self._error:
            raise self._error
        return next(self._source)

    def work(self) -> bool:
        """Fetch a message; return False if there was nothing to do."""
        if self._error or len(self._ahead) >= self._max_items:
            return False
        try:
            self._ahead.append(next(self._source))
        except Exception as error:  # including StopIteration
            self._error = error
            return False
        return True
