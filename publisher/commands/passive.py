"""`sam-publish passive`: publish the results of passive checks, from a FIFO or standard input."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Union

from sam_pipeline.publisher.commands.arguments import (
    add_broker_options,
    add_message_options,
    add_record_options,
    config_of,
    headers_of,
    record_of,
    seconds_argument,
)
from sam_pipeline.publisher.commands.outcome import BATCH_BYTES, publish_and_report
from sam_pipeline.publisher.delivery.outgoing import fitted_record
from sam_pipeline.publisher.delivery.publication import (
    BATCH,
    Courier,
    NoBrokerTookIt,
    Publication,
    Receipt,
)
from sam_pipeline.publisher.delivery.termination import Termination
from sam_pipeline.publisher.errors import PublishUsage
from sam_pipeline.publisher.probe.input import Found, RecordRules, RefusedRecord, bursts
from sam_pipeline.publisher.probe.passive import Fifo, PassiveResults
from sam_pipeline.publisher.probe.values import this_host
from sam_pipeline.publisher.settings import PublisherConfig, advice_without_brokers
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message, body_size, chunks
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.command import OK, print_done, print_lines, text_argument
from sam_pipeline.schema.program.systemd import Notifier
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.input_file import STDIN, InputFile, PipePatience
from sam_pipeline.schema.records.passive import SERVICE_FLAVOUR, Naming
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.times import require_set_clock

DESCRIPTION = """\
Publish the results of passive checks: lines of Nagios' external command file
(`[TIME] PROCESS_SERVICE_CHECK_RESULT;HOST;SERVICE;CODE;OUTPUT`, PROCESS_HOST_CHECK_RESULT), or a
document of NRDP in XML or JSON. The service becomes the metric.

A bad line is refused with its number (exit code 65); the others are published. With --fifo the
command runs until SIGTERM: then what the FIFO contains is read, and published or spooled.
"""
EXAMPLES = """\
examples:
  sam-publish passive --flavour CE < results.cmd
  sam-publish passive --flavour CE --site SITE-A < checkresults.xml
  sam-publish passive --flavour CE --metric-prefix org.example. --fifo /run/sam/results.cmd
