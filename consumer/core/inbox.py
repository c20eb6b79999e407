"""Deliveries, their outcomes, and the bounded queue between all sources and the main loop."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import Message

NO_LIMIT = 2**62
STOP_S = 0.2
"""How often a wait for messages checks whether to stop."""

USUAL_HEADERS = 30
HEADER_BYTES = 150
"""What a header takes in memory, besides its text."""

DATABASE, BROKER, SPOOL = "database", "broker", "spool"
"""Where a message may be stored."""
NOWHERE = ""
"""No broker of a relay takes the message: its sender keeps it."""


class UnloadedRecord(NamedTuple):
    """A record that could not be loaded; the `number` of a whole message is None.

    After many such records, one of a whole message stands for all of them.
    """

    number: int | None
    reason: str
    text: str


class MessageOutcome(NamedTuple):
    """Where a message is stored; if `NOWHERE`, a letter has the reason.

    `rows` were stored, `duplicates` changed nothing, and the records in `letters` became dead
    letters, now or when the message arrived for the first time. A broker and a spool read no
    records.
    """

    stored: str
    rows: int = 0
    duplicates: int = 0
    letters: Sequence[UnloadedRecord] = ()


@dataclass
class Outcome:
    """What became of a batch that is stored."""

    counts: Counts = field(default_factory=Counts)
    answers: dict[int, MessageOutcome] = field(default_factory=dict)
    """For the deliveries whose sessions answer, by position in the batch."""
    pauses: Mapping[str, float] = field(default_factory=dict)
    """The seconds for which brokers are not read, since their publishers exceed their rates.

    By broker, or by identity if the session answers.
    """


class Session(Protocol):
    """The scope of ack tokens: a connection, or a spool."""

    broker: str
    answers: bool
    """Whether it is an AnsweringSession."""

    @property
    def batch_size(self) -> int:
        """A batch of more messages never completes: the session delivers on after an ack."""

    def ack(self, tokens: Sequence[Any]) -> None:
        """Let another thread inform the broker that the messages are stored.

        It neither waits nor fails if the connection is lost, since they are redelivered then.
        """

    def give_back(self, tokens: Sequence[Any]) -> None:
        """Let another thread leave the messages with the broker, or with their senders.

        A connection acks nothing more, since that would ack them as well, and ends.
        """


class AnsweringSession(Session, Protocol):
    """A session that informs senders about the outcome of their messages."""

    def answer(self, outcomes: Sequence[tuple[Any, MessageOutcome]]) -> None:
        """Like `ack`, with the outcome of the message of each token; called once for a batch."""


class Delivery(NamedTuple):
    """A message, with the session and the token by which to acknowledge it."""

    message: Message
    session: Session
    token: Any


def acknowledge(
    batch: Sequence[Delivery],
    outcomes: Mapping[int, MessageOutcome] = MappingProxyType({}),
) -> None:
    """Ack all deliveries of a batch, in order; `outcomes` are those to answer, by position."""
    by_session: dict[Session, list[Any]] = {}
    answers: dict[Session, list[tuple[Any, MessageOutcome]]] = {}
    for position, outcome in outcomes.items():
        _, session, token = batch[position]
        answers.setdefault(session, []).append((token, outcome))
    for _, session, token in batch:
        if not session.answers:
            by_session.setdefault(session, []).append(token)
    for session, tokens in by_session.items():
        session.ack(tokens)
    for session, pairs in answers.items():
        cast(AnsweringSession, session).answer(pairs)


def answering(batch: Sequence[Delivery]) -> list[int]:
    """The positions of the deliveries whose sessions answer."""
    return [position for position, (_, session, _) in enumerate(batch) if session.answers]


def size_of(message: Message) -> int:
    """About how many bytes of memory the body takes, and the headers if they are unusually many."""
    headers, body = message
    count = len(headers)  # looking at each of them would cost a percent of the throughput
    return len(body) + (count * HEADER_BYTES if count > USUAL_HEADERS else 0)


def count_by_broker(deliveries: Sequence[Delivery]) -> Counter[str]:
    """The number of deliveries by broker."""
    return Counter(delivery.session.broker for delivery in deliveries)


class BatchRule(NamedTuple):
    """Limits that end a batch.

    It has `size` messages, or the `batch_size` of its first session, the next one would exceed
    `max_bytes`, its first message was taken `age_s` ago, or no message arrived for `silence_s`.
    """

    size: int
    age_s: float = 0.1
    silence_s: float = 0.1
    max_bytes: int = NO_LIMIT


class Inbox:
    """Deliveries in order of arrival.

    It accepts every delivery. A source waits for room before it reads on, so a consumer that can't
    keep up slows down its brokers. The limits are exceeded at most by one read of each source.
    """

    def __init__(
        self,
        max_messages: int,
        max_bytes: int = NO_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_messages = max_messages
        self._max_bytes = max_bytes
        self._clock = clock
        self._deliveries: deque[Delivery] = deque()
        self._sizes: deque[int] = deque()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._paused: dict[str, float] = {}
        """When the inbox accepts messages of a broker again."""
        self._counts = Counts()
        self.size_bytes = 0
        """The size of all messages in the inbox."""
        self.reconnects: Counter[str] = Counter()
        """The sessions by broker that replaced a lost one."""

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def has_room(self) -> bool:
        """Whether the inbox is below both limits."""
        return self.has_room_behind(0)

    def has_room_behind(self, messages: int) -> bool:
        """Whether there is still room after this number of further messages."""
        count = len(self._deliveries) + messages
        return count < self.max_messages and self.size_bytes < self._max_bytes

    def has_room_for(self, broker: str) -> bool:
        """Whether messages of the broker may be read: there is room, and it is not paused."""
        return self.has_room and not self.paused_s(broker)

    def wait_for_room(self, broker: str, timeout_s: float) -> bool:
        """Wait for room; returns whether there is any after at most `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.has_room_for(broker), timeout_s)

    def pause(self, broker: str, pause_s: float) -> None:
        """Leave messages with a broker for a while, since their publishers exceed their rates.

        A session that answers has no messages to leave: there the name is that of an identity.
        """
        now = self._clock()
        self._paused = {name: until for name, until in self._paused.items() if now < until}
        self._paused[broker] = now + pause_s

    def paused_s(self, broker: str) -> float:
        """For how long the inbox accepts nothing from a broker or an identity."""
        until = self._paused.get(broker)
        return 0.0 if until is None else max(until - self._clock(), 0.0)

    @property
    def any_paused(self) -> bool:
        """Whether a broker may have more messages that must not be read yet."""
        return any(self._clock() < until for until in self._paused.values())

    def put(self, deliveries: Sequence[Delivery], head_bytes: int = 0) -> None:
        """Append the deliveries, without waiting; `head_bytes` is the size of all their heads."""
        share = head_bytes // len(deliveries) if deliveries else 0
        sizes = [size_of(delivery.message) + share for delivery in deliveries]
        with self._changed:
            self._deliveries.extend(deliveries)
            self._sizes.extend(sizes)
            self.size_bytes += sum(sizes)
            self._changed.notify_all()

    def take(
        self, rule: BatchRule, wait_s: float, stop: threading.Event | None = None
    ) -> list[Delivery]:
        """A batch, which is empty if no message arrived within `wait_s`, or before `stop`.

        Raises:
            BaseException: the error that ended the thread of a source.
        """
        batch: list[Delivery] = []
        ends_at = time.monotonic() + wait_s
        with self._changed:
            while not (self._deliveries or self._failure):
                wait_s = ends_at - time.monotonic()
                if wait_s <= 0 or (stop and stop.is_set()):
                    return batch
                self._changed.wait(min(wait_s, STOP_S))
        bytes_left = self._move(batch, rule, rule.max_bytes, 0.0)
        ready_at = self._clock() + rule.age_s
        while batch and bytes_left > 0 and (left_s := ready_at - self._clock()) > 0:
            count = len(batch)
            bytes_left = self._move(batch, rule, bytes_left, min(rule.silence_s, left_s))
            if len(batch) == count:
                break
        return batch

    def count(self, counts: Counts) -> None:
        """Count messages that a source has refused, or elements that it has set aside."""
        with self._changed:
            self._counts += counts.printable_for(self._counts)

    def count_reconnect(self, broker: str) -> None:
        """Count a session that replaced a lost one."""
        with self._changed:
            self.reconnects[broker] += 1

    def counted(self) -> Counts:
        """What sources have counted since the last call of `take_counts`."""
        with self._changed:
            return deepcopy(self._counts)

    def take_counts(self) -> Counts:
        """Move what sources have counted into a total."""
        with self._changed:
            taken, self._counts = self._counts, Counts()
        return taken

    def held(self) -> Counter[str]:
        """The number of messages in the inbox by broker."""
        with self._changed:
            waiting = tuple(self._deliveries)
        return count_by_broker(waiting)

    def discard(self, session: Session) -> None:
        """Remove the messages of a lost session, since its broker redelivers them."""
        with self._changed:
            pairs = zip(self._deliveries, self._sizes, strict=True)
            others = [pair for pair in pairs if pair[0].session is not session]
            self._deliveries = deque(delivery for delivery, _ in others)
            self._sizes = deque(size for _, size in others)
            self.size_bytes = sum(self._sizes)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Make the main loop end the program with this error."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def raise_failure(self) -> None:
        """Raise the error that ended the thread of a source, if any."""
        if self._failure:
            raise self._failure

    def _move(self, batch: list[Delivery], rule: BatchRule, bytes_left: int, wait_s: float) -> int:
        """Move messages that fit into the batch, the first one in any case.

        Returns the bytes left, or 0 if the batch is complete.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._deliveries or self._failure, wait_s)
            self.raise_failure()
            first = next(chain(batch, self._deliveries), None)
            max_count = min(rule.size, first.session.batch_size) if first else rule.size
            while self._deliveries and len(batch) < max_count:
                if batch and self._sizes[0] > bytes_left:
                    break
                batch.append(self._deliveries.popleft())
                size = self._sizes.popleft()
                bytes_left -= size
                self.size_bytes -= size
            self._changed.notify_all()
        return bytes_left if len(batch) < max_count else 0
