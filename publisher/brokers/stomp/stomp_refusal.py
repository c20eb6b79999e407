"""Whose fault it is that a STOMP session ended: the message's, or the broker's."""

from __future__ import annotations

import re

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.session import SessionEnded
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError

# What brokers say when the message or its destination is the trouble. With any other words the
# broker is: then the next one is tried.
MISSING = r"not.?found|no such|unknown (exchange|destination)"
FORBIDDEN = r"not authorized|access.?refused|denied|permission"
_REFUSAL = (
    rf"{MISSING}|{FORBIDDEN}|too (large|big|long)|maximum .*(length|size)"
    r"|inequivalent|precondition|invalid|illegal"
)


def says(pattern: str, words: object) -> bool:
    return re.search(pattern, str(words), re.IGNORECASE) is not None


def judged(address: BrokerAddress, position: int, end: SessionEnded) -> PublishError:
    """Whether the end of a session, while one message was under way, is its fault."""
    if end.by_error and says(_REFUSAL, end):
        return MessageRejected(address, position, str(end))
    return BrokerUnavailable(address, str(end))
