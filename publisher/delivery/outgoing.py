"""Messages as brokers and the spool get them: with class and destination, and signed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.messages.message import (
    CLASS,
    DESTINATION,
    SIGNATURE,
    Message,
    without_claims,
)
from sam_pipeline.schema.net.target import Target


def outgoing(message: Message, config: PublisherConfig) -> Message:
    """The message addressed, and signed if there is a key.

    Raises:
        ConfigError: the key can't be used.
    """
    message = addressed(message, config)
    if config.signing_key_file is None:
        return message
    from sam_pipeline.publisher.delivery.signing import signed  # 15 ms

    return signed(message, config.signing_key_file)


def addressed(message: Message, config: PublisherConfig) -> Message:
    """The message with class and destination, and without headers that only relays may set."""
    message = without_claims(message)
    if message.headers.get(DESTINATION) and message.headers.get(CLASS):
        return message
    message = message.with_default_class(config.message_class)
    if message.headers.get(DESTINATION):
        return message
    return _sent_to(config.destination_of(message.message_class or ""), message)


def addressed_to(
    target: Target, messages: Sequence[Message], config: PublisherConfig
) -> Sequence[Message]:
    """Addressed messages as this broker gets them.

    One that goes where its class goes elsewhere, goes where its class goes here; unless it has a
    signature of another publisher, which covers the destination.
    """

    def here(message: Message) -> Message:
        message_class = message.message_class or ""
        is_usual = message.headers[DESTINATION] == config.usual_destination(message_class)
        destination = target.destinations.get(message_class.lower())
        if not (destination and is_usual) or message.headers.get(SIGNATURE):
            return message
        return _sent_to(destination, message)

    return [here(message) for message in messages]


def destination_at(target: Target, message_class: str, config: PublisherConfig) -> str:
    """The destination at a broker, for messages of this class that have none."""
    here = {} if config.option_destination else target.destinations
    return here.get(message_class.lower()) or config.destination_of(message_class)


def messages_of_copy(
    messages: Iterable[Message], config: PublisherConfig, copy: PublisherConfig
) -> list[Message]:
    """The messages as they are for a copy, with the same ids.

    Those that go where the section has its messages go where the copy has its own.
    """

    def copied(message: Message) -> Message:
        message = addressed(message, config)
        message_class = message.message_class or ""
        is_usual = message.headers[DESTINATION] == config.destination_of(message_class)
        if not is_usual or message.headers.get(SIGNATURE):  # of another publisher
            return message
        return _sent_to(copy.destination_of(message_class), message)

    return [copied(message) for message in messages]


def _sent_to(destination: str, message: Message) -> Message:
    return Message({**message.headers, DESTINATION: destination}, message.body)
