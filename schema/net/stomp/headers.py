"""The headers of a SEND frame: ours, and none that a broker would act on."""

from __future__ import annotations

import re
from functools import lru_cache

from sam_pipeline.schema.messages.message import (
    CLASS,
    COUNT,
    DESTINATION,
    HOST,
    MESSAGE_ID,
    PROGRAM,
    USER,
    Message,
)
from sam_pipeline.schema.net.stomp.frame import CONTENT_LENGTH

RECEIPT = "receipt"
TRANSACTION = "transaction"

REJECTED = "samRejected"
"""Why no broker took a message that a relay keeps; for people, and not sent on."""

OURS = frozenset(
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
# of 99 stops its queue for ever; it drops messages that repeat an `_AMQ_DUPL_ID`. ActiveMQ closes
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
"""So begin the names of others, after any underscores: `JMSXGroupID`, `_AMQ_DUPL_ID`."""

_NAME = re.compile(r"[^\x00-\x20:\\\x7f]+")


def belongs_to_broker(name: str) -> bool:
    """Whether some broker acts on a header of this name."""
    return name.lower() in BROKERS or name.upper().lstrip("_").startswith(PREFIXES)


def is_header_name(name: str) -> bool:
    """Whether STOMP can carry the name without escapes."""
    return _NAME.fullmatch(name) is not None


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
