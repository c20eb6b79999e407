"""The sinks of a relay: a directory queue, or network brokers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import accumulate

from sam_pipeline.consumer.core.inbox import (
    BROKER,
    NOWHERE,
    SPOOL,
    Delivery,
    MessageOutcome,
    Outcome,
    UnloadedRecord,
    answering,
)
from sam_pipeline.consumer.core.loop import Sink
from sam_pipeline.consumer.core.recovery import Attempts
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import BrokersAway, SinkAway, needs_action
from sam_pipeline.consumer.process.last_good import LastGood
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.errors import ConfigError, SpoolError
from sam_pipeline.schema.identity.identity import identified
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.destination import forwarding_destination, problem_of_destination
from sam_pipeline.schema.messages.headers import REJECTED
from sam_pipeline.schema.messages.message import DESTINATION, Message, default_destination
from sam_pipeline.schema.net.broker import SPOOL as SPOOL_URL
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.channel import Resolver, error_text, open_connection
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.net.stomp.sender import (
    FORBIDDEN,
    EndedByMessage,
    SendingSession,
    SendRefused,
    StompSender,
    says,
)
from sam_pipeline.schema.net.stomp.session import SessionLost
from sam_pipeline.schema.net.tls import secure, tls_context
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue

REFUSED_BY_BROKER = "refused-by-broker"
NO_DESTINATION = "it names neither a destination nor a class"

CONNECT_S = 5.0
ANSWER_S = 15.0
"""The time limit for a broker to confirm the messages of one call."""
BATCH = 500
BATCH_BYTES = 4 * 1024 * 1024
"""The limits on the messages of one call."""
REST_S = 30.0
"""How long a broker that failed is not tried again, as long as another one confirms."""
FORGET_REFUSALS_S = 60.0
"""A new connection after this time asks again for what the broker has refused."""

MAX_SUSPECTS = 10
"""After as many messages in a row that perhaps ended a session, the broker is to blame."""
MAX_ATTEMPTS = 5
"""After as many sessions in a row that perhaps ended by it, a message is to blame."""
PROVEN = "login"

logger = logging.getLogger(__name__)


@contextmanager
def opened_relay(config: ConsumerConfig, state: State, attempts: Attempts) -> Iterator[Sink]:
    """The spool or the brokers of a relay."""
    if config.targets[0].kind == SPOOL_URL:
        yield SpoolSink(config.targets[0], attempts)
        return
    with closing(BrokerSink(config.targets, config, state, attempts)) as brokers:
        yield brokers


class SpoolSink(Sink):
    """One directory queue.

    A redelivered message is in it twice, with the same id; the consumer that loads it stores it
    once.
    """

    def __init__(self, broker: Broker, attempts: Attempts) -> None:
        self._attempts = attempts
        self._queue = DirectoryQueue(broker.path, broker.shared)

    def prepare(self) -> None:
        try:
            self._queue.has_elements()  # raises if the queue can't be read
        except SpoolError as error:
            raise SinkAway(error) from error

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        with self._attempts.decoding(batch):
            elements = [serialise(identified(delivery.message)) for delivery in batch]
        try:
            for _ in self._queue.store_all(elements):
                pass  # an element is fsynced when its name is yielded
        except SpoolError as error:
            raise SinkAway(error) from error
        # Messages are not decoded, so none is bad.
        return Outcome(answers=dict.fromkeys(answering(batch), MessageOutcome(SPOOL)))


class BrokerSink(Sink):
    """The brokers of a relay, in the order in which they are tried.

    The one that confirmed last is tried first. A redelivered message is sent again, with the same
    id. A message that one broker refuses is offered to the others. If none takes it, a sender that
    waits for an answer keeps it; otherwise it is stored with the rejected messages.
    """

    def __init__(
        self, brokers: Sequence[Broker], config: ConsumerConfig, state: State, attempts: Attempts
    ) -> None:
        self._attempts = attempts
        self._links = [BrokerLink(broker, config, state.out_of_use) for broker in brokers]
        self._rejected = DirectoryQueue(config.rejected_directory)
        self._state = state
        self._batch: Sequence[Delivery] = ()
        """The last batch; the messages of it that were confirmed are not sent again."""
        self._pending: dict[int, Message] = {}
        """Its messages that are neither confirmed nor rejected, by position."""
        self._rejections: dict[int, tuple[Message, str]] = {}
        """Those that no broker takes and are not kept yet, with the reason."""

    def prepare(self) -> None:
        losses: dict[str, SessionLost] = {}
        for link in self._links:
            try:
                link.connect()
                return
            except SessionLost as loss:
                losses[link.name] = loss
        raise _away(losses)

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        if batch is not self._batch:
            with self._attempts.decoding(batch):
                messages = [addressed(delivery.message) for delivery in batch]
            problems = {at: problem_of(message) for at, message in enumerate(messages)}
            self._batch = batch
            self._pending = {at: messages[at] for at, problem in problems.items() if not problem}
            self._rejections = {
                at: (messages[at], problem) for at, problem in problems.items() if problem
            }
        # Each message is offered to the brokers until one of them confirms or rejects it.
        reasons: dict[int, str] = {}
        losses: dict[str, SessionLost] = {}
        for link in sorted(self._links, key=lambda link: link.rests):
            if not self._pending or (link.rests and reasons.keys() >= self._pending.keys()):
                break
            self._state.turned()
            try:
                link.send(self._pending, reasons)
                self._links.sort(key=lambda other: other is not link)
            except SessionLost as loss:
                losses[link.name] = loss
        if not reasons.keys() >= self._pending.keys():
            raise _away(losses)
        for at, message in self._pending.items():
            self._rejections[at] = message, reasons[at]
        self._pending = {}
        answers: dict[int, MessageOutcome] = {}
        for at in answering(batch):
            _, problem = self._rejections.get(at, (None, ""))
            answers[at] = MessageOutcome(BROKER)
            if problem:
                reason = NOT_AUTHORISED if says(FORBIDDEN, problem) else REFUSED_BY_BROKER
                letter = UnloadedRecord(None, reason, problem)
                answers[at] = MessageOutcome(NOWHERE, letters=[letter])
        count = len(self._rejections)
        try:
            self._keep_rejections(answers)
        except SpoolError as error:
            raise SinkAway(error) from error
        self._batch = ()
        return Outcome(Counts(rejected_messages=count - len(self._rejections)), answers)

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    def _keep_rejections(self, answered: Collection[int]) -> None:
        """Store the rejected messages in a directory queue, each with the reason in a header.

        `sam-publish spool` lists, shows, drops and sends them. The senders of the `answered` ones
        keep them. Raises SpoolError: those that remain are not stored.
        """
        positions = [at for at in self._rejections if at not in answered]
        elements = [
            serialise(Message({**message.headers, REJECTED: reason}, message.body))
            for message, reason in map(self._rejections.__getitem__, positions)
        ]
        kept: dict[tuple[str, str], list[str]] = {}
        for at, _ in zip(positions, self._rejected.store_all(elements), strict=True):
            message, reason = self._rejections.pop(at)
            destination = message.headers.get(DESTINATION, "")
            kept.setdefault((destination, reason), []).append(message.message_id)
        for (destination, reason), ids in kept.items():
            logger.error(
                "%s rejected, first %s to %s: %s; kept in %s (docs/consumer.md, Rejected messages)",
                plural(len(ids), "message"),
                ids[0],
                destination or "no destination",
                reason,
                self._rejected.path,
                extra={"message_id": ids[0]},
            )


def addressed(message: Message) -> Message:
    """The message with its identity, and its own destination or that of its class."""
    destination = message.headers.get(DESTINATION, "")
    if destination:
        target = forwarding_destination(destination)
    else:
        target = default_destination(message.message_class) if message.message_class else ""
    headers, body = identified(message)
    return Message({**headers, DESTINATION: target}, body)


def problem_of(message: Message) -> str | None:
    """Why no broker can deliver the message to anybody."""
    destination = message.headers.get(DESTINATION)
    return problem_of_destination(destination) if destination else NO_DESTINATION


def _away(losses: Mapping[str, SessionLost]) -> SinkAway:
    """The error if no broker can be used, with the loss by broker."""
    reasons = [f"{name}: {loss}" for name, loss in losses.items()]
    return SinkAway(BrokersAway(reasons), needs_action=all(map(needs_action, losses.values())))


class BrokerLink:
    """One broker, with all addresses behind its name; it connects when it first sends."""

    def __init__(
        self,
        broker: Broker,
        config: ConsumerConfig,
        show: Callable[[str, str], object] = lambda *_: None,
    ) -> None:
        """`show` as of LastGood."""
        self.name = str(broker)
        self._broker = broker
        target = self._target = config.target_of(broker)
        files = self._files = target.tls_files
        self._proxy = LastGood(f"proxy to {broker}", target.find_proxy, show)
        self._password = LastGood(f"password at {broker}", target.password.read, show)
        self._context = LastGood(f"TLS files for {broker}", partial(tls_context, files), show)
        self._resolver = Resolver()
        self._sender: StompSender | None = None
        self._refused_at: float | None = None
        """When the broker first refused a message on this connection."""
        self._failed_at = -REST_S
        self._suspect, self._suspected = "", 0
        """The message that perhaps ended the last session, and how often in a row it did."""

    @property
    def rests(self) -> bool:
        """Whether it failed a short time ago."""
        return time.monotonic() - self._failed_at < REST_S

    def connect(self) -> StompSender:
        """The open connection, or a new one; raises SessionLost."""
        if self._refused_at and time.monotonic() - self._refused_at > FORGET_REFUSALS_S:
            self.close()
        try:
            if self._sender is None:
                self._sender = StompSender(self._open_session, Deadline.after(CONNECT_S))
                logger.info("broker %s: connected", self.name, extra={"broker": self.name})
        except SessionLost:
            self._failed_at = time.monotonic()
            raise
        return self._sender

    def send(
        self, pending: MutableMapping[int, Message], refused: MutableMapping[int, str]
    ) -> None:
        """Send the pending messages, by position, and remove those that the broker confirms.

        The reasons of those that it refuses are added to `refused`; they stay pending.

        Raises:
            SessionLost: the other messages are not confirmed.
        """
        waiting = list(pending)
        suspects: dict[int, SessionLost] = {}
        """Messages that perhaps ended a session, with no other one confirmed since."""
        try:
            while waiting and len(suspects) < MAX_SUSPECTS:
                sizes = accumulate(len(pending[position].body) for position in waiting[:BATCH])
                count = sum(size < BATCH_BYTES for size in sizes) + 1
                batch = waiting[: min(count, BATCH)]
                settled = set()
                try:
                    sender = self.connect()
                    messages = [pending[position] for position in batch]
                    for index in sender.send(messages, Deadline.after(ANSWER_S)):
                        settled.add(batch[index])
                        del pending[batch[index]]
                        # The broker works, so they are to blame.
                        refused.update(
                            (at, f"{self.name}: {loss}") for at, loss in suspects.items()
                        )
                        suspects.clear()
                except SendRefused as refusal:
                    settled.add(batch[refusal.position])
                    refused[batch[refusal.position]] = f"{self.name}: {refusal.reason}"
                    self._refused_at = self._refused_at or time.monotonic()
                except EndedByMessage as loss:
                    settled.add(batch[loss.position])
                    suspects[batch[loss.position]] = loss
                    self.close()
                waiting = [position for position in waiting if position not in settled]
            self._judge(suspects, pending, refused)
        except SessionLost:
            self._failed_at = time.monotonic()
            self.close()
            raise

    def _judge(
        self,
        suspects: Mapping[int, SessionLost],
        pending: Mapping[int, Message],
        refused: MutableMapping[int, str],
    ) -> None:
        """Raise the loss by the first suspect, unless it has been the first for too often."""
        if not suspects:
            return
        first, loss = next(iter(suspects.items()))
        message_id = pending[first].message_id
        self._suspected = self._suspected + 1 if message_id == self._suspect else 1
        self._suspect = message_id
        if self._suspected < MAX_ATTEMPTS:
            raise loss
        refused[first] = f"{self.name}: {loss}"
        if len(suspects) > 1:
            raise loss

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._sender:
            self._sender.close()
        self._sender, self._refused_at = None, None

    def _open_session(self, deadline: Deadline) -> SendingSession:
        """A session with the first address that accepts us; raises SessionLost."""
        broker, target = self._broker, self._target
        try:
            proxy = self._proxy()
            ips = [broker.host]  # a proxy resolves it
            if proxy is None:
                ips = self._resolver.ips_of(broker.host, broker.port, deadline)
            password = self._password()
        except (OSError, ConfigError) as error:
            raise SessionLost(error_text(error)) from error
        certificate = self._files.certificate_file if broker.tls else None
        loss = SessionLost("its name has no address")
        for number, ip in enumerate(ips):
            share = deadline.share(len(ips) - number)
            try:
                channel = open_connection(broker, (ip, broker.port), proxy, share)
                if broker.tls:
                    channel = secure(channel, broker, self._files, self._context)
                return SendingSession(
                    channel, target.user, password, certificate, share, target.vhost
                )
            except (OSError, ConfigError) as error:
                loss = SessionLost(error_text(error))
                loss.__cause__ = error
            except SessionLost as error:
                loss = error
        raise loss


def login_trip(broker: Broker, config: ConsumerConfig) -> RoundTrip:
    """Whether a relay can log in at the broker; nothing is sent."""

    def prove() -> str:
        with closing(BrokerLink(broker, config)) as link:
            try:
                link.connect()
            except SessionLost as loss:
                raise SessionLost(f"--to {broker}: {loss}") from loss
        return PROVEN

    proxy = None
    with suppress(ConfigError):  # reported by `prove`
        proxy = config.target_of(broker).find_proxy()
    return timed(broker, str(proxy or ""), "", prove, SessionLost)
