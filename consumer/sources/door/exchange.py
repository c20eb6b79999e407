"""One request and its answer, as the handlers of all paths see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from aiohttp import web

from sam_pipeline.consumer.sources.door.access import Access
from sam_pipeline.consumer.sources.door.answers import Reply
from sam_pipeline.consumer.sources.door.body import Body
from sam_pipeline.consumer.sources.door.intake import Intake, Waiting
from sam_pipeline.schema.messages.message import Message

SERVER = "sam-consume"


@dataclass(frozen=True)
class Exchange:
    """A request whose head has arrived."""

    request: web.BaseRequest
    rest: str
    """The path behind that of the handler, percent-encoded."""
    body: Body
    access: Access
    intake: Intake

    def sender(self, token: str = "") -> str:
        """The identity of the sender, who may send now; `token` counts if the head has none.

        Raises:
            HttpProblem: it is unknown, exceeds its rate, or nothing can be stored at once.
        """
        identity = self.recognised(token)
        self.intake.admit(identity, self.request.remote or "", self.body.reserved)
        return identity

    def recognised(self, token: str = "") -> str:
        """The identity of the sender, who is not a stranger any more; raises HttpProblem."""
        identity = self.access.identity_of(self.request, token)
        self.body.accept()
        self.request.protocol.sender_is_known()  # type: ignore[attr-defined]
        return identity

    def deliver(self, messages: Sequence[Message], identity: str) -> list[Waiting]:
        """Put the messages of the body into the inbox; raises HttpProblem."""
        self.body.close()
        return self.intake.deliver(messages, identity)


Handler = Callable[[Exchange], Awaitable[web.StreamResponse]]
"""It answers an exchange, or raises HttpProblem."""


def response_to(reply: Reply) -> web.Response:
    """The reply as aiohttp sends it."""
    status, body, content_type, headers = reply
    all_headers = {"Content-Type": content_type, "Server": SERVER, **headers}
    return web.Response(status=status, body=body, headers=all_headers)
