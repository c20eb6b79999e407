"""The last step of what publishes: send, say what was sent where, and choose the exit code."""

from __future__ import annotations

import sys
import time

from sam_pipeline.publisher.delivery.publication import BATCH, Courier, NoBrokerTookIt
from sam_pipeline.publisher.delivery.read_ahead import ReadAhead
from sam_pipeline.publisher.settings.config import DESTINATION
from sam_pipeline.schema.chunks import chunks
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.command import BAD_DATA, OK, TRY_LATER
from sam_pipeline.schema.program.wording import plural

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, BinaryIO, Callable

    from sam_pipeline.publisher.delivery.publication import Publication
    from sam_pipeline.publisher.probe.input import RefusedRecord
    from sam_pipeline.publisher.settings.config import PublisherConfig
    from sam_pipeline.schema.messages.message import Message

FEW = 10
"""Up to this many messages get a line each; of more only the totals are printed."""

BATCH_BYTES = 4 * 1024 * 1024


def publish_and_report(
    messages: Iterable[Message],
    config: PublisherConfig,
    args: argparse.Namespace,
    refused: Sequence[RefusedRecord] = (),
    say: Callable[[str], object] = print,
    output: BinaryIO | None = None,
) -> int:
    """Publish while the messages come, say what was sent where, and give the exit code.

    `refused` may grow while they come. A dry run only prints what would be sent, to `output`.

    Raises:
        NoBrokerTookIt: after what was sent is said.
    """
    if args.dry_run:
        # Exactly what the first broker, or else the spool, would get.
        from sam_pipeline.publisher.brokers.transport import kind_of
        from sam_pipeline.schema.net.broker_url import SPOOL, Broker

        broker = next(iter(config.broker_list), Broker(SPOOL, path=str(config.spool)))
        preview = kind_of(broker).preview
        for message in messages:
            shown = preview(broker, config, config.addressed(message))
            (output or sys.stdout.buffer).write(shown)
        return BAD_DATA if refused else OK
    report = Report(config, args.json)
    failure: NoBrokerTookIt | None = None
    remaining = iter(messages)
    meanwhile = messages.work if isinstance(messages, ReadAhead) else None
    with Courier(config, meanwhile) as courier:
        for batch in chunks(remaining, lambda message: len(message.body), BATCH, BATCH_BYTES):
            started = time.monotonic()
            deadline = Deadline.after(config.timeout_s - report.elapsed_s)
            try:
                report.add(courier.deliver(batch, deadline))
            except NoBrokerTookIt as error:
                report.add(error.publication)
                error.lost += sum(1 for _ in remaining)
                error.total = report.total + error.lost
                failure = error
                break
            report.elapsed_s += time.monotonic() - started
        else:
            deadline = Deadline.after(config.timeout_s - report.elapsed_s)
            report.drained = courier.drain(deadline)
    if args.json:
        from sam_pipeline.schema.program.command import to_json

        say(to_json(report.document(refused)))
    else:
        for line in report.lines():
            say(line)
    if failure:
        sys.stdout.flush()  # what was sent is shown before what was not
        raise failure
    if config.require_broker and report.spooled:
        return TRY_LATER
    return BAD_DATA if refused or report.rejected else OK


class Report:
    """What was sent where: each message of a few, or as JSON; else the totals."""

    def __init__(self, config: PublisherConfig, in_full: bool) -> None:
        self._spool = str(config.spool)
        self._most = sys.maxsize if in_full else FEW
        self._items: list[dict[str, Any]] = []
        self._totals: dict[tuple[str, str], list[int]] = {}
        self._failures: dict[str, str] = {}
        self.rejected: list[dict[str, Any]] = []
        self.total = 0
        self.spooled = 0
        self.drained = 0
        self.elapsed_s = 0.0
        """Of publishing; the time in which nothing was done but read is not counted."""

    def add(self, publication: Publication) -> None:
        """What became of the next messages."""
        last, place = None, ""
        for message, address in publication.receipts:
            if address is not last:  # nearly all of them are the same
                last, place = address, str(address)
            self._placed(message, "published", place)
        for message in publication.spooled:
            self._placed(message, "spooled", self._spool)
        self.spooled += len(publication.spooled)
        for message, address, reason in publication.rejections:
            rejected = {"message_id": message.message_id, "broker": str(address), "reason": reason}
            self.rejected.append(rejected)
        for failure in publication.failures:  # each broker once
            self._failures.setdefault(failure.broker, failure.reason)

    def lines(self) -> Iterator[str]:
        if self.total <= FEW:
            for item in self._items:
                outcome, count = item["outcome"], item["records"]
                size = f"{item['size_bytes']} bytes" if count is None else plural(count, "record")
                what = f"{item['message_id']} ({item['message_class']}, {size})"
                where = f"{_preposition(outcome)} {item['place']} for {item['destination']}"
                yield f"{outcome} {what} {where}"
            return
        for (verb, place), (messages, records) in self._totals.items():
            counted = f"{messages} messages ({plural(records, 'record')})"
            yield f"{verb} {counted} {_preposition(verb)} {place} in {self.elapsed_s:.1f} s"

    def document(self, refused: Sequence[RefusedRecord]) -> dict[str, Any]:
        """The same and more, for programs."""
        return {
            "messages": [
                {key: value for key, value in item.items() if key != "size_bytes"}
                for item in self._items
            ],
            "rejected": self.rejected,
            "refused_records": [
                {"source": item.source, "line": item.line, "reason": item.reason, "text": item.text}
                for item in refused
            ],
            "unavailable": [
                {"broker": broker, "reason": reason} for broker, reason in self._failures.items()
            ],
            "drained": self.drained,
            "elapsed_s": round(self.elapsed_s, 3),
        }

    def _placed(self, message: Message, verb: str, place: str) -> None:
        self.total += 1
        count = message.record_count
        total = self._totals.setdefault((verb, place), [0, 0])
        total[0] += 1
        total[1] += count or 0
        if self.total > self._most:
            return
        self._items.append(
            {
                "message_id": message.message_id,
                "message_class": message.message_class,
                "records": count,
                "size_bytes": len(message.body),
                "destination": message.headers[DESTINATION],
                "outcome": verb,
                "place": place,
            }
        )


def _preposition(verb: str) -> str:
    return "to" if verb == "published" else "in"
