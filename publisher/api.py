"""For probes written in Python: publish without a command, with the same promises.

    from sam_pipeline.publisher import Publisher, publish_record

    publish_record({"metricName": "org.example.Ping", "metricStatus": "OK", …})

    with Publisher() as publisher:
        for record in records:
            publisher.add(record)

What holds: after `publish_record` returned, or the block was left, every record is confirmed by a
broker or on disk in the spool, or `NoBrokerTookIt` names the messages that are kept nowhere. No
call takes longer than `timeout_s`, by a clock that never jumps, plus the writing to the spool. A
message that is sent again, whatever broke, has the same id.

One thread uses a Publisher at a time; each thread may have its own. A process that forks leaves
it to the parent: a child makes its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sam_pipeline.publisher.delivery.publication import Courier, NoBrokerTookIt, Publication
from sam_pipeline.publisher.probe.host_name import this_host
from sam_pipeline.publisher.settings.config import PublisherConfig, load_config
from sam_pipeline.schema.messages.message import MAX_BYTES, MAX_RECORDS, Message, new_message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import write_wlcg

if TYPE_CHECKING:
    from types import TracebackType

BATCH = 100
"""Messages that wait, at most, before they are handed over."""


def publish_record(
    record: Mapping[str, str], config: PublisherConfig | None = None, **settings: Any
) -> Publication:
    """Publish one record: on return a broker or the spool has it.

    `timestamp` (now) and `gatheredAt` (this host) need not be given. Without a `config`, that of
    `sam-publish` is read, under `settings` such as `brokers=("stomp://msg.example.org",)`.

    Raises:
        RecordRefused: it can never be loaded, and says why.
        NoBrokerTookIt: no broker and no spool took it.
        ConfigError: the configuration is bad.
    """
    with Publisher(config, **settings) as publisher:
        publisher.add(record)
    return publisher.last


class Publisher:
    """Publishes what is added to it, over one connection; done when the block is left.

    Records are packed into messages as `sam-publish send` does: at most 100, or 64 kB.
    """

    def __init__(self, config: PublisherConfig | None = None, **settings: Any) -> None:
        """The settings are the fields of PublisherConfig; they beat the file and the environment.

        A list may stand for a tuple, and a text for a path.

        Raises:
            ConfigError: the configuration is bad.
        """
        wanted = PublisherConfig.__annotations__
        unknown = ", ".join(settings.keys() - wanted.keys())
        if unknown:
            raise TypeError(f"no such setting of a publisher: {unknown}")
        given = dict(settings)
        for name, value in settings.items():
            if "Path" in str(wanted[name]) and isinstance(value, str):
                given[name] = Path(value)
            elif isinstance(value, list):
                given[name] = tuple(value)
        self.config = config._replace(**given) if config else load_config(None, given)
        self.published = 0
        self.spooled = 0
        self.last = Publication()
        """What became of the messages that were handed over last."""
        self._courier = Courier(self.config)
        self._texts: list[str] = []
        self._size = 0
        self._messages: list[Message] = []
        self._process = os.getpid()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hand over what was added, even if the block ends with an error.

        Raises:
            NoBrokerTookIt: some messages are kept nowhere.
        """
        self._refuse_a_fork()  # the connection is the parent's: it must not be closed either
        try:
            deadline = Deadline.after(self.config.timeout_s)
            self._pack()
            self._hand_over(deadline)
            self.last = self.last._replace(drained=self._courier.drain(deadline))
        finally:
            self._courier.close()

    def add(self, record: Mapping[str, str]) -> None:
        """Have a record of the configured class published with the next message.

        Raises:
            RecordRefused: it can never be loaded; the others are not concerned.
            NoBrokerTookIt: the messages that were due are kept nowhere.
        """
        from datetime import datetime, timezone

        from sam_pipeline.schema.times import format_time

        now = datetime.now(timezone.utc)
        if self.config.message_class.lower() == "metricoutput":
            record = {"timestamp": format_time(now), "gatheredAt": this_host(), **record}
        for row in normalise(record, self.config.message_class, {}, now):
            text = write_wlcg(row)
            size = len(text.encode("utf-8", "replace"))
            if len(self._texts) == MAX_RECORDS or self._size + size > MAX_BYTES:
                self._pack()
            self._texts.append(text)
            self._size += size
        self._hand_over_if_due()

    def add_message(self, message: Message) -> None:
        """Have a message published as it is; it gets the class and the destination it lacks.

        Raises:
            NoBrokerTookIt: the messages that were due are kept nowhere.
        """
        self._messages.append(message)
        self._hand_over_if_due()

    def flush(self) -> None:
        """Return when a broker or the spool has all that was added.

        Raises:
            NoBrokerTookIt: some messages are kept nowhere; they are forgotten here.
        """
        self._pack()
        self._hand_over(Deadline.after(self.config.timeout_s))

    def _pack(self) -> None:
        if self._texts:
            text, count = "".join(self._texts), len(self._texts)
            self._texts, self._size = [], 0
            self._messages.append(new_message(self.config.message_class, text, record_count=count))

    def _hand_over_if_due(self) -> None:
        if len(self._messages) >= BATCH:
            self._hand_over(Deadline.after(self.config.timeout_s))

    def _hand_over(self, deadline: Deadline) -> None:
        self._refuse_a_fork()
        messages, self._messages = self._messages, []
        if not messages:
            return
        try:
            self._count(self._courier.deliver(messages, deadline))
        except NoBrokerTookIt as error:
            self._count(error.publication)
            raise

    def _count(self, publication: Publication) -> None:
        self.last = publication
        self.published += len(publication.receipts)
        self.spooled += len(publication.spooled)

    def _refuse_a_fork(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("a Publisher stays with the process that made it: make one here")
