"""What a SEND frame carries: our headers, and none that a broker would take for its own."""

from __future__ import annotations

import re
from functools import lru_cache

from sam_pipeline.publisher.settings.config import DESTINATION
from sam_pipeline.schema.messages.message import CLASS, COUNT, MESSAGE_ID, Message
from sam_pipeline.schema.net.stomp_frame import CONTENT_LENGTH

RECEIPT = "receipt"
TRANSACTION = "transaction"

OURS = frozenset({DESTINATION, "persistent", CLASS.lower(), COUNT.lower(), MESSAGE_ID.lower()})
"""Headers this program writes itself."""

# An `ack` of a publisher breaks consumers on Artemis, a bad `timestamp` closes the connection on
# ActiveMQ without a word, `expires` makes a message vanish behind a receipt, and so on.
BROKERS = frozenset(
    {
        *("ack", "expiration", "expires", "id", "message-id", "priority", "redelivered"),
        *("selector", "subscription", "timestamp", "type", "user-id"),
        *(CONTENT_LENGTH, "heart-beat", "host", "login", "passcode"),
        *(RECEIPT, "receipt-id", TRANSACTION),
    }
)
"""Headers with a meaning of their own to some broker."""

_NAME = re.compile(r"[^\x00-\x20:\\\x7f]+")


def belongs_to_broker(name: str) -> bool:
    return name.lower() in BROKERS or name.upper().startswith("JMSX")


def is_header_name(name: str) -> bool:
    """Whether STOMP carries the name as it is."""
    return _NAME.fullmatch(name) is not None


def send_headers(message: Message) -> dict[str, str]:
    """The headers of the SEND of a message that has a destination.

    An element of a foreign spool may bring more than can travel: that stays behind.
    """
    headers = dict(message.headers)
    if not _all_travel(tuple(headers)):
        headers = {name: value for name, value in headers.items() if _travels(name)}
    if "\0" in "".join(headers.values()):  # ends a frame
        headers = {name: value.replace("\0", "") for name, value in headers.items()}
    headers["persistent"] = "true"
    # With a length ActiveMQ makes it a BytesMessage: text goes without one.
    try:
        message.body.decode()
        is_text = b"\0" not in message.body
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        headers[CONTENT_LENGTH] = str(len(message.body))
    return headers


@lru_cache(maxsize=64)  # the messages of a call have the same names, seldom others
def _all_travel(names: tuple[str, ...]) -> bool:
    return all(map(_travels, names))


def _travels(name: str) -> bool:
    return is_header_name(name) and not belongs_to_broker(name)
