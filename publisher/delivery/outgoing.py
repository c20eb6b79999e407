"""Messages as brokers and the spool get them: with class and destination, and signed.

A message that no consumer could load is refused before it is sent or spooled; details that are too
long are shortened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from pwd import getpwuid
from typing import TYPE_CHECKING

from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema import VERSION
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.destination import require_destination
from sam_pipeline.schema.messages.headers import without_claims
from sam_pipeline.schema.messages.message import (
    CLASS,
    DESTINATION,
    HOST,
    KEY_NAME,
    MAX_BYTES,
    PROGRAM,
    SIGNATURE,
    SIGNED_AT,
    USER,
    Message,
    new_message,
)
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.records.classes import DETAILS
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import END, ReadRecord, Record, read_wlcg, write_wlcg

if TYPE_CHECKING:
    from sam_pipeline.schema.identity.keys import Signer

LONGEST = 100
"""The most characters of a value."""

USER_TIMEOUT_S = 1.0
"""How long the name of an account is looked up: a directory service may be down."""

NAMED_USER = ("LOGNAME", "USER")


def command_origin(command: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of messages that a command of `sam-publish` makes."""
    return origin_of(f"sam-publish/{VERSION} {command}", environment)


def script_origin(script: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of messages that a script makes with the library."""
    return origin_of(f"{os.path.basename(script) or 'python'} sam-publish/{VERSION}", environment)


def origin_of(program: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of messages that `program` makes on this host, printable in any header."""
    # DNS is not asked for the full name, so that all messages from a host carry the same name.
    user = next(filter(None, map(environment.get, NAMED_USER)), None)
    if not user:
        number = os.getuid()
        try:
            user = str(within(Deadline.after(USER_TIMEOUT_S), getpwuid, number).pw_name)
        except (KeyError, OSError, RuntimeError):  # including TimeoutError; no more threads
            user = f"uid {number}"
    headers = {HOST: os.uname().nodename, PROGRAM: program, USER: user}
    for header, value in headers.items():
        if not (value.isascii() and value.isprintable()):  # some broker might change it
            value = "".join(c if " " <= c <= "~" else "?" for c in value)
        headers[header] = value.strip()[:LONGEST]
    return headers


def outgoing(message: Message, config: PublisherConfig) -> Message:
    """The message addressed, and signed if there is a key and no signature of another publisher.

    Raises:
        ConfigError: the key can't be used.
    """
    message = addressed(message, config)
    if config.signing_key_file is None or message.headers.get(SIGNATURE):
        return message
    from sam_pipeline.schema.identity.signature import sign  # 10 ms

    return sign(message, signer_of(config.signing_key_file), datetime.now(timezone.utc))


@lru_cache(maxsize=10)
def signer_of(path: Path) -> Signer:
    """The signer of a key file, which is read once per process.

    Raises:
        ConfigError: the file can't be used, or nothing can sign on this host.
    """
    from sam_pipeline.schema.identity.signature import load_signer  # 10 ms

    return load_signer(path)


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


MAX_MESSAGE_BYTES = Limits().max_message_bytes
"""The limit of a consumer whose configuration sets none."""

_DETAILS = f"\n{DETAILS}: ".encode()
_END = f"\n{END}\n".encode()

logger = lazy_logger(__name__)


def require_deliverable(message: Message, config: PublisherConfig) -> None:
    """Raises MessageRefused if no consumer could receive the message, or it is too large."""
    as_sent = addressed(message, config)
    require_destination(as_sent.headers[DESTINATION])
    if problem := _problem_of_size(as_sent, config):
        raise MessageRefused("too-large", f"message {message.message_id}: {problem}")


def fitted(message: Message, config: PublisherConfig) -> Message:
    """A message of one record; if it is too large, with as much of its details as fits.

    Raises:
        MessageRefused: it is too large without its details.
    """
    problem = _problem_of_size(addressed(message, config), config)
    if not problem:
        return message
    head, key, details = message.body.removesuffix(_END).partition(_DETAILS)

    def beginning(size: int) -> bytes:
        return details[:size].decode("utf-8", "ignore").encode()

    def shortened(size: int) -> Message:
        kept = beginning(size)
        mark = f"\n[{len(details) - len(kept)} bytes were left out here]"
        return Message(message.headers, b"".join((head, key, kept, mark.encode(), _END)))

    def is_too_large(candidate: Message) -> bool:
        return bool(_problem_of_size(addressed(candidate, config), config))

    fits, too_many = 0, min(len(details), MAX_MESSAGE_BYTES)
    if not key or is_too_large(shortened(fits)):
        raise MessageRefused("too-large", f"message {message.message_id}: {problem}")
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if is_too_large(shortened(middle)):
            too_many = middle
        else:
            fits = middle
    logger.warning(
        "message %s is too large, %s bytes of its details were left out: %s",
        message.message_id,
        len(details) - len(beginning(fits)),
        problem,
        extra={"message_id": message.message_id},
    )
    return shortened(fits)


def fitted_record(record: Record, config: PublisherConfig, headers: Mapping[str, str]) -> Record:
    """A record that fits into a message, if necessary with shortened details.

    Raises:
        MessageRefused: it is too large without its details.
    """
    text = write_wlcg(record)
    if len(text) * 4 <= MAX_BYTES:  # no character has more bytes
        return record
    message = new_message(config.message_class, text, record_count=1, headers=headers)
    shortened = fitted(message, config)
    if shortened is message:
        return record
    (read,) = read_wlcg(shortened.body)
    assert isinstance(read, ReadRecord), "our own text"
    return read.fields


def refusals_of(message: Message, config: PublisherConfig) -> dict[str, str]:
    """By broker: why no broker of its kind can take the message; only those that can't."""
    as_sent = addressed(message, config)
    reasons = {}
    for target in config.targets:
        (sent,) = addressed_to(target, [as_sent], config)
        reasons[str(target)] = kind_of(target.broker).refusal_of(target.broker, sent)
    return {broker: reason for broker, reason in reasons.items() if reason}


def _problem_of_size(message: Message, config: PublisherConfig) -> str:
    """Why the message is too large for consumers, or for all brokers of one set; or empty."""
    size = len(message.body)
    if size > MAX_MESSAGE_BYTES:
        return f"{size} bytes, above the consumers' limit of {MAX_MESSAGE_BYTES}"
    if size <= MAX_BYTES:  # every kind of broker takes 64 kB
        return ""
    problems = (_problem_at_brokers(message, one) for one in (config, *config.copies))
    return next(filter(None, problems), "")


def _problem_at_brokers(message: Message, config: PublisherConfig) -> str:
    """Why the message is too large for each of the brokers; empty if one can take it."""
    if not config.targets:
        return ""
    if config.signing_key_file:
        # No character of base64 takes more space than `+`, however a broker's interface encodes it.
        signature = {
            KEY_NAME: config.signing_key_file.name,
            SIGNED_AT: "2026-01-01T00:00:00Z",
            SIGNATURE: "+" * 88,
        }
        message = Message({**message.headers, **signature}, message.body)
    refusals = refusals_of(message, config)
    return next(iter(refusals.values())) if len(refusals) == len(config.targets) else ""
