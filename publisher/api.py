"""The Python interface for probes: publish with the same guarantees as `sam-publish`.

    from sam_pipeline.publisher import Publisher, publish_record

    publish_record({"metricName": "org.example.Ping", "metricStatus": "OK", …})

    with Publisher() as publisher:
        for record in records:
            publisher.add(record)

Once `publish_record` has returned, or the block was left, every record is confirmed by a broker or
on disk in the spool; otherwise `NoBrokerTookIt` was raised, which names the lost messages. No call
takes longer than `timeout_s`, by the monotonic clock, plus the time to write to the spool. A
message that is sent again has the same id. Without `with`, call `close()`; the messages of
a forgotten Publisher are spooled, with a warning.

A Publisher must be used by one thread at a time; each thread may have its own. After a fork it
belongs to the parent process; a child makes its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_origin

from sam_pipeline.publisher.delivery.outgoing import (
    fitted,
    messages_of_copy,
    outgoing,
    require_deliverable,
    script_origin,
    signer_of,
)
from sam_pipeline.publisher.delivery.publication import (
    Courier,
    MessageBatch,
    NoBrokerTookIt,
    Publication,
)
from sam_pipeline.publisher.probe.values import record_of_values, this_host
from sam_pipeline.publisher.settings import PublisherConfig, load_config
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.message import MAX_BYTES, MAX_RECORDS, Message, new_message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.times import format_time, require_set_clock

OF_THE_FILE = {"broker", "copy"}
"""Keys that can only be set in the file."""
BATCH = 100
"""Messages are delivered as soon as this many wait."""

logger = lazy_logger(__name__)


def publish_record(
    record: Mapping[str, object], config: PublisherConfig | None = None, **settings: Any
) -> Publication:
    """Publish one record: on return a broker or the spool has it.

    Values are texts, numbers, booleans, dates and aware times; a key with None counts as absent.
    `timestamp` defaults to now, `gatheredAt` to this host. Without a `config`, that of
    `sam-publish` is read; `settings` such as `brokers=("stomp://msg.example.org",)` override it.

    Raises:
        RecordRefused: the record can never be loaded.
        ClockNotSet: the clock of this host can't be right.
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
        """The settings are those of PublisherConfig; they override file and environment.

        A list may stand for a tuple, a string for a path, and a string with commas for a list.

        Raises:
            ConfigError: the configuration is bad.
        """
        keys = PublisherConfig.KEYS
        known = {*keys, "require_broker"} - OF_THE_FILE
        if unknown := ", ".join(settings.keys() - known):
            raise TypeError(f"unknown publisher setting: {unknown}")
        fields = dict(settings)
        for name, value in settings.items():
            kind = keys[name].kind if name in keys else bool
            if kind is Path and isinstance(value, str):
                fields[name] = Path(value)
            elif get_origin(kind) is tuple and isinstance(value, str):
                fields[name] = tuple(filter(None, map(str.strip, value.split(","))))
            elif isinstance(value, list):
                fields[name] = tuple(value)
        if config is None:
            self.config = load_config(None, fields)
        else:  # it was not checked
            self.config = config.replace(**fields)
            destination = self.config.destination_of(self.config.message_class)
            if problem := problem_of_destination(destination):
                raise ConfigError([problem])
            if self.config.signing_key_file:
                signer_of(self.config.signing_key_file)
        self.published = 0
        self.spooled = 0
        self.last = Publication()
        """The outcome of the messages that were delivered last."""
        self._courier = Courier(self.config)
        self._waiting = _Waiting(self.config)
        self._finalizer: Any = None
        self._closed = False

    def __enter__(self) -> Publisher:
        self._check_usable()
        return self

    def __exit__(self, *_: object) -> None:
        """Like `close`, even if the block ends with an error."""
        self.close()

    def close(self) -> None:
        """Deliver everything that was added; a second call does nothing.

        Raises:
            NoBrokerTookIt: some messages are lost.
        """
        if self._closed:
            return
        self._check_usable()  # the connection is the parent's, and must not be closed here
        try:
            deadline = Deadline.after(self.config.timeout_s)
            self._deliver(deadline)
            self.last = self.last._replace(drained=self._courier.drain(deadline))
        finally:
            self._courier.close()
            self._closed = True

    def add(self, record: Mapping[str, object]) -> None:
        """Add a record of the configured class to the next message.

        Values are texts, numbers, booleans, dates and aware times; a key with None counts as
        absent. Details that make the record too large are shortened, with a warning.

        Raises:
            RecordRefused: this record can never be loaded; the others are not affected.
            ClockNotSet: the clock of this host can't be right.
            NoBrokerTookIt: messages that were due for delivery are lost.
        """
        self._check_usable()
        now = datetime.now(timezone.utc)
        fields = self.config.completed(record_of_values(record))
        if self.config.message_class.lower() == "metricoutput":
            require_set_clock(now)
            fields = {"timestamp": format_time(now), "gatheredAt": this_host(), **fields}
        for row in normalise(fields, self.config.message_class, {}, now):
            self._waiting.add(write_wlcg(row))
        self._deliver_if_due()

    def add_message(self, message: Message) -> None:
        """Add a message; a missing class or destination is set as configured, but no origin.

        Raises:
            MessageRefused: no consumer could receive it, or it is too large.
            NoBrokerTookIt: messages that were due for delivery are lost.
        """
        self._check_usable()
        require_deliverable(message, self.config)
        self._waiting.messages.append(message)
        self._deliver_if_due()

    def flush(self) -> None:
        """Deliver everything that was added so far to a broker or the spool.

        Raises:
            NoBrokerTookIt: some messages are lost; this object does not keep them.
        """
        self._check_usable()
        self._deliver(Deadline.after(self.config.timeout_s))

    def _deliver_if_due(self) -> None:
        if self._finalizer is None:
            from weakref import finalize  # 1 ms, and sam-publish does not need it

            self._finalizer = finalize(self, self._waiting.rescue)
        if len(self._waiting.messages) >= BATCH:
            self._deliver(Deadline.after(self.config.timeout_s), partly=True)

    def _deliver(self, deadline: Deadline, *, partly: bool = False) -> None:
        """Deliver everything, or `partly` the complete messages.

        An interrupt leaves all of them waiting: sending one again, with the same id, is harmless.
        """
        if not partly:
            self._waiting.pack()
        messages = self._waiting.messages
        if not messages:
            return
        loss = None
        try:
            self.last = self._courier.deliver(messages, deadline)
        except NoBrokerTookIt as error:
            loss, self.last = error, error.publication
        messages.clear()
        self.published += len(self.last.receipts)
        self.spooled += len(self.last.spooled)
        if loss:
            raise loss

    def _check_usable(self) -> None:
        if os.getpid() != self._waiting.process:
            raise RuntimeError("a Publisher can't be used after a fork: make one in this process")
        if self._closed:
            raise RuntimeError("the Publisher is closed: make another one")


