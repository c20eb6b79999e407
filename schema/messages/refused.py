"""Messages that a source can't pass on as they are: too large, with a malformed head, or with a
signature that is bad or has expired.

The source marks such a message with headers, so a relay preserves the mark. A marked message is not
decoded; it becomes a dead letter with the reason and the text of the mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message

REFUSED = "samRefused"
REFUSED_TEXT = "samRefusedText"
HEAD = "samHead"
"""The beginning of a malformed head as received; bytes that are not UTF-8 are escaped."""
MARKS = (REFUSED, REFUSED_TEXT, HEAD)

BAD_FRAME = "bad-frame"
TOO_LARGE = "too-large"
BAD_SIGNATURE = "bad-signature"
SIGNATURE_EXPIRED = "signature-expired"
REASONS = (BAD_FRAME, TOO_LARGE, BAD_SIGNATURE, SIGNATURE_EXPIRED)

KEPT_BYTES = 64 * 1024
"""How much of such a message the dead letter keeps."""


def mark_refused(message: Message, reason: str, text: str, head: bytes = b"") -> Message:
    """The message with a mark; `reason` is one of REASONS, `text` a sentence."""
    headers = {**message.headers, REFUSED: reason, REFUSED_TEXT: text}
    if head:
        headers[HEAD] = head.decode("utf-8", "backslashreplace")
    return Message(headers, message.body)


def refusal_of(message: Message) -> MessageRefused | None:
    """Why a source marked the message; None if it did not."""
    reason = message.headers.get(REFUSED)
    if not reason:
        return None
    # Publishers can also set these headers; their messages are then refused like marked ones.
    known = reason if reason in REASONS else BAD_FRAME
    return MessageRefused(known, message.headers.get(REFUSED_TEXT) or "refused by its sender")


class LimitedBody:
    """A body that arrives in pieces; no more than `limit` bytes or KEPT_BYTES are in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most = max(limit, KEPT_BYTES)
        self._length = 0
        self._digest = sha256()
        self._beginning = bytearray()

    def add(self, piece: bytes) -> None:
        self._length += len(piece)
        self._digest.update(piece)
        self._beginning += piece[: self._most - len(self._beginning)]

    def message(self, headers: Mapping[str, str]) -> Message:
        """The message; if the body is not whole, marked, with its first KEPT_BYTES.

        A message without an id gets the digest of the whole body: others may begin alike.
        """
        if self._length <= self._most:
            return Message(headers, bytes(self._beginning))
        digest = self._digest.hexdigest()
        beginning = bytes(self._beginning[:KEPT_BYTES])
        text = (
            f"{self._length} bytes, above max_message_bytes = {self._limit}; the first"
            f" {len(beginning)} are kept; SHA-256 of all: {digest}"
        )
        if not headers.get(MESSAGE_ID):
            headers = {**headers, MESSAGE_ID: f"sha256:{digest}"}
        return mark_refused(Message(headers, beginning), TOO_LARGE, text)
