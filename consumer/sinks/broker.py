"""Network brokers as a sink: each message goes to the first one that confirms it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.inbox import (
    BROKER,
    NOWHERE,
    Delivery,
    MessageOutcome,
    Outcome,
    UnloadedRecord,
    answering,
)
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import BrokersAway, SinkAway, needs_action
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sinks.broker_link import BrokerLink
from sam_pipeline.consumer.sinks.rejected import RejectedMessage, RejectedStore
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.identity.identity import identified
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.destination import forwarding_destination, problem_of_destination
from sam_pipeline.schema.messages.message import DESTINATION, Message, default_destination
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.stomp.sender import FORBIDDEN, says
from sam_pipeline.schema.net.stomp.session import SessionLost

REFUSED_BY_BROKER = "refused-by-broker"
NO_DESTINATION = "it names neither a destination nor a class"


class BrokerSink:
    """The brokers of a relay, in the order in which they are tried.

    The one that confirmed last is tried first. A redelivered message is sent again, with the same
    id. A message that one broker refuses is offered to the others. If none takes it, its sender
    keeps it if that waits for an answer; otherwise it is kept with the rejected messages.
    """

    def __init__(
        self,
        brokers: Sequence[Broker],
        config: ConsumerConfig,
        state: State,
        attempts: Attempts,
    ) -> None:
        self._attempts = attempts
        self._links = [BrokerLink(broker, config, state.out_of_use) for broker in brokers]
        self._kept = RejectedStore(config.rejected_directory)
        self._state = state
        self._batch: Sequence[Delivery] = ()
        """The last batch; the messages of it that were confirmed are not sent again."""
        self._pending: dict[int, Message] = {}
        """Its messages that are neither confirmed nor rejected, by position."""
        self._rejections: dict[int, RejectedMessage] = {}
        """Those that no broker takes and are not kept yet."""

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
                at: RejectedMessage(messages[at], problem)
                for at, problem in problems.items()
                if problem
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
            self._rejections[at] = RejectedMessage(message, reasons[at])
        self._pending = {}
        answers = {at: self._outcome(at) for at in answering(batch)}
        try:
            rejected = self._kept.keep(self._rejections, answers)
        except SpoolError as error:
            raise SinkAway(error) from error
        self._batch = ()
        return Outcome(Counts(rejected_messages=rejected), answers)

    def upkeep(self, news: bool) -> None:
        pass

    def finish(self) -> None:
        pass

    def close(self) -> None:
        """Close all connections."""
        for link in self._links:
            link.close()

    def _outcome(self, at: int) -> MessageOutcome:
        """The outcome of the message at this position, whose sender waits for it."""
        rejection = self._rejections.get(at)
        if rejection is None:
            return MessageOutcome(BROKER)
        forbidden = says(FORBIDDEN, rejection.reason)
        reason = NOT_AUTHORISED if forbidden else REFUSED_BY_BROKER
        return MessageOutcome(NOWHERE, letters=[UnloadedRecord(None, reason, rejection.reason)])


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
