"""ActiveMQ's message servlet, or a compatible server: each message is sent as an HTML form.

Body and headers are fields of the form. A raw body would be simpler, but versions up to 5.18.6 and
6.1.4 silently truncate it to 100 001 bytes and add a line end.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from urllib.parse import quote, quote_plus

from sam_pipeline.publisher.brokers.http import (
    TOPIC,
    CannotTravel,
    HttpAnswer,
    HttpRequest,
    OneByOne,
    RefusedByBroker,
    destination_of,
    rejecting,
    travelling_headers,
)
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.net.broker import Broker, Target
from sam_pipeline.schema.net.deadline import Deadline

MAX_FORM_BYTES = 200_000
"""The servlet answers a longer form with 400."""

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SENT = b"Message sent"
GOODBYE_S = 0.5
READ_S = 1.0

# Form fields the servlet interprets; given an `action` it answers 200 without sending anything.
_SERVLET_FIELDS = {"action", "body", "clientId"}
_UNESCAPED = "/:,@!$'()*"  # frequent in records, and allowed in a form
_JAVA_EXCEPTIONS = re.compile(r"(?:[\w.$]+Exception: )+")


class ActiveMQRest(OneByOne):
    """One HTTP session with one `clientId`: without it the broker opens a session per message."""

    def __init__(self, target: Target, deadline: Deadline) -> None:
        super().__init__(target, deadline)
        self._client_id = _new_client_id()

    def close(self) -> None:
        """Unsubscribe first: else the broker keeps the session of our `clientId` until it stops."""
        if self._session.is_open:
            target = _target(self._target.broker, "any", TOPIC, self._client_id)
            body = f"action=unsubscribe&clientId={self._client_id}".encode()
            request = HttpRequest("POST", target, FORM, body)
            with suppress(PublishError):
                self._session.request(request, Deadline.after(GOODBYE_S))
        super().close()

    def prove(self, message: Message, deadline: Deadline) -> str:
        """Send the message; from a topic, read it back (a queue belongs to its consumers)."""
        with rejecting(self._target):
            kind, name = destination_of(message)
        target = _target(self._target.broker, name, kind, self._client_id)

        def ask(wait_s: float) -> HttpAnswer:
            wait_ms = max(1, int(min(READ_S, wait_s) * 1000))
            return self._session.request(
                HttpRequest("GET", f"{target}&readTimeout={wait_ms}"), deadline
            )

        def read(wait_s: float) -> list[tuple[object, bytes]]:
            answer = ask(wait_s)
            if answer.status not in (200, 204):
                raise BrokerUnavailable(self._target, _unexpected(answer))
            message_id = answer.headers.get(MESSAGE_ID.lower())
            return [(message_id, answer.body)] if answer.status == 200 else []

        obstacle = "messages in a queue belong to its consumers"
        if kind == TOPIC:  # the first request subscribes
            is_door = ask(0.001).status == 405
            obstacle = "an HTTP door only takes messages" if is_door else ""
        list(self.send([message], deadline))
        if obstacle:
            return f"confirmed; not read back: {obstacle}"
        self._await_back(message, deadline, read)
        return "round trip"

    @classmethod
    def request_of(cls, broker: Broker, message: Message) -> HttpRequest:
        return _send_request(broker, message, _new_client_id())

    def _publish(self, message: Message, deadline: Deadline) -> None:
        request = _send_request(self._target.broker, message, self._client_id)
        answer = self._session.request(request, deadline)
        if answer.status == 200 and answer.body.strip() == SENT and "messageid" in answer.headers:
            return
        if answer.status in (400, 413) or "not authorized" in answer.message:
            raise RefusedByBroker(_JAVA_EXCEPTIONS.sub("", str(answer)))
        raise BrokerUnavailable(self._target, _unexpected(answer))


def _send_request(broker: Broker, message: Message, client_id: str) -> HttpRequest:
    kind, name = destination_of(message)
    if not message.body:
        raise CannotTravel("the body is empty")
    if len(message.body) > MAX_FORM_BYTES:  # the form is longer still, and slow to write
        raise CannotTravel(_too_long(len(message.body)))
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        raise CannotTravel("the body is not UTF-8 text, which a form requires") from None
    if "\0" in text:
        raise CannotTravel("the body contains a NUL, which a form can't carry")
    fields = [("body", text)]
    for header, value in travelling_headers(message).items():
        if header not in _SERVLET_FIELDS:
            fields.append((header, value))
    form = "&".join(
        f"{quote_plus(field)}={quote_plus(value, safe=_UNESCAPED, errors='replace')}"
        for field, value in fields
    ).encode()
    if len(form) > MAX_FORM_BYTES:
        raise CannotTravel(_too_long(len(form)))
    return HttpRequest("POST", _target(broker, name, kind, client_id), FORM, form)


def _too_long(size: int) -> str:
    return f"a form of at least {size} bytes exceeds the servlet's limit of {MAX_FORM_BYTES}"


def _target(broker: Broker, name: str, kind: str, client_id: str) -> str:
    path = quote(broker.path, safe="/%")
    return f"{path}/{name}?type={kind}&clientId={client_id}"


def _new_client_id() -> str:
    return f"sam-{os.urandom(8).hex()}"


def _unexpected(answer: HttpAnswer) -> str:
    if answer.status == 200:
        return f"unexpected answer from the message servlet: {answer}"
    if answer.status in (404, 405):
        return (
            f"{answer} (no message servlet there; disabled by default since 5.19.7, 6.2.6 and 6.3)"
        )
    return _JAVA_EXCEPTIONS.sub("", str(answer))
