"""Where messages enter: room for them, their way into the inbox, and their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import ceil

from sam_pipeline.consumer.core.inbox import (
    NOWHERE,
    AnsweringSession,
    Delivery,
    Inbox,
    MessageOutcome,
)
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sources.door.access import Access, DoorSettings
from sam_pipeline.consumer.sources.door.answers import (
    RETRY_WHEN_BACK_S,
    TIMEOUT,
    TOO_MANY,
    UNAVAILABLE,
    HttpProblem,
    rejection_of,
    try_again,
)
from sam_pipeline.schema.identity.identity import ANONYMOUS, identity_of, with_identity
from sam_pipeline.schema.identity.policy import RateLimits
from sam_pipeline.schema.messages.headers import without_claims
from sam_pipeline.schema.messages.message import DESTINATION, KEY_NAME, Message

Waiting = asyncio.Future[MessageOutcome]
"""A message in the inbox, or in the current batch, whose sender waits."""


class Intake:
    """Takes the messages of one door. All of it runs in the event loop."""

    def __init__(
        self,
        session: AnsweringSession,
        inbox: Inbox,
        settings: DoorSettings,
        state: State,
        access: Access,
    ) -> None:
        self.max_message_bytes = settings.config.max_message_bytes
        self.waiting: dict[Waiting, float] = {}
        """When each was delivered, in order."""
        self.reading_bytes = 0
        """The size of the bodies that are being read; together with the inbox it is limited."""
        self.stopping = False
        self._arriving: list[Delivery] = []
        """The messages that are put into the inbox at the next turn of the event loop."""
        self._session = session
        self._inbox = inbox
        self._config = settings.config
        self._stamps = settings.config.stamps
        self._signatures = settings.signatures
        self._state = state
        self._access = access
        self._rates = RateLimits()

    @property
    def batch_size(self) -> int:
        return max(len(self.waiting), len(self._inbox), 1)

    def require_room(self, mine: int = 0, needed: int = 0) -> None:
        """Raises HttpProblem if a message could not be stored at once.

        `mine`: how many of `reading_bytes` are its own; it is taken however large it is. `needed`:
        how many bytes must have room beside those that are used.
        """
        if self.stopping:
            raise _stopped()
        if self._state.waiting_since is not None:
            raise _away()
        used = self.reading_bytes + self._inbox.size_bytes + needed
        has_room = self._inbox.has_room_behind(len(self._arriving))
        # A backlog at a broker fills the inbox while it lasts: senders can add as many messages.
        has_room = has_room or len(self.waiting) < self._inbox.max_messages
        if mine < used > self._config.buffer_bytes or not has_room:
            raise _full()

    def reserve(self, count: int, mine: int) -> None:
        """Count bytes as being read; raises HttpProblem if those of all bodies are too many."""
        self.reading_bytes += count
        if mine < self.reading_bytes > self._config.buffer_bytes:
            raise _full()

    def admit(self, identity: str, address: str, mine: int = 0) -> None:
        """A sender makes a request; raises HttpProblem if it has to wait."""
        self.require_room(mine)
        self._require_no_pause(identity)
        limit = self._config.door.requests_per_minute
        client = address if identity == ANONYMOUS else identity
        if wait_s := self._rates.admit(client, limit, time.monotonic()):
            text = f"{client} exceeds its limit of {limit} requests per minute"
            raise try_again(TOO_MANY, text, ceil(wait_s))

    async def wait_for_room(self, mine: deque[Waiting]) -> None:
        """Wait while the inbox is full, or `mine`, the messages of one request, fill much of it.

        Raises:
            HttpProblem: the inbox is full, and contains none of `mine`.
        """
        share = max(self._inbox.max_messages // 4, 1)
        while True:
            while mine and mine[0].done():
                mine.popleft()
            try:
                self.require_room()
                if len(mine) < share:
                    return
            except HttpProblem as problem:
                if problem.status != TOO_MANY or not mine:
                    raise
            await asyncio.wait([mine[0]], timeout=self._config.door.answer_timeout_s)

    def deliver(self, messages: Sequence[Message], identity: str) -> list[Waiting]:
        """Put messages of this sender into the inbox, like other sources: verified or stamped.

        Raises:
            HttpProblem: the inbox is full, or the sender may not send one of them.
        """
        self.require_room()
        arrived: list[Message] = []
        for message in messages:
            message = with_identity(without_claims(message), identity)
            if KEY_NAME in message.headers:  # it says everything itself
                message = self._signatures.checked(message, self._inbox)
            elif stamp := self._stamps.get(message.headers.get(DESTINATION, "")):
                message = stamp.stamped(message)
            self._access.require_permission(message, self._inbox)
            self._require_no_pause(identity_of(message))
            arrived.append(message)
        loop, now = asyncio.get_running_loop(), time.monotonic()
        waiting: list[Waiting] = [loop.create_future() for _ in arrived]
        self.waiting |= dict.fromkeys(waiting, now)
        if not self._arriving:
            loop.call_soon(self._put)
        self._arriving += [
            Delivery(message, self._session, token)
            for message, token in zip(arrived, waiting, strict=True)
        ]
        return waiting

    def resolve(self, outcomes: Iterable[tuple[Waiting, MessageOutcome]]) -> None:
        """These messages are stored, unless their outcome says otherwise."""
        for waiting, outcome in outcomes:
            if self.waiting.pop(waiting, None) is None or waiting.done():
                continue
            if outcome.stored == NOWHERE:
                waiting.set_exception(rejection_of(outcome))
            else:
                waiting.set_result(outcome)

    def refuse(self, tokens: Sequence[Waiting]) -> None:
        """These messages can't be stored at present."""
        self._give_up([waiting for waiting in tokens if waiting in self.waiting], _away())

    def look(self) -> None:
        """Answer senders that wait for too long, or for a sink that is away.

        Their messages may be stored later.
        """
        if self._state.waiting_since is not None:
            self._give_up(list(self.waiting), _away())
        timeout_s = self._config.door.answer_timeout_s
        since = time.monotonic() - timeout_s
        late = list(takewhile(lambda waiting: self.waiting[waiting] <= since, self.waiting))
        text = f"not stored within {timeout_s:g} s: send it again, with the same id"
        self._give_up(late, HttpProblem(TIMEOUT, text))

    def stop(self) -> None:
        """Take no more messages."""
        self.stopping = True
        self._give_up(list(self.waiting), _stopped())

    def _require_no_pause(self, identity: str) -> None:
        """Raises HttpProblem if the publisher of this identity has exceeded its rate."""
        if pause_s := self._inbox.paused_s(identity):
            text = f"{identity} exceeds the rate of its publisher: send it again later"
            raise try_again(TOO_MANY, text, ceil(pause_s))

    def _put(self) -> None:
        """Put all arrivals into the inbox at once: each time, the main loop wakes up."""
        arrived, self._arriving = self._arriving, []
        self._inbox.put(arrived)

    def _give_up(self, those: Sequence[Waiting], problem: HttpProblem) -> None:
        for waiting in those:
            del self.waiting[waiting]
            if not waiting.done():
                waiting.set_exception(problem)
                waiting.exception()  # the sender may have gone


def _away() -> HttpProblem:
    # The reason is in the log alone: it names servers and logins, which no sender has to know.
    text = "nothing can be stored at the moment: the log of sam-consume has the reason"
    return try_again(UNAVAILABLE, text, RETRY_WHEN_BACK_S)


def _full() -> HttpProblem:
    return try_again(TOO_MANY, "too many messages are waiting to be stored: send it again later")


def _stopped() -> HttpProblem:
    return try_again(UNAVAILABLE, "the consumer is stopping or restarting: try again later")
