"""The paths that the door knows, and their handlers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from aiohttp import web

from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sources.door.access import Access
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
from sam_pipeline.consumer.sources.door.body import PIECE_BYTES, Body
from sam_pipeline.consumer.sources.door.dialects.activemq import post_form
from sam_pipeline.consumer.sources.door.dialects.nrdp import post_results
from sam_pipeline.consumer.sources.door.dialects.single import post_message
from sam_pipeline.consumer.sources.door.dialects.stream import post_messages
from sam_pipeline.consumer.sources.door.exchange import Exchange, Handler, response_to
from sam_pipeline.consumer.sources.door.intake import Intake
from sam_pipeline.consumer.sources.door.openapi import openapi_document
from sam_pipeline.consumer.sources.door.server import require_plain_head
from sam_pipeline.consumer.sources.door.strangers import Strangers

logger = logging.getLogger(__name__)


async def healthz(exchange: Exchange) -> web.StreamResponse:
    """Whether the door is open."""
    return response_to(Reply(OK, HEALTHY))


async def openapi(exchange: Exchange) -> web.StreamResponse:
    """What the door understands."""
    return response_to(Reply(OK, as_json(openapi_document())))


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


class Requests:
    """Answers the requests of one door."""

    def __init__(self, intake: Intake, access: Access, state: State) -> None:
        self._intake = intake
        self._access = access
        self._state = state

    def count(self, status: int) -> None:
        """A request was answered."""
        with self._state.lock:
            self._state.requests[status] += 1

    async def response(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request, whatever happens."""
        strangers: Strangers = request.protocol.strangers  # type: ignore[attr-defined]
        body = Body(request, self._intake, strangers)
        try:
            require_plain_head(request)
            handler, rest = _handler_of(request.method, request.rel_url.raw_path)
            exchange = Exchange(request, rest, body, self._access, self._intake)
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
        if self._intake.stopping and not response.prepared:
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
