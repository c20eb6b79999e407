"""The Python interface for probes: publish with the same guarantees as `sam-publish`.

    from sam_pipeline.publisher import Publisher, publish_record

    publish_record({"metricName": "org.example.Ping", "metricStatus": "OK", …})

    with Publisher() as publisher:
        for record in records:
            publisher.add(record)

Once `publish_record` has returned, or the block was left, every record is confirmed by a broker or
on disk in the spool; otherwise `NoBrokerTookIt` was raised, which names the lost messages. No call
takes longer than `timeout_s`, by the monotonic clock, plus the time to write to the spool. A
message that is sent again has the same id.

A Publisher must be used by one thread at a time; each thread may have its own. After a fork it
belongs to the parent process; a child makes its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sam_pipeline.publisher.delivery.publication import Courier, NoBrokerTookIt, Publication
from sam_pipeline.publisher.probe.host_name import this_host
from sam_pipeline.publisher.settings.config import PublisherConfig, load_config
from sam_pipeline.schema.messages.message import MAX_BYTES, MAX_RECORDS, Message, new_message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.times import format_time

BATCH = 100
"""Messages are delivered as soon as this many wait."""


def publish_record(
    record: Mapping[str, str], config: PublisherConfig | None = None, **settings: Any
) -> Publication:
    """Publish one record: on return a broker or the spool has it.

    `timestamp` defaults to now, `gatheredAt` to this host. Without a `config`, that of
    `sam-publish` is read; `settings` such as `brokers=("stomp://msg.example.org",)` override it.

    Raises:
        RecordRefused: the record can never be loaded.
        NoBrokerTookIt: neither a broker nor the spool took it.
        ConfigError: the configuration is bad.
    """
    with Publisher(config, **settings) as publisher:
        publisher.add(record)
    return publisher.last


class Publisher:
    """Publishes the records and messages added to it, over one connection; a context manager.

    Records are packed into messages of at most 100 records or 64 kB.
    """

    def __init__(self, config: PublisherConfig | None = None, **settings: Any) -> None:
        """The settings are fields of PublisherConfig; they override file and environment.

        A list is accepted for a tuple, and a string for a path.

        Raises:
            ConfigError: the configuration is bad.
        """
        types = PublisherConfig.__annotations__
        unknown = ", ".join(settings.keys() - types.keys())
        if unknown:
            raise TypeError(f"unknown publisher setting: {unknown}")
        fields = dict(settings)
        for name, value in settings.items():
            if "Path" in str(types[name]) and isinstance(value, str):
                fields[name] = Path(value)
            elif isinstance(value, list):
                fields[name] = tuple(value)
        self.config = config._replace(**fields) if config else load_config(None, fields)
        self.published = 0
        self.spooled = 0
        self.last = Publication()
        """The outcome of the messages that were delivered last."""
        self._courier = Courier(self.config)
        self._texts: list[str] = []
        self._size = 0
        self._messages: list[Message] = []
        self._process = os.getpid()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        """Deliver everything that was added, even if the block ends with an error.

        Raises:
            NoBrokerTookIt: some messages are lost.
        """
        self._check_process()  # the connection is the parent's, and must not be closed here
        try:
            deadline = Deadline.after(self.config.timeout_s)
            self._pack()
            self._deliver(deadline)
            self.last = self.last._replace(drained=self._courier.drain(deadline))
        finally:
            self._courier.close()

    def add(self, record: Mapping[str, str]) -> None:
        """Add a record of the configured class to the next message.

        Raises:
            RecordRefused: this record can never be loaded; the others are not affected.
            NoBrokerTookIt: messages that were due for delivery are lost.
        """
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
        self._deliver_if_due()

    def add_message(self, message: Message) -> None:
        """Add a message; a missing class or destination is set as configured.

        Raises:
            NoBrokerTookIt: messages that were due for delivery are lost.
        """
        self._messages.append(message)
        self._deliver_if_due()

    def flush(self) -> None:
        """Deliver everything that was added so far to a broker or the spool.

        Raises:
            NoBrokerTookIt: some messages are lost; this object does not keep them.
        """
        self._pack()
        self._deliver(Deadline.after(self.config.timeout_s))

    def _pack(self) -> None:
        if self._texts:
            text, count = "".join(self._texts), len(self._texts)
            self._texts, self._size = [], 0
            self._messages.append(new_message(self.config.message_class, text, record_count=count))

    def _deliver_if_due(self) -> None:
        if len(self._messages) >= BATCH:
            self._deliver(Deadline.after(self.config.timeout_s))

    def _deliver(self, deadline: Deadline) -> None:
        self._check_process()
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

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("a Publisher can't be used after a fork: make one in this process")
