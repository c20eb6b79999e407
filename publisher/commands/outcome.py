"""Publish the messages of a command, report where each went, and choose the exit code."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Callable, TextIO

from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.commands.arguments import PROGRAM
from sam_pipeline.publisher.delivery.outgoing import addressed_to, messages_of_copy, outgoing
from sam_pipeline.publisher.delivery.publication import BATCH, Courier, NoBrokerTookIt, Publication
from sam_pipeline.publisher.settings import PublisherConfig, advice_without_brokers
from sam_pipeline.publisher.spool.bounded import count_losses
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import DESTINATION, Message, body_size, chunks
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    TERMINATED,
    TRY_LATER,
    print_done,
    print_json,
    print_lines,
    print_text,
)
from sam_pipeline.schema.program.wording import plural

if TYPE_CHECKING:
    from sam_pipeline.publisher.delivery.termination import Termination
    from sam_pipeline.publisher.probe.input import RefusedRecord

MAX_LISTED = 10
"""The text report lists at most this many messages one by one; of more it prints the totals."""

BATCH_BYTES = 4 * 1024 * 1024

PREPOSITION = {"published": "to", "spooled": "in"}

logger = lazy_logger(__name__)


def publish_and_report(
    bursts: Iterable[Iterable[Message]],
    config: PublisherConfig,
    args: argparse.Namespace,
    refused: Sequence[RefusedRecord] = (),
    meanwhile: Callable[[], bool] | None = None,
    termination: Termination | None = None,
    to_log: bool = False,
) -> int:
    """Publish the messages while they are read, report where they went, return the exit code.

    Args:
        bursts: messages that are published together; each has the whole time limit.
        refused: grows while the messages are read.
        meanwhile: work to do while a broker is at work; returns False if there is none.
        to_log: log the report, and print documents on standard error: the output is a plugin's.

    Raises:
        NoBrokerTookIt: some messages are lost; raised after the report on the others.
    """
    output = sys.stderr if to_log else sys.stdout
    if args.dry_run:
        print_previews(chain.from_iterable(bursts), config, output)
        return BAD_DATA if refused else OK
    report = Report(config, sys.maxsize if args.json else MAX_LISTED)
    with Courier(config, meanwhile, termination) as courier:
        for burst in bursts:
            deliver(burst, courier, report)
            if report.losses and not config.copy:
                break
    terminated = termination is not None and termination.received
    code = BAD_DATA if refused or report.rejected else OK
    if terminated:
        code = TERMINATED
    elif config.require_broker and any(report.spooled.values()):
        code = TRY_LATER
    if (report.spooled[""] or report.losses) and not config.targets and args.verbosity >= 0:
        # Not logged, since `import logging` is slow.
        print_lines(f"{PROGRAM}: warning: {advice_without_brokers(args.config)}", file=sys.stderr)
    if args.json:
        print_json(report.document(refused), file=output)
    elif to_log:
        for line in report.lines():
            logger.info("%s", line)
    else:
        print_done(args, *report.lines(), success=code == OK and not report.losses)
    if report.losses:
        count_losses(config.state, sum(loss.lost for loss in report.losses.values()))
        raise report.loss()
    if terminated:
        print_lines(*report.after_termination(), file=sys.stderr)
    return code


def deliver(messages: Iterable[Message], courier: Courier, report: Report) -> None:
    """Deliver messages and drain the spool, within the time limit; report where they went."""
    config = report.config
    remaining = iter(messages)
    elapsed_s = 0.0
    for batch in chunks(remaining, body_size, BATCH, BATCH_BYTES):
        started = time.monotonic()
        try:
            report.add(courier.deliver(batch, Deadline.after(config.timeout_s - elapsed_s)))
        except NoBrokerTookIt as error:
            report.add_losses(error)
            if not config.copy:  # which may be able to take the others
                error.lost += sum(1 for _ in remaining)
                break
        elapsed_s += time.monotonic() - started
    report.elapsed_s += elapsed_s
    if not report.losses or config.copy:
        report.drained += courier.drain(Deadline.after(config.timeout_s - elapsed_s))


def print_previews(messages: Iterable[Message], config: PublisherConfig, output: TextIO) -> None:
    """Print exactly the bytes that the first broker, and the first one of each copy, would get.

    A terminal gets control characters escaped.
    """
    for message in messages:
        for one in (config, *config.copies):
            own = messages_of_copy([message], config, one)[0] if one.copy_name else message
            target = one.targets[0] if one.targets else one.spool_target
            (sent,) = addressed_to(target, [outgoing(own, one)], one)
            preview = kind_of(target.broker).preview(target, sent)
            if output.isatty():
                text = preview.decode(errors="backslashreplace")
                print_lines(*text.removesuffix("\n").split("\n"), file=output)
            else:
                print_text(preview, output)


class Report:
    """Where the messages went: the first `max_listed` one by one, all of them as totals.

    The same for each copy, by its name; that of the section is empty.
    """

    def __init__(self, config: PublisherConfig, max_listed: int) -> None:
        self.config = config
        self._spools = {one.copy_name: str(one.spool) for one in (config, *config.copies)}
        self._max_listed = max_listed
        self._listed: list[dict[str, Any]] = []
        self._places: dict[tuple[str, str, str], list[int]] = {}
        """Messages and records, by outcome, place and copy."""
        self._unavailable: dict[tuple[str, str], str] = {}
        """The reason, by broker and copy."""
        self.losses: dict[str, NoBrokerTookIt] = {}
        """The first error of the section, and of each copy."""
        self.rejected: list[dict[str, Any]] = []
        self.totals = dict.fromkeys(self._spools, 0)
        self.spooled = dict.fromkeys(self._spools, 0)
        self.drained = 0
        self.elapsed_s = 0.0
        """Time spent publishing; time spent only reading does not count."""

    def add(self, publication: Publication) -> None:
        """Add the next messages."""
        for copy, part in (("", publication), *publication.copies):
            previous, place = None, ""
            for message, address in part.receipts:
                if address is not previous:  # nearly all of them are the same
                    previous, place = address, str(address)
                self._add_message(message, "published", place, copy)
            for message in part.spooled:
                self._add_message(message, "spooled", self._spools[copy], copy)
            self.spooled[copy] += len(part.spooled)
            for message, address, reason, _ in part.rejections:
                rejected = {"message_id": message.message_id, "broker": str(address)}
                self.rejected.append({**rejected, "reason": reason, "copy": copy or None})
            for failure in part.failures:
                self._unavailable.setdefault((failure.broker, copy), failure.reason)

    def add_losses(self, error: NoBrokerTookIt) -> None:
        """Add the next messages, some of which are lost."""
        self.add(error.publication)
        for loss in (error, *error.others):
            if first := self.losses.get(loss.copy_name):
                first.lost += loss.lost
            else:
                self.losses[loss.copy_name] = loss

    def loss(self) -> NoBrokerTookIt:
        """The error for all lost messages."""
        failure, *others = self.losses.values()
        failure.others = tuple(others)
        for loss in (failure, *others):
            loss.total = self.totals[loss.copy_name] + loss.lost
        return failure

    def lines(self) -> Iterator[str]:
        """The report as text."""
        if max(self.totals.values()) <= self._max_listed:
            for item in self._listed:
                outcome, count = item["outcome"], item["records"]
                size = f"{item['size_bytes']} bytes" if count is None else plural(count, "record")
                message = f"{item['message_id']} ({item['message_class']}, {size})"
                place = f"{PREPOSITION[outcome]} {item['place']}"
                copy = f" (copy {item['copy']})" if item["copy"] else ""
                yield f"{outcome} {message} {place} for {item['destination']}{copy}"
            return
        for (outcome, place, copy), (messages, records) in self._places.items():
            counts = f"{messages} messages ({plural(records, 'record')})"
            line = f"{outcome} {counts} {PREPOSITION[outcome]} {place} in {self.elapsed_s:.1f} s"
            yield f"{line} (copy {copy})" if copy else line

    def after_termination(self) -> Iterator[str]:
        """How many messages are safe, of the section and of each copy."""
        for copy, spooled in self.spooled.items():
            published = plural(self.totals[copy] - spooled, "message")
            whose = f"copy {copy}: " if copy else ""
            yield f"{PROGRAM}: terminated: {whose}{published} published, {spooled} spooled"

    def document(self, refused: Sequence[RefusedRecord]) -> dict[str, Any]:
        """The report as JSON, with more details."""
        return {
            "messages": [
                {key: value for key, value in item.items() if key != "size_bytes"}
                for item in self._listed
            ],
            "rejected": self.rejected,
            "refused_records": [item._asdict() for item in refused],
            "unavailable": [
                {"broker": broker, "reason": reason, "copy": copy or None}
                for (broker, copy), reason in self._unavailable.items()
            ],
            "drained": self.drained,
            "elapsed_s": round(self.elapsed_s, 3),
        }

    def _add_message(self, message: Message, outcome: str, place: str, copy: str) -> None:
        self.totals[copy] += 1
        count = message.record_count
        total = self._places.setdefault((outcome, place, copy), [0, 0])
        total[0] += 1
        total[1] += count or 0
        if self.totals[copy] > self._max_listed:
            return
        self._listed.append(
            {
                "message_id": message.message_id,
                "message_class": message.message_class,
                "records": count,
                "size_bytes": len(message.body),
                "destination": message.headers[DESTINATION],
                "outcome": outcome,
                "place": place,
                "copy": copy or None,
            }
        )
