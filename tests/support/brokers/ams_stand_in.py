"""A stand-in for ARGO Messaging: HTTPS with a token, projects, topics and message ids.

Its answers and limits are those in the source code of the service.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from sam_pipeline.schema.messages.message import Message
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply
from tests.support.brokers.stand_in import HOST

TOKEN = "ams-token-4711"
PROJECT = "EXAMPLE"
MAX_MESSAGE_BYTES = 1_048_588
"""The limit of Kafka, on which the service runs."""

_PATH = re.compile(r"/v1/projects/([^/]+)/topics/([^/:]+)(:publish)?")


@dataclass
class AmsStandIn(HttpStandIn):
    """A service with the given topics; `stored` has the messages of each."""

    topics: tuple[str, ...] = ("grid-probe-metricOutput",)
    forbidden: tuple[str, ...] = ()
    rejects: str = "no-such-id"
    """Answers 400 to a call with a message of this id."""
    stored: dict[str, list[Message]] = field(default_factory=dict)
    published: list[int] = field(default_factory=list)
    """The number of messages in each successful call."""

    def __post_init__(self) -> None:
        self._authority = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(HOST).configure_cert(self.context)
        self.answer = self._answer

    @property
    def url(self) -> str:
        return f"ams+https://{HOST}:{self.port}/v1/projects/{PROJECT}"

    def write_ca(self, path: Path) -> Path:
        self._authority.cert_pem.write_to_path(str(path))
        return path

    def _answer(self, request: Asked) -> bytes:
        match = _PATH.fullmatch(request.target)
        if request.headers.get("x-api-key") != TOKEN:
            return _error(401, "Unauthorized")
        if not match or match[1] != PROJECT:
            return _error(404, "ProjectUUID doesn't exist")
        if match[2] in self.forbidden:
            return _error(403, "Access to this resource is forbidden")
        if match[2] not in self.topics:
            return _error(404, "Topic doesn't exist")
        return self._publish(match[2], request)

    def _publish(self, topic: str, request: Asked) -> bytes:
        try:
            items = json.loads(request.body)["messages"]
            messages = [Message(item["attributes"], _decoded(item["data"])) for item in items]
        except (ValueError, KeyError):
            return _error(400, "Invalid Message Arguments")
        if any(message.message_id == self.rejects for message in messages):
            return _error(400, "Invalid Message Arguments")
        for item, message in zip(items, messages, strict=True):
            if len(json.dumps(item)) > MAX_MESSAGE_BYTES:  # the messages before it are stored
                return _error(413, "Message size is too large")
            self.stored.setdefault(topic, []).append(message)
        self.published.append(len(messages))
        return json_reply(200, {"messageIds": [str(at) for at in range(len(messages))]})


def _decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


def _error(status: int, message: str) -> bytes:
    return json_reply(status, {"error": {"code": status, "message": message, "status": "…"}})
