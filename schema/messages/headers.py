"""The headers of a message by owner: those of our programs, of brokers, and of publishers.

Our programs write what they have established about a message into headers of their own. A sender
may not set these in any spelling: only a configured relay is trusted. Headers of a sender must
reach the consumer unchanged, and no broker may act on them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    COUNT,
    DESTINATION,
    FORMAT,
    HOST,
    MESSAGE_ID,
    PROGRAM,
    RENAME,
    USER,
    USER_HEADERS,
    Message,
)
from sam_pipeline.schema.records.normalise import MONITORING_HOST_HEADERS

OURS = frozenset(
    {"samidentity", "samrefused", "samrefusedtext", "samhead", "samrejected", "importfile"}
)
"""In lower case, without hyphens and underscores, which some transports change."""

CONTENT_LENGTH = "content-length"
RECEIPT = "receipt"
TRANSACTION = "transaction"

REJECTED = "samRejected"
"""Why no broker took a message that a relay keeps; for people, and not sent on."""

WRITTEN = frozenset(
    map(str.lower, (DESTINATION, "persistent", CLASS, COUNT, MESSAGE_ID, HOST, PROGRAM, USER))
)
"""Headers this program writes itself."""

SESSION = frozenset(
    {
        *("ack", "heart-beat", "host", "id", "login", "message-id", "passcode", "subscription"),
        *(CONTENT_LENGTH, RECEIPT, "receipt-id", TRANSACTION, "user-id"),
    }
)
"""Headers of STOMP itself, and the one by which RabbitMQ vouches for a sender."""

# An `ack` from a publisher breaks consumers on Artemis, and a `priority` or an `_AMQ_ROUTING_TYPE`
# of 99 stops its queue forever; it drops messages that repeat an `_AMQ_DUPL_ID`. ActiveMQ closes
# the connection without an ERROR because of a bad `timestamp`, `transformation` or
# `AMQ_SCHEDULED_DELAY`, and `expires` makes it drop a message after its receipt. RabbitMQ refuses a
# `CC` over STOMP.
BROKERS = frozenset(
    {
        *SESSION,
        *("expiration", "expires", "priority", "redelivered", "selector", "timestamp"),
        *("transformation", "type", "destination-type", "routing-type", "cc", "bcc"),
    }
)
"""Headers that some broker acts on."""
PRIORITY = "priority"
PRIORITIES = frozenset("0123456789")
"""The only values that all brokers understand; a message keeps them."""
PREFIXES = ("JMS", "AMQ", "HQ_")
"""The beginnings of others, after any underscores: `JMSXGroupID`, `_AMQ_DUPL_ID`."""

KEPT_HEADERS = (
    *(CLASS, MESSAGE_ID, CONTENT_TYPE, COUNT, FORMAT, RENAME, HOST, PROGRAM, USER),
    *(*MONITORING_HOST_HEADERS, *USER_HEADERS, "destination", "timestamp"),
)
"""The headers that are kept of a message with too many: they decide how its body is loaded."""

COVERED = tuple(sorted((CONTENT_TYPE, COUNT, FORMAT, RENAME, *MONITORING_HOST_HEADERS)))
"""The headers that change the meaning of the records, so that a signature covers them."""


def is_ours(name: str) -> bool:
    """Whether a header of this name is reserved for our programs."""
    return name.lower().replace("-", "").replace("_", "") in OURS


@lru_cache(maxsize=1000)  # nearly all messages have the same header names
def ours_among(names: tuple[str, ...]) -> tuple[str, ...]:
    """The header names among these that are ours."""
    return tuple(filter(is_ours, names))


def without_claims(message: Message, keep: Collection[str] = ()) -> Message:
    """The message without headers that are ours, but for those to `keep`."""
    claims = set(ours_among(tuple(message.headers))).difference(keep)
    if not claims:
        return message
    kept = {name: value for name, value in message.headers.items() if name not in claims}
    return Message(kept, message.body)


def belongs_to_broker(name: str) -> bool:
    """Whether some broker acts on a header of this name."""
    return name.lower() in BROKERS or name.upper().lstrip("_").startswith(PREFIXES)


def is_header_name(name: str) -> bool:
    """Whether STOMP can carry the name without escapes."""
    return bool(name) and not any(c <= " " or c in ":\\\x7f" for c in name)


def send_headers(message: Message) -> dict[str, str]:
    """The headers of the SEND of a message that has a destination.

    Headers that can't be sent are left out: an element of a foreign spool may have some.
    """
    headers = {name: value for name, value in message.headers.items() if can_travel(name)}
    if "\0" in "".join(headers.values()):  # it would end the frame
        headers = {name: value.replace("\0", "") for name, value in headers.items()}
    headers["persistent"] = "true"
    if message.headers.get(PRIORITY) in PRIORITIES:
        headers[PRIORITY] = message.headers[PRIORITY]
    # With a content-length ActiveMQ makes it a BytesMessage, so text is sent without one.
    try:
        message.body.decode()
        is_text = b"\0" not in message.body
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        headers[CONTENT_LENGTH] = str(len(message.body))
    return headers


@lru_cache(maxsize=64)  # nearly all messages of a call have the same header names
def can_travel(name: str) -> bool:
    """Whether a header of this name reaches a consumer and changes nothing on the way."""
    return is_header_name(name) and not belongs_to_broker(name) and name != REJECTED
