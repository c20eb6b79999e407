"""What becomes of a signed message where it enters, before anything of it is parsed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, Optional

from sam_pipeline.schema.identity.identity import key_identity, with_identity
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.identity.signature import SignatureRefused, verify
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import REFUSED, mark_refused


class Arrival(NamedTuple):
    """A message as the policy wants it, and why its signature is refused, if it is."""

    message: Message
    refusal: Optional[SignatureRefused] = None


def arrived(message: Message, policy: Policy, now: datetime, max_age: timedelta) -> Arrival:
    """A signed message with the identity of its key; with a refused signature, marked as refused.

    If the policy only observes, a refused signature counts as none: the message keeps its identity.
    A message that was marked before is not what was signed, and is not loaded.
    """
    if REFUSED in message.headers:
        return Arrival(message)
    try:
        name = verify(message, policy.keys, now, max_age)
    except SignatureRefused as refusal:
        if policy.enforces:
            message = mark_refused(message, refusal.reason, refusal.text)
        return Arrival(message, refusal)
    return Arrival(with_identity(message, key_identity(name)) if name else message)
