"""Verifies the signatures of messages as they arrive, by the present policy."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import chain

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.schema.identity.identity import key_identity
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.identity.signature import arrived
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import KEY_NAME, Message

MAX_AGE = timedelta(days=30)
WORTH_THREADS = 8
"""Fewer messages are verified by the thread that has read them."""
THREADS = os.cpu_count() or 1


@dataclass(frozen=True)
class SignatureCheck:
    """Verifies signed messages for all sources of a consumer; without a policy, verifies none."""

    policy: Policy | None = None
    max_age: timedelta = MAX_AGE
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def all_checked(self, messages: Sequence[Message], inbox: Inbox) -> Iterable[Message]:
        """Like `checked`, for messages that arrived together: on all processors."""
        if self.policy is None or len(messages) < WORTH_THREADS:
            return [self.checked(message, inbox) for message in messages]
        size = -(-len(messages) // THREADS)
        parts = [messages[at : at + size] for at in range(0, len(messages), size)]
        # The library verifies without holding Python's lock.
        check = partial(map, partial(self.checked, inbox=inbox))
        return chain.from_iterable(_pool().map(lambda part: list(check(part)), parts))

    def checked(self, message: Message, inbox: Inbox) -> Message:
        """The signed message with the identity of its key, or marked as refused.

        A refused signature is counted for the publisher whose key it names.
        """
        policy = self.policy
        if policy is None:
            return message
        arrival = arrived(message, policy, self.clock(), self.max_age)
        if arrival.refusal:
            identity = key_identity(message.headers[KEY_NAME])
            publisher = policy.publisher_of(identity)
            name = publisher.name if publisher else identity
            inbox.count(Counts(refusals=Counter({(name, arrival.refusal.reason): 1})))
        return arrival.message


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads of all sources, started with the first signatures."""
    return ThreadPoolExecutor(THREADS, "signatures")