"""

logger = lazy_logger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(handler=handle)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument(
        "--fifo",
        type=Path,
        metavar="PATH",
        help="read lines from this FIFO until SIGTERM, and create it if missing (default: read "
        "lines or a document from standard input)",
    )
    parser.add_argument(
        "--fifo-mode",
        type=mode_argument,
        default=0o660,
        metavar="MODE",
        help="mode of a new FIFO; whoever may write to it can publish any result (default: 0660)",
    )
    parser.add_argument(
        "--flush-s",
        type=seconds_argument,
        default=1.0,
        metavar="S",
        help="publish results within S seconds of reading them (default: 1)",
    )
    parser.add_argument(
        "--flavour",
        dest="service_flavour",
        type=text_argument,
        metavar="NAME",
        help="flavour of service results (default: Service); host results always have Host",
    )
    parser.add_argument(
        "--metric-prefix",
        default="",
        metavar="TEXT",
        help="prefix of the names of metrics, such as `org.example.`",
    )
    add_record_options(parser, with_uri=False)
    add_broker_options(parser)
    add_message_options(parser)


def handle(args: argparse.Namespace) -> int:
    config = config_of(args)
    if args.fifo and args.json:
        raise PublishUsage("--json prints one document at the end of the input: not with --fifo")
    clock = partial(datetime.now, timezone.utc)
    require_set_clock(clock())
    headers = headers_of(args, config)

    fit = partial(fitted_record, config=config, headers=headers)
    flavour = args.service_flavour or config.record.get("flavour") or SERVICE_FLAVOUR
    naming = Naming(flavour, args.metric_prefix)
    shared = record_of(args)
    host = this_host()

    def completed(record: Record) -> Record:
        return {"gatheredAt": host, **config.completed({**shared, **record})}

    results = PassiveResults(naming, RecordRules(config.message_class, clock, completed, fit))
    refused: list[RefusedRecord] = []
    counts = Counter[str]()

    def report(record: RefusedRecord) -> None:
        counts["refused"] += 1
        if args.fifo:
            logger.error("%s", record)
            return
        print_lines(f"sam-publish: error: {record}", file=sys.stderr)
        if args.json or not refused:  # without a document, the memory does not grow
            refused.append(record)

    def messages(found: Iterable[Found]) -> Iterator[Iterator[Message]]:
        return bursts(found, report, config.message_class, headers)

    with Termination() as termination:
        patience = PipePatience(args.flush_s, termination.descriptor)
        if args.fifo:
            with Fifo(args.fifo, args.fifo_mode, patience) as fifo:
                read = messages(results.of_lines(str(fifo.path), fifo.lines()))
                if args.dry_run:
                    return publish_and_report(read, config, args, termination=termination)
                return follow(read, config, args, counts, termination)
        with InputFile(STDIN, patience=patience) as file:
            read = messages(results.of_input(file, lambda: termination.received))
            return publish_and_report(read, config, args, refused=refused, termination=termination)


def follow(
    messages: Iterable[Iterable[Message]],
    config: PublisherConfig,
    args: argparse.Namespace,
    counts: Counter[str],
    termination: Termination,
) -> int:
    """Publish messages until the termination; each is then published or in the spool.

    Raises:
        NoBrokerTookIt: some messages are lost.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # as for SIGTERM, nothing may be lost
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    notifier = Notifier(os.environ.get("NOTIFY_SOCKET"))
    notifier.send("READY=1", f"STATUS=reading {args.fifo}")
    logger.info("reading %s", args.fifo)
    if not (config.targets or config.copy):
        logger.warning("%s", advice_without_brokers(args.config))
    with Courier(config, termination=termination) as courier:
        for burst in messages:
            for batch in chunks(burst, body_size, BATCH, BATCH_BYTES):
                try:
                    done = deliver_until_safe(courier, list(batch), config.timeout_s, termination)
                except NoBrokerTookIt as error:
                    rest = sum(1 for _ in chain(burst, chain.from_iterable(messages)))
                    error.lost, error.total = error.lost + rest, error.total + rest
                    raise
                counts["published"] += records_in(receipt.message for receipt in done.receipts)
                counts["spooled"] += records_in(done.spooled)
            if not termination.received:
                courier.drain(Deadline.after(config.timeout_s))
            notifier.send(f"STATUS={summary(counts)}")
    notifier.send("STOPPING=1")
    notifier.close()
    print_done(args, f"{args.fifo}: {summary(counts)}")
    return OK


def records_in(messages: Iterable[Message]) -> int:
    return sum(message.record_count or 0 for message in messages)


def summary(counts: Counter[str]) -> str:
    """What became of the lines that were read."""
    names = ("published", "spooled", "refused")
    parts = ", ".join(f"{counts[name]} {name}" for name in names)
    return f"{plural(sum(counts.values()), 'result')}: {parts}"


def mode_argument(text: str) -> int:
    """The argparse `type` of the mode of a file, in octal digits."""
    if not (text.isascii() and text.isdigit() and set(text) <= set("01234567") and len(text) <= 4):
        raise argparse.ArgumentTypeError(f"{text!r} is not a mode, such as 0660")
    return int(text, 8) & 0o777


MIN_WAIT_S, MAX_WAIT_S = 1.0, 30.0


def deliver_until_safe(
    courier: Courier,
    messages: Sequence[Message],
    timeout_s: float,
    termination: Termination,
) -> Publication:
    """Deliver the messages, again and again until each is at a broker or in the spool.

    Raises:
        NoBrokerTookIt, ConfigError: there was a termination before that; some messages are lost.
    """
    receipts: list[Receipt] = []
    spooled: list[Message] = []
    wait_s = MIN_WAIT_S
    while True:
        is_last = termination.received
        problem: Union[NoBrokerTookIt, ConfigError, None] = None
        publication = Publication()
        try:
            publication = courier.deliver(messages, Deadline.after(timeout_s))
        except NoBrokerTookIt as error:
            problem, publication, messages = error, error.publication, error.missing
        except ConfigError as error:
            problem = error
        receipts += publication.receipts
        spooled += publication.spooled
        if problem is None:
            return publication._replace(receipts=receipts, spooled=spooled)
        if is_last:
            raise problem
        text = "%s; nothing more is read, trying again in %g s"
        logger.error(text, "; ".join(problem.lines), wait_s)
        termination.wait(wait_s)
        wait_s = min(2 * wait_s, MAX_WAIT_S)
