"""The requests that the door knows, and their answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote, unquote

from aiohttp import web

from sam_pipeline.consumer.core.inbox import AnsweringSession, Delivery, Inbox
from sam_pipeline.consumer.core.outcome import MessageOutcome
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sources.door.access import Access
from sam_pipeline.consumer.sources.door.activemq import (
    ID_HEADER,
    SENT,
    is_goodbye,
    servlet_message,
)
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
from sam_pipeline.consumer.sources.door.forms import parameters_of
from sam_pipeline.consumer.sources.door.messages import TEXT, message_of
from sam_pipeline.consumer.sources.door.nrdp import (
    HELLO,
    NrdpRefusal,
    greeting,
    stored,
    submitted,
)
from sam_pipeline.consumer.sources.door.openapi import openapi_document
from sam_pipeline.consumer.sources.door.server import require_plain_head, response_to
from sam_pipeline.consumer.sources.door.settings import DoorSettings
from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.identity.signature import KEY_NAME
from sam_pipeline.schema.messages.message import DESTINATION, Message

MESSAGES = "/v1/messages"
SERVLET = "/api/message"
NRDP = "/nrdp"

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
            require_plain_head(request)
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
        elif path == SERVLET or path.startswith(f"{SERVLET}/"):
            answers = {"POST": self._post_form, "PUT": self._post_form}
        elif path == NRDP or path.startswith(f"{NRDP}/"):
            answers = {"POST": self._post_results}
        elif path == "/healthz":
            answers = {"GET": self._healthz, "HEAD": self._healthz}
        elif path == "/readyz":
            answers = {"GET": self._readyz, "HEAD": self._readyz}
        elif path == "/v1/openapi.json":
            answers = {"GET": self._openapi, "HEAD": self._openapi}
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
            waiting = self._delivered([message])
        finally:
            body.close()
        (outcome,) = await self._outcomes(waiting)
        document = document_of(message.message_id, outcome)
        return response_to(Reply(status_of(outcome), as_json(document)))

    async def _post_form(self, request: web.BaseRequest) -> web.StreamResponse:
        path = unquote(request.rel_url.raw_path.removeprefix(SERVLET).removeprefix("/"))
        with closing(Body(request, self._budget)) as body:
            identity = self._access.identity_of(request)
            self._require_room()
            content_type = request.headers.get("Content-Type", "")
            content = await self._content(request, body)
            parameters = parameters_of(request.rel_url.raw_query_string, content_type, content)
            if is_goodbye(parameters):
                return response_to(Reply(OK, b"", TEXT))
            form = servlet_message(path, parameters, content_type, content, time.time())
            message = self._arrived(form, identity)
            waiting = self._delivered([message])
        await self._outcomes(waiting)
        answer = Reply(OK, SENT.encode(), TEXT, {ID_HEADER: quote(message.message_id, safe=":")})
        return response_to(answer)

    async def _post_results(self, request: web.BaseRequest) -> web.StreamResponse:
        flavour = unquote(request.rel_url.raw_path.removeprefix(NRDP).strip("/"))
        parameters: Mapping[str, str] = {}
        try:
            with closing(Body(request, self._budget)) as body:
                self._require_room()
                content_type = request.headers.get("Content-Type", "")
                content = await self._content(request, body)
                query = request.rel_url.raw_query_string
                parameters = parameters_of(query, content_type, content, errors="replace")
                if parameters.get("cmd", "").lower() == HELLO:
                    return response_to(greeting(parameters))
                identity = self._access.identity_of(request, parameters.get("token", ""))
                now = datetime.now(UTC)
                messages = await asyncio.to_thread(submitted, parameters, flavour, now)
                messages = [self._arrived(message, identity) for message in messages]
                waiting = self._delivered(messages)
            outcomes = await self._outcomes(waiting)
        except HttpProblem as problem:
            raise NrdpRefusal(parameters, problem) from None
        results = sum(message.record_count or 0 for message in messages)
        letters = [letter for outcome in outcomes for letter in outcome.letters]
        return response_to(stored(parameters, results, letters))

    async def _content(self, request: web.BaseRequest, body: Body) -> bytes:
        """The body of a request, which need not have one: everything may be in its URL."""
        return await body.whole(self._settings.max_message_bytes) if request.body_exists else b""

    async def _healthz(self, request: web.BaseRequest) -> web.StreamResponse:
        return response_to(Reply(OK, as_json({"status": "alive"})))

    async def _readyz(self, request: web.BaseRequest) -> web.StreamResponse:
        self._require_room()
        return response_to(Reply(OK, as_json({"status": "ready"})))

    async def _openapi(self, request: web.BaseRequest) -> web.StreamResponse:
        return response_to(Reply(OK, as_json(openapi_document())))

    def _arrived(self, message: Message, identity: str) -> Message:
        """The message as the other sources deliver it: identified, and verified or stamped.

        Raises:
            HttpProblem: its sender may not send it.
        """
        message = with_identity(message, identity)
        if KEY_NAME in message.headers:  # it says everything itself
            message = self._settings.signatures.checked(message, self._inbox)
        elif stamp := self._settings.stamps.get(message.headers.get(DESTINATION, "")):
            message = stamp.stamped(message)
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

    def _delivered(self, messages: Sequence[Message]) -> list[asyncio.Future[MessageOutcome]]:
        """Put the messages into the inbox; raises HttpProblem if there is no room."""
        self._require_room()
        loop = asyncio.get_running_loop()
        deliveries = [
            Delivery(message, self._session, loop.create_future()) for message in messages
        ]
        waiting = [delivery.token for delivery in deliveries]
        for future in waiting:
            self.waiting.add(future)
            future.add_done_callback(self.waiting.discard)
        self._inbox.put(deliveries)
        return waiting

    async def _outcomes(
        self, waiting: Sequence[asyncio.Future[MessageOutcome]]
    ) -> list[MessageOutcome]:
        """What became of the messages; raises HttpProblem if that is not known in time."""
        timeout_s = self._settings.config.answer_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.gather(*waiting)
        except TimeoutError:
            text = f"not stored within {timeout_s:g} s: send it again, with the same id"
            raise HttpProblem(TIMEOUT, text) from None

    def _stopped(self) -> HttpProblem:
        return try_again(UNAVAILABLE, "the consumer stops or starts again: try again later")
