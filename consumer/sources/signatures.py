"""Verifies the signatures of messages as they arrive, by the present policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.schema.identity.arrival import arrived
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.identity.identity import key_identity
from sam_pipeline.schema.identity.signature import KEY_NAME
from sam_pipeline.schema.messages.message import Message

MAX_AGE = timedelta(days=30)
"""By default."""


@dataclass(frozen=True)
class SignatureCheck:
    """What all sources of a consumer do with signed messages; without a policy, nothing."""

    holder: PolicyHolder = field(default_factory=PolicyHolder)
    max_age: timedelta = MAX_AGE
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def checked(self, message: Message, inbox: Inbox) -> Message:
        """The signed message with the identity of its key, or marked as refused.

        A refused signature is counted for the publisher whose key it names.
        """
        policy = self.holder.policy
        if policy is None:
            return message
        arrival = arrived(message, policy, self.clock(), self.max_age)
        if arrival.refusal:
            identity = key_identity(message.headers[KEY_NAME])
            publisher = policy.publisher_of(identity)
            name = publisher.name if publisher else identity
            inbox.count_refusal(name, arrival.refusal.reason)
        return arrival.message
