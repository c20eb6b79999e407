"""RabbitMQ's management API: a JSON document per message, which says whether it was routed."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from contextlib import closing, suppress
from typing import Any
from urllib.parse import quote

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.rest.http import (
    HttpRequest,
    HttpSession,
    login_headers,
    login_shown,
)
from sam_pipeline.publisher.brokers.rest.http import preview as preview_request
from sam_pipeline.publisher.brokers.rest.one_by_one import (
    QUEUE,
    CannotTravel,
    OneByOne,
    destination_of,
    travelling_headers,
)
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import CONTENT_TYPE, MESSAGE_ID, Message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline

DEFAULT_EXCHANGE = "amq.default"
"""Which routes to the queue that the routing key names."""
PERSISTENT = 2
JSON = {"Content-Type": "application/json"}
EXPIRES_MS = 60_000
READ_AT_ONCE = 100
READING = 0.8
"""The part of the time that is left for reading; the rest is for what the broker answers."""
PAUSE_S = 0.05
FORBIDDEN = ("401", "403")

# Said with status 400, and the same for every message.
_OF_THE_BROKER = re.compile(r"no exchange|CONNECTION_FORCED|INTERNAL_ERROR|RESOURCE_ERROR")


def connect(address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> RabbitMQApi:
    return RabbitMQApi(address, config, deadline)


def preview(broker: Broker, config: PublisherConfig, message: Message) -> bytes:
    try:
        request = _publish(broker, message)
    except CannotTravel as error:
        raise MessageRejected(broker, 0, str(error)) from error
    return preview_request(request, broker, config, login_shown(broker, config))


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    """First to whoever is bound, so that a message for nobody shows; then through our own queue."""
    with closing(connect(address, config, deadline)) as transport:
        return transport.prove(message, deadline)


class RabbitMQApi(OneByOne):
    """One HTTP session; each message has an answer of its own."""

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        login = login_headers(address.broker, config)
        self._session = HttpSession(address, config, deadline, login)

    def close(self) -> None:
        self._session.close()

    def prove(self, message: Message, deadline: Deadline) -> str:
        self._send_one(message, deadline)
        kind, key = destination_of(message)
        if kind == QUEUE:
            return "confirmed, in the queue; what is in it is for its consumers"
        try:
            return self._through_a_queue_of_ours(key, message, deadline)
        except BrokerUnavailable as refusal:
            if not refusal.reason.startswith(FORBIDDEN):
                raise
            return f"confirmed, routed to a queue; not read back: {refusal.reason}"

    def _through_a_queue_of_ours(self, key: str, message: Message, deadline: Deadline) -> str:
        vhost, exchange = _places(self._address.broker)
        queue = f"sam-check-{os.urandom(8).hex()}"
        path = f"/api/queues/{vhost}/{queue}"
        wish = {"durable": True, "arguments": {"x-expires": EXPIRES_MS}}
        self._ask("PUT", path, wish, deadline)
        try:
            binding = f"/api/bindings/{vhost}/e/{exchange}/q/{queue}"
            self._ask("POST", binding, {"routing_key": key}, deadline)
            self._send_one(message, deadline)
            self._read_back(path, message, deadline)
        finally:
            with suppress(PublishError):  # it expires by itself
                self._ask("DELETE", path, {}, deadline)
        return "round trip"

    def _send_one(self, message: Message, deadline: Deadline) -> None:
        for _ in self.send([message], deadline):
            pass

    def _publish(self, message: Message, deadline: Deadline) -> None:
        answer = self._session.request(_publish(self._address.broker, message), deadline)
        if answer.status in (400, 403, 413) and not _OF_THE_BROKER.search(answer.words):
            raise CannotTravel(str(answer))
        if answer.status != 200:
            hint = " (the virtual host, or the exchange)" if answer.status == 404 else ""
            raise BrokerUnavailable(self._address, f"{answer}{hint}")
        found = self._parsed(answer.body)
        if not isinstance(found, dict) or "routed" not in found:
            raise BrokerUnavailable(self._address, "its answer is not that of the API")
        if not found["routed"]:
            kind, name = destination_of(message)
            missing = f"there is no queue {name}"
            if kind != QUEUE:
                _, exchange = _places(self._address.broker)
                missing = f"no queue is bound to {exchange} with the key {name}"
            raise CannotTravel(f"{missing}, so RabbitMQ dropped it")

    def _read_back(self, path: str, message: Message, deadline: Deadline) -> None:
        """Raises BrokerUnavailable where the message does not come as it went."""
        wish = {"count": READ_AT_ONCE, "ackmode": "ack_requeue_false", "encoding": "base64"}
        patience = Deadline.after(deadline.remaining() * READING)
        while not patience.expired:
            for item in self._ask("POST", f"{path}/get", wish, deadline) or ():
                # The API writes properties and headers that are empty as empty lists.
                headers = dict(dict(item["properties"]).get("headers") or {})
                if headers.get(MESSAGE_ID) == message.message_id:
                    if base64.b64decode(item["payload"]) == message.body:
                        return
                    raise BrokerUnavailable(self._address, "the check message came back changed")
            time.sleep(PAUSE_S)
        raise BrokerUnavailable(self._address, "it routed the message but did not deliver it")

    def _ask(self, method: str, path: str, document: object, deadline: Deadline) -> Any:
        request = HttpRequest(method, path, JSON, json.dumps(document).encode())
        answer = self._session.request(request, deadline)
        if not 200 <= answer.status < 300:
            raise BrokerUnavailable(self._address, str(answer))
        return self._parsed(answer.body) if answer.body else None

    def _parsed(self, body: bytes) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise BrokerUnavailable(self._address, "its answer is no JSON") from None


def _publish(broker: Broker, message: Message) -> HttpRequest:
    kind, key = destination_of(message)
    vhost, exchange = _places(broker)
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


def _places(broker: Broker) -> tuple[str, str]:
    """Virtual host and exchange, as a path has them: the URL's `/%2F/amq.topic`."""
    _, vhost, exchange = quote(broker.path, safe="/%").split("/")
    return vhost, exchange