class _Waiting:
    """The records and messages that a Publisher has not delivered yet; it outlives its Publisher.

    It belongs to the process that made it.
    """

    def __init__(self, config: PublisherConfig) -> None:
        self.messages: list[Message] = []
        self.process = os.getpid()
        self._config = config
        self._origin = script_origin(sys.argv[0] if sys.argv else "")
        self._texts: list[str] = []
        """The records of the next message."""
        self._size = 0

    def add(self, text: str) -> None:
        """Add the text of a record; raises MessageRefused if it is too large, even shortened."""
        size = len(text.encode("utf-8", "replace"))
        if len(self._texts) == MAX_RECORDS or self._size + size > MAX_BYTES:
            self.pack()
        if size > MAX_BYTES:
            self.messages.append(fitted(self._message(text, 1), self._config))
            return
        self._texts.append(text)
        self._size += size

    def pack(self) -> None:
        """Make a message of the records that are not part of one yet."""
        if self._texts:
            text, count = "".join(self._texts), len(self._texts)
            self._texts, self._size = [], 0
            self.messages.append(self._message(text, count))

    def _message(self, text: str, count: int) -> Message:
        message_class = self._config.message_class
        return new_message(message_class, text, record_count=count, headers=self._origin)

    def rescue(self) -> None:
        """Spool the messages of a Publisher that was dropped, or was open when the program ended.

        No broker is asked: the end of a program must not wait for one.
        """
        if os.getpid() != self.process:
            return
        self.pack()
        messages, self.messages[:] = self.messages[:], []
        _rescue(messages, self._config)
        for copy in self._config.copies:
            _rescue(messages_of_copy(messages, self._config, copy), copy)


def _rescue(messages: Sequence[Message], config: PublisherConfig) -> None:
    """Store the messages in the spool of the section or of a copy, and warn of that."""
    batch = MessageBatch(messages)
    problem: Exception | None = None
    try:
        batch = MessageBatch([outgoing(message, config) for message in messages])
        problem = batch.spool(config)
    except ConfigError as error:
        problem = error
    lost, stored = (
        sum(message.record_count or 1 for message in some)
        for some in (batch.missing.values(), batch.spooled)
    )
    dropped, advice = "a Publisher was dropped, not closed", "use `with`, or call close()"
    if config.copy_name:
        dropped = f"copy {config.copy_name}: {dropped}"
    if lost:
        text = "%s: %s of its %s records are lost: %s; %s"
        logger.warning(text, dropped, lost, lost + stored, problem or "the spool is off", advice)
    elif stored:
        spooled = plural(stored, "record")
        logger.warning("%s: spooled its %s in %s; %s", dropped, spooled, config.spool, advice)
