"""The requests that the door knows, and their answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from sam_pipeline.consumer.core.inbox import AnsweringSession, Delivery, Inbox
from sam_pipeline.consumer.core.outcome import MessageOutcome
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sources.door.access import Access
from sam_pipeline.consumer.sources.door.answers import (
    BUG,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    OK,
    RETRY_WHEN_BACK_S,
    TIMEOUT,
    TOO_MANY,
    UNAVAILABLE,
    HttpProblem,
    Reply,
    as_json,
    document_of,
    status_of,
    try_again,
)
from sam_pipeline.consumer.sources.door.body import Body, Budget
from sam_pipeline.consumer.sources.door.messages import message_of
from sam_pipeline.consumer.sources.door.server import response_to
from sam_pipeline.consumer.sources.door.settings import DoorSettings
from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.identity.signature import KEY_NAME
from sam_pipeline.schema.messages.message import Message

MESSAGES = "/v1/messages"

logger = logging.getLogger(__name__)

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Requests:
    """Answers the requests of one door. All of it runs in the event loop."""

    def __init__(
        self,
        session: AnsweringSession,
        inbox: Inbox,
        settings: DoorSettings,
        state: State,
        access: Access,
    ) -> None:
        self._session = session
        self._inbox = inbox
        self._settings = settings
        self._state = state
        self._access = access
        self._budget = Budget(inbox, settings.buffer_bytes)
        self._stopping = False
        self.waiting: set[asyncio.Future[MessageOutcome]] = set()
        """The messages in the inbox, or in the current batch, whose senders wait."""

    def count(self, status: int) -> None:
        """A request was answered."""
        with self._state.lock:
            self._state.requests[status] += 1

    async def response(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request, whatever happens."""
        try:
            response = await self._answer_to(request)(request)
        except HttpProblem as problem:
            response = response_to(problem.reply())
            if problem.closes:
                response.force_close()
        except OSError:  # the sender has gone
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = response_to(HttpProblem(BUG, "a bug: please report it").reply())
        if self._stopping:
            response.force_close()
        self.count(response.status)
        return response

    def give_up(self, problem: HttpProblem) -> None:
        """Answer all messages that wait; they may be stored all the same."""
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_exception(problem)

    def away(self) -> HttpProblem:
        """The problem while nothing can be stored."""
        text = f"nothing can be stored: {self._state.waiting_for}"
        return try_again(UNAVAILABLE, text, RETRY_WHEN_BACK_S)

    def stop(self) -> None:
        """Accept nothing more."""
        self._stopping = True
        self.give_up(self._stopped())

    def _answer_to(self, request: web.BaseRequest) -> Answer:
        """What answers the request; raises HttpProblem if nothing does."""
        path = request.rel_url.raw_path
        answers: Mapping[str, Answer] = {}
        if path.startswith(f"{MESSAGES}/"):
            answers = {"POST": self._post_message}
        elif path == "/healthz":
            answers = {"GET": self._healthz, "HEAD": self._healthz}
        elif path == "/readyz":
            answers = {"GET": self._readyz, "HEAD": self._readyz}
        if not answers:
            raise HttpProblem(NOT_FOUND, f"there is nothing at {path[:200]}")
        if request.method not in answers:
            allowed = ", ".join(answers)
            text = f"{path[:200]} knows {allowed}, not {request.method[:20]}"
            raise HttpProblem(METHOD_NOT_ALLOWED, text, {"Allow": allowed})
        return answers[request.method]

    async def _post_message(self, request: web.BaseRequest) -> web.StreamResponse:
        quoted_class = request.rel_url.raw_path.removeprefix(f"{MESSAGES}/")
        body = Body(request, self._budget)
        try:
            identity = self._access.identity_of(request)
            self._require_room()
            content = await body.whole(self._settings.max_message_bytes)
            message = self._arrived(message_of(quoted_class, request.headers, content), identity)
            waiting = self._delivered(message)
        finally:
            body.close()
        outcome = await self._outcome(waiting)
        document = document_of(message.message_id, outcome)
        return response_to(Reply(status_of(outcome), as_json(document)))

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        return response_to(Reply(OK, as_json({"status": "alive"})))

    async def _readyz(self, request: web.BaseRequest) -> web.StreamResponse:
        self._require_room()
        return response_to(Reply(OK, as_json({"status": "ready"})))

    def _arrived(self, message: Message, identity: str) -> Message:
        """The message with its identity and a checked signature; raises Problem if refused."""
        message = with_identity(message, identity)
        if KEY_NAME in message.headers:
            message = self._settings.signatures.checked(message, self._inbox)
        self._access.require_permission(message)
        return message

    def _require_room(self) -> None:
        """Raises HttpProblem if a message would have to wait."""
        if self._stopping:
            raise self._stopped()
        if self._state.waiting_since is not None:
            raise self.away()
        if not self._inbox.has_room_for(self._session.broker):
            raise try_again(TOO_MANY, "too many messages wait to be stored: send it again later")

    def _delivered(self, message: Message) -> asyncio.Future[MessageOutcome]:
        """Put the message into the inbox; raises HttpProblem if there is no room."""
        self._require_room()
        waiting: asyncio.Future[MessageOutcome] = asyncio.get_running_loop().create_future()
        self.waiting.add(waiting)
        waiting.add_done_callback(self.waiting.discard)
        self._inbox.put([Delivery(message, self._session, waiting)])
        return waiting

    async def _outcome(self, waiting: asyncio.Future[MessageOutcome]) -> MessageOutcome:
        """What became of a message; raises HttpProblem if that is not known in time."""
        timeout_s = self._settings.config.answer_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            text = f"not stored within {timeout_s:g} s: send it again, with the same id"
            raise HttpProblem(TIMEOUT, text) from None

    def _stopped(self) -> HttpProblem:
        return try_again(UNAVAILABLE, "the consumer stops or starts again: try again later")
