"""The HTTP door as a source: its paths, and one event loop in the thread of the source."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from sam_pipeline.consumer.core.inbox import Inbox, MessageOutcome
from sam_pipeline.consumer.core.source import growing_delays
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.process.listening import BACKLOG
from sam_pipeline.consumer.sources.door.access import Access, DoorSettings, Strangers
from sam_pipeline.consumer.sources.door.activemq import post_form
from sam_pipeline.consumer.sources.door.answers import (
    BUG,
    HEALTH,
    HEALTHY,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    OK,
    UNAUTHORIZED,
    HttpProblem,
    Reply,
    as_json,
)
from sam_pipeline.consumer.sources.door.exchange import (
    PIECE_BYTES,
    Body,
    Exchange,
    Handler,
    response_to,
)
from sam_pipeline.consumer.sources.door.intake import Intake
from sam_pipeline.consumer.sources.door.messages import post_message, post_messages
from sam_pipeline.consumer.sources.door.nrdp import post_results
from sam_pipeline.consumer.sources.door.server import DoorServer, TlsEntrance, require_plain_head
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.channel import error_text

TICK_S = 0.1
"""How often to look whether to stop, and whether the sink is away."""
SHUTDOWN_S = 2.0
"""The time limit for answering when the door closes."""

OPENAPI = Path(__file__).with_name("openapi.json")
"""The OpenAPI document, which describes the requests of the door and their answers."""

logger = logging.getLogger(__name__)


async def healthz(exchange: Exchange) -> web.StreamResponse:
    """Whether the door is open."""
    return response_to(Reply(OK, HEALTHY))


async def openapi(exchange: Exchange) -> web.StreamResponse:
    """The OpenAPI document of the door."""
    return response_to(Reply(OK, OPENAPI.read_bytes()))


async def readyz(exchange: Exchange) -> web.StreamResponse:
    """Whether a message would be stored at once, beside the bodies that are being read."""
    exchange.intake.require_room(needed=PIECE_BYTES)
    return response_to(Reply(OK, as_json({"status": "ready"})))


PATHS: Mapping[str, Mapping[str, Handler]] = {
    "/v1/messages": {"POST": post_messages},
    "/v1/messages/": {"POST": post_message},
    "/api/message": {"POST": post_form, "PUT": post_form},
    "/api/message/": {"POST": post_form, "PUT": post_form},
    "/nrdp": {"POST": post_results, "GET": post_results},
    "/nrdp/": {"POST": post_results, "GET": post_results},
    HEALTH: {"GET": healthz, "HEAD": healthz},
    "/v1/openapi.json": {"GET": openapi, "HEAD": openapi},
    "/readyz": {"GET": readyz, "HEAD": readyz},
}
"""The handlers by path and method; one that ends with a slash is the beginning of paths."""


@dataclass(frozen=True)
class Requests:
    """Answers the requests of one door."""

    intake: Intake
    access: Access
    state: State

    def count(self, status: int) -> None:
        """A request was answered."""
        with self.state.lock:
            self.state.requests[status] += 1

    async def response(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request, whatever happens."""
        strangers: Strangers = request.protocol.strangers  # type: ignore[attr-defined]
        body = Body(request, self.intake, strangers)
        try:
            require_plain_head(request)
            handler, rest = _handler_of(request.method, request.rel_url.raw_path)
            exchange = Exchange(request, rest, body, self.access, self.intake)
            response = await handler(exchange)
        except HttpProblem as problem:
            if problem.status == UNAUTHORIZED:
                strangers.log_refusal(request.remote or "", problem)
            response = response_to(problem.reply())
            if problem.closes:
                response.force_close()
        except OSError:  # the sender has gone
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            response = response_to(HttpProblem(BUG, "a bug: please report it").reply())
        finally:
            body.close()
        if self.intake.stopping and not response.prepared:
            response.force_close()
        self.count(response.status)
        return response


