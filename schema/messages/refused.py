"""Messages that a source could not take as they are: too large, or with a malformed head.

The source marks such a message with headers, so a relay preserves the mark. A marked message is not
decoded; it becomes a dead letter with the reason and the text of the mark.
"""

from __future__ import annotations

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.message import Message

REFUSED = "samRefused"
REFUSED_TEXT = "samRefusedText"

BAD_FRAME = "bad-frame"
TOO_LARGE = "too-large"

KEPT_BYTES = 64 * 1024
"""How much of what could not be taken is kept in the dead letter."""


def mark_refused(message: Message, reason: str, text: str) -> Message:
    """The message with a mark; `reason` is BAD_FRAME or TOO_LARGE, `text` a sentence."""
    return Message({**message.headers, REFUSED: reason, REFUSED_TEXT: text}, message.body)


def refusal_of(message: Message) -> MessageRefused | None:
    """Why a source marked the message; None if it did not."""
    reason = message.headers.get(REFUSED)
    if not reason:
        return None
    # Publishers can set these headers, too; their messages are then refused like marked ones.
    known = reason if reason == TOO_LARGE else BAD_FRAME
    return MessageRefused(known, message.headers.get(REFUSED_TEXT) or "refused by its sender")
