"""RabbitMQ's management API: a JSON document per message; the answer says whether it was routed."""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from sam_pipeline.publisher.brokers.http import (
    JSON,
    QUEUE,
    HttpRequest,
    OneByOne,
    RefusedByBroker,
    destination_of,
    travelling_headers,
)
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError
from sam_pipeline.schema.messages.message import CONTENT_TYPE, MESSAGE_ID, Message
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.deadline import Deadline

DEFAULT_EXCHANGE = "amq.default"
"""Routes a message to the queue named by the routing key."""
PERSISTENT = 2
EXPIRES_MS = 60_000
READ_AT_ONCE = 100
FORBIDDEN = ("401", "403")

# Errors with status 400 that any message would get.
_BROKER_ERROR = re.compile(r"no exchange|CONNECTION_FORCED|INTERNAL_ERROR|RESOURCE_ERROR")


class RabbitMQApi(OneByOne):
    """Publishes through the management API to an exchange of a virtual host."""

    def prove(self, message: Message, deadline: Deadline) -> str:
        """Send the message to all bound queues, then read it from one of our own."""
        list(self.send([message], deadline))
        kind, key = destination_of(message)
        if kind == QUEUE:
            return "confirmed, in the queue; not read back: it belongs to the consumers"
        vhost, exchange = _vhost_and_exchange(self._target.broker)
        queue = f"sam-check-{os.urandom(8).hex()}"
        path = f"/api/queues/{vhost}/{queue}"
        declaration = {"durable": True, "arguments": {"x-expires": EXPIRES_MS}}

        def read(_: float) -> list[tuple[object, bytes]]:
            request = {"count": READ_AT_ONCE, "ackmode": "ack_requeue_false", "encoding": "base64"}
            received: list[tuple[object, bytes]] = []
            for item in self._ask("POST", f"{path}/get", request, deadline) or ():
                # The API returns empty properties and headers as empty lists.
                headers = dict(dict(item["properties"]).get("headers") or {})
                received.append((headers.get(MESSAGE_ID), base64.b64decode(item["payload"])))
            return received

        try:
            self._ask("PUT", path, declaration, deadline)
            try:
                binding = f"/api/bindings/{vhost}/e/{exchange}/q/{queue}"
                self._ask("POST", binding, {"routing_key": key}, deadline)
                list(self.send([message], deadline))
                self._await_back(message, deadline, read)
            finally:
                with suppress(PublishError):  # the queue expires by itself
                    self._ask("DELETE", path, {}, deadline)
        except BrokerUnavailable as refusal:
            if not refusal.reason.startswith(FORBIDDEN):
                raise
            return f"confirmed, routed to a queue; not read back: {refusal.reason}"
        return "round trip"

    @classmethod
    def request_of(cls, broker: Broker, message: Message) -> HttpRequest:
        kind, key = destination_of(message)
        vhost, exchange = _vhost_and_exchange(broker)
        if kind == QUEUE:
            exchange = DEFAULT_EXCHANGE
        headers = travelling_headers(message)
        content_type = headers.pop(CONTENT_TYPE, None)
        properties: dict[str, object] = {"delivery_mode": PERSISTENT, "headers": headers}
        if content_type:
            properties["content_type"] = content_type
        try:
            payload, encoding = message.body.decode(), "string"
        except UnicodeDecodeError:
            payload, encoding = base64.b64encode(message.body).decode(), "base64"
        document = {
            "properties": properties,
            "routing_key": key,
            "payload": payload,
            "payload_encoding": encoding,
        }
        body = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        return HttpRequest("POST", f"/api/exchanges/{vhost}/{exchange}/publish", JSON, body)

    def _publish(self, message: Message, deadline: Deadline) -> None:
        answer = self._session.request(self.request_of(self._target.broker, message), deadline)
        if answer.status in (400, 403, 413) and not _BROKER_ERROR.search(answer.message):
            raise RefusedByBroker(str(answer))
        if answer.status != 200:
            hint = " (no such virtual host or exchange)" if answer.status == 404 else ""
            raise BrokerUnavailable(self._target, f"{answer}{hint}")
        document = self._parsed(answer.body)
        if not isinstance(document, dict) or "routed" not in document:
            raise BrokerUnavailable(self._target, "unexpected answer from the management API")
        if not document["routed"]:
            kind, name = destination_of(message)
            _, exchange = _vhost_and_exchange(self._target.broker)
            unbound = f"no queue is bound to {exchange} with the key {name}"
            missing = f"there is no queue {name}" if kind == QUEUE else unbound
            raise RefusedByBroker(f"{missing}, so RabbitMQ dropped it")

    def _ask(self, method: str, path: str, document: object, deadline: Deadline) -> Any:
        request = HttpRequest(method, path, JSON, json.dumps(document).encode())
        answer = self._session.request(request, deadline)
        if not 200 <= answer.status < 300:
            raise BrokerUnavailable(self._target, str(answer))
        return self._parsed(answer.body) if answer.body else None

    def _parsed(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise BrokerUnavailable(self._target, "its answer is not JSON") from None


def _vhost_and_exchange(broker: Broker) -> list[str]:
    """Virtual host and exchange, quoted for a path; `/%2F/amq.topic` in the URL."""
    return quote(broker.path, safe="/%").split("/")[1:]