def _handler_of(method: str, path: str) -> tuple[Handler, str]:
    """The handler, and the rest of the path; raises HttpProblem if there is none."""
    known = path
    while known not in PATHS and known:
        known = known[: known.rstrip("/").rfind("/") + 1]
    handlers = PATHS.get(known)
    if handlers is None:
        raise HttpProblem(NOT_FOUND, f"there is nothing at {path[:200]}")
    if method not in handlers:
        allowed = ", ".join(handlers)
        text = f"{path[:200]} allows {allowed}, not {method[:20]}"
        raise HttpProblem(METHOD_NOT_ALLOWED, text, {"Allow": allowed})
    return handlers[method], path.removeprefix(known)


class HttpSource:
    """Listens at one address. It is the session of all messages that arrive there."""

    answers = True

    def __init__(self, broker: Broker, settings: DoorSettings, state: State) -> None:
        self.name = self.broker = str(broker)
        self._address = broker
        self._settings = settings
        self._state = state
        self._problem = "not listening yet"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._intake: Intake | None = None

    @property
    def batch_size(self) -> int:
        """A batch takes all messages that have arrived, from whichever source, and waits for no
        more than those whose senders wait.
        """
        return self._intake.batch_size if self._intake else 1

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        asyncio.run(self._serve(inbox, stop))

    def missing(self) -> Sequence[str]:
        return [f"{self.name} ({self._problem})"] if self._problem else []

    def ack(self, tokens: Sequence[Any]) -> None:
        """Nothing: senders get answers instead."""

    def answer(self, outcomes: Sequence[tuple[Any, MessageOutcome]]) -> None:
        """Answer the senders of stored messages; called by another thread."""
        self._call(Intake.resolve, outcomes)

    def give_back(self, tokens: Sequence[Any]) -> None:
        """Answer the senders that these messages can't be stored now; called by another thread."""
        self._call(Intake.refuse, tokens)

    def _call(self, action: Callable[[Intake, Sequence[Any]], None], items: Sequence[Any]) -> None:
        if self._loop is not None and self._intake is not None:
            with suppress(RuntimeError):  # it has stopped
                self._loop.call_soon_threadsafe(action, self._intake, items)

    async def _serve(self, inbox: Inbox, stop: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        # One long body at a time: while it is read, it takes a multiple of its size.
        self._loop.set_default_executor(ThreadPoolExecutor(1, "long body"))
        settings = self._settings
        door, policy = settings.config.door, settings.signatures.policy
        access = Access(settings.credentials, policy, door.admits_anonymous(self._address))
        intake = self._intake = Intake(self, inbox, settings, self._state, access)
        requests = Requests(intake, access, self._state)
        server = DoorServer(self.name, requests.response, door.max_connections, requests.count)
        entrances = await self._open(server, stop)
        while not stop.is_set():
            intake.look()
            server.strangers.look()
            self._state.connections[self.name] = server.open_connections
            await asyncio.sleep(TICK_S)
        for entrance in entrances:
            entrance.close()
        await asyncio.sleep(0)  # answers of the last batch come first
        intake.stop()
        server.pre_shutdown()
        await server.shutdown(SHUTDOWN_S)
        self._state.connections[self.name] = 0

    async def _open(
        self, server: DoorServer, stop: threading.Event
    ) -> Sequence[TlsEntrance | asyncio.AbstractServer]:
        """Listen as soon as that is possible, at each address; at none if stopped before."""
        assert self._loop is not None
        tls = self._settings.credentials.tls if self._address.tls else None
        for delay_s in growing_delays():
            try:
                sockets = self._settings.listeners.sockets_of(self._address)
            except OSError as error:
                problem = error_text(error)
                if problem != self._problem:
                    text = "door %s: %s; trying again"
                    logger.error(text, self.name, problem, extra={"broker": self.name})
                self._problem = problem
            else:
                logger.info("door %s: listening", self.name, extra={"broker": self.name})
                self._problem = ""
                if tls:
                    return [TlsEntrance(server, tls, item) for item in sockets]
                return [
                    await self._loop.create_server(server, sock=item, backlog=BACKLOG)
                    for item in sockets
                ]
            await asyncio.to_thread(stop.wait, delay_s)
            if stop.is_set():
                break
        return []
