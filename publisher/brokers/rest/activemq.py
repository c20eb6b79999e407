"""ActiveMQ's message servlet, or what speaks like it: a form per message.

Form fields are the body and the headers. A raw body would be simpler, but versions up to 5.18.6
and 6.1.4 cut it at 100 001 bytes, silently, and add a line end.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import closing, suppress
from typing import Optional
from urllib.parse import quote, quote_plus

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.rest.http import (
    HttpAnswer,
    HttpRequest,
    HttpSession,
    login_headers,
    login_shown,
)
from sam_pipeline.publisher.brokers.rest.http import preview as preview_request
from sam_pipeline.publisher.brokers.rest.one_by_one import (
    TOPIC,
    CannotTravel,
    OneByOne,
    destination_of,
    travelling_headers,
)
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline

MAX_FORM_BYTES = 200_000
"""The servlet answers 400 to a longer form."""

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SENT = b"Message sent"
UNSUBSCRIBE = "unsubscribe"
GOODBYE_S = 0.5
READ_S = 1.0
READING = 0.8
"""The part of the time that is left for reading; the rest is for what the broker answers."""
PAUSE_S = 0.05

# Parameters that the servlet takes for itself; with `action` it would answer 200 and send nothing.
_SERVLETS = {"action", "body", "clientId"}
_UNESCAPED = "/:,@!$'()*"  # in a form; most records hold many
_NOT_ALLOWED = "not authorized"
_JAVA = re.compile(r"(?:[\w.$]+Exception: )+")


def connect(address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> ActiveMQRest:
    return ActiveMQRest(address, config, deadline)


def preview(broker: Broker, config: PublisherConfig, message: Message) -> bytes:
    try:
        request = _post(broker, message, _new_client_id())
    except CannotTravel as error:
        raise MessageRejected(broker, 0, str(error)) from error
    return preview_request(request, broker, config, login_shown(broker, config))


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    """From a topic the message is read back; what waits in a queue belongs to its consumers."""
    try:
        kind, _ = destination_of(message)
    except CannotTravel as error:
        raise MessageRejected(address, 0, str(error)) from error
    with closing(connect(address, config, deadline)) as transport:
        if kind == TOPIC:
            transport.read(message, deadline, wait_s=0.001)  # it subscribes
        for _ in transport.send([message], deadline):
            pass
        if kind != TOPIC:
            return "confirmed; what is in a queue is for its consumers"
        transport.await_back(message, deadline)
        return "round trip"


class ActiveMQRest(OneByOne):
    """One HTTP session and one `clientId`: without it each message would get a broker session."""

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        self._client_id = _new_client_id()
        login = login_headers(address.broker, config)
        self._session = HttpSession(address, config, deadline, login)

    def close(self) -> None:
        """End the broker session of the `clientId`, which would last as long as the broker."""
        if self._session.is_open:
            target = _target(self._address.broker, "any", TOPIC, self._client_id)
            body = f"action={UNSUBSCRIBE}&clientId={self._client_id}".encode()
            with suppress(PublishError):
                self._session.request(
                    HttpRequest("POST", target, FORM, body), Deadline.after(GOODBYE_S)
                )
        self._session.close()

    def await_back(self, message: Message, deadline: Deadline) -> None:
        """Read what the subscription of `read` gets, until the message comes as it went.

        Raises:
            BrokerUnavailable: it does not.
        """
        patience = Deadline.after(deadline.remaining() * READING)
        while not patience.expired:
            answer = self.read(message, deadline, min(READ_S, patience.remaining()))
            if answer is None:
                time.sleep(PAUSE_S)  # it should have waited itself
            elif answer.headers.get(MESSAGE_ID.lower()) == message.message_id:
                if answer.body == message.body:
                    return
                raise BrokerUnavailable(self._address, "the check message came back changed")
        raise BrokerUnavailable(self._address, "it confirmed the message but did not deliver it")

    def read(self, message: Message, deadline: Deadline, wait_s: float) -> Optional[HttpAnswer]:
        """The next message of the same destination, if one comes in time."""
        kind, name = destination_of(message)
        target = _target(self._address.broker, name, kind, self._client_id)
        request = HttpRequest("GET", f"{target}&readTimeout={max(1, int(wait_s * 1000))}")
        answer = self._session.request(request, deadline)
        if answer.status not in (200, 204):
            raise BrokerUnavailable(self._address, _unexpected(answer))
        return answer if answer.status == 200 else None

    def _publish(self, message: Message, deadline: Deadline) -> None:
        request = _post(self._address.broker, message, self._client_id)
        answer = self._session.request(request, deadline)
        if answer.status == 200 and answer.body.strip() == SENT and "messageid" in answer.headers:
            return
        if answer.status in (400, 413) or _NOT_ALLOWED in answer.words:
            raise CannotTravel(_JAVA.sub("", str(answer)))
        raise BrokerUnavailable(self._address, _unexpected(answer))


def _post(broker: Broker, message: Message, client_id: str) -> HttpRequest:
    kind, name = destination_of(message)
    if not message.body:
        raise CannotTravel("nothing to send: the body is empty")
    try:
        text = message.body.decode()
    except UnicodeDecodeError:
        raise CannotTravel("the body is not UTF-8 text, a form carries nothing else") from None
    if "\0" in text:
        raise CannotTravel("the body holds a NUL, a form carries text only")
    fields = [("body", text)]
    for header, value in travelling_headers(message).items():
        if header not in _SERVLETS and not header.startswith("JMS"):
            fields.append((header, value))
    form = "&".join(
        f"{quote_plus(field)}={quote_plus(value, safe=_UNESCAPED, errors='replace')}"
        for field, value in fields
    ).encode()
    if len(form) > MAX_FORM_BYTES:
        raise CannotTravel(
            f"a form of {len(form)} bytes is too long, the servlet takes {MAX_FORM_BYTES}"
        )
    return HttpRequest("POST", _target(broker, name, kind, client_id), FORM, form)


def _target(broker: Broker, name: str, kind: str, client_id: str) -> str:
    path = quote(broker.path, safe="/%")
    return f"{path}/{name}?type={kind}&clientId={client_id}"


def _new_client_id() -> str:
    return f"sam-{os.urandom(8).hex()}"


def _unexpected(answer: HttpAnswer) -> str:
    if answer.status == 200:
        return f"its answer is not that of the message servlet, but {answer}"
    if answer.status in (404, 405):
        return f"{answer} (no message servlet there; from 5.19.7, 6.2.6 and 6.3 on it is off)"
    return _JAVA.sub("", str(answer))
