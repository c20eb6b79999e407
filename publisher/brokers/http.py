"""HTTP/1.1 over a channel: one request after another, each within its deadline; and what the HTTP
brokers share: destinations, the headers that are sent, a transport of one message per request.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, Callable, NamedTuple, Optional, cast

from sam_pipeline.publisher.brokers.connection import open_channel, usable
from sam_pipeline.publisher.brokers.transport import Transport, nothing_else
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.schema.messages.headers import can_travel
from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.net.broker import Broker, Target
from sam_pipeline.schema.net.channel import Channel, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.secret_file import basic_login

MAX_ANSWER_BYTES = 1024 * 1024
PIECE_BYTES = 1024
"""The size of the pieces in which an answer is read; the last one may be lost if it is cut."""
MAX_QUOTED_BYTES = 65536
MAX_QUOTED = 300
HIDDEN = "***"
JSON = {"Content-Type": "application/json"}
PROBLEM = "application/problem+json"
"""An answer of this type is from an HTTP door, never by a proxy."""

NOT_NOW = {401, 407, 408, 429}
"""Client errors that any request would get."""
BY_A_PROXY = {407, 502, 503, 504}
MAYBE_BY_A_PROXY = {401, 403}
"""Tinyproxy answers a wrong login with 401; a broker's own 403 is about the message."""
LOGIN_REJECTED = "it rejected this login"
LOGIN_REQUIRED = "it requires a login: keys user and password_file"

_HTML_TITLE = re.compile(r"<title>(?:Error \d+)?(.*?)</title>", re.DOTALL | re.IGNORECASE)


class HttpRequest(NamedTuple):
    """A request; `headers` without those of HTTP itself, such as Host."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class HttpAnswer(NamedTuple):
    """A complete answer, or the beginning of one where a request permits that."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    cut: str = ""
    """Why the end of the body is missing."""

    def __str__(self) -> str:
        """The status, the broker's message and when to try again, in one line."""
        text = f"{self.status} {one_line(self.reason, MAX_QUOTED)}".strip()
        if self.message:
            text += f": {self.message}"
        wait = self.headers.get("retry-after", "")
        return f"{text} (again in {wait} s)" if wait.isdecimal() else text

    @property
    def is_problem(self) -> bool:
        """Whether the answer is a problem document (RFC 9457)."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower() == PROBLEM

    @property
    def message(self) -> str:
        """The broker's message: that of its JSON, the title of its HTML page, or its text.

        In JSON it is `reason` (RabbitMQ), `error.message` (AMS) or `detail` (RFC 9457).
        """
        text = self.body[:MAX_QUOTED_BYTES].decode("utf-8", "replace")
        if title := _HTML_TITLE.search(text):
            text = title[1]
        elif text.lstrip().startswith("{"):
            with suppress(ValueError, RecursionError):
                document = json.loads(text)
                error = document.get("error")
                is_ams = isinstance(error, dict)
                reason = document.get("reason") or document.get("detail")
                text = str((error.get("message") if is_ams else reason) or text)
        message = one_line(text, MAX_QUOTED)
        return "" if message.lower() == self.reason.lower() else message


class HttpSession:
    """One connection at a time, reused for the next request; use from one thread.

    `headers` are sent with every request; they may be secret, and never appear in an error.
    """

    def __init__(self, target: Target, deadline: Deadline, headers: Mapping[str, str]) -> None:
        self.max_answer_bytes = MAX_ANSWER_BYTES
        self.permits_cut = False
        """Whether the body of an answer may be incomplete."""
        self.meanwhile: Callable[[], bool] = nothing_else
        """Called until an answer begins, as long as it has something to do."""
        self._target = target
        self._headers = headers
        self._channel: Optional[Channel] = open_channel(target, deadline)

    @property
    def is_open(self) -> bool:
        return self._channel is not None

    def request(self, request: HttpRequest, deadline: Deadline) -> HttpAnswer:
        """The broker's answer: 2xx, 500, or 4xx about this request.

        An idle connection that the broker closed is opened again. A request that was sent is never
        repeated: the broker may have received it.

        Raises:
            BrokerUnavailable: no answer, or an error that any request would get.
        """
        if self._channel is not None and _was_closed(self._channel):
            self.close()
        if self._channel is None:
            self._channel = open_channel(self._target, deadline)
        channel = self._channel
        channel.deadline = deadline
        try:
            answer = self._exchange(channel, request)
        except (OSError, HTTPException) as error:
            self.close()
            raise BrokerUnavailable(self._target, _reason_of(error, channel)) from error
        except BaseException:
            self.close()  # the rest of this answer would be read as the next one
            raise
        self._raise_for_status(answer, channel)
        return answer

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _exchange(self, channel: Channel, request: HttpRequest) -> HttpAnswer:
        """Send a request and read its answer; close the connection if it can't be reused."""
        broker = self._target.broker
        headers = {**self._headers, **(channel.proxy.headers if channel.proxy else {})}
        reusable = False
        with suppress(ConnectionError):  # the broker may refuse early: then its answer says why
            channel.send(encoded(request, broker, headers, channel.forwarded))
            reusable = True
        while not channel.has_arrived() and self.meanwhile():
            pass
        # A channel has all that HTTPResponse uses of a socket.
        with closing(HTTPResponse(cast(Any, channel), method=request.method)) as response:
            response.begin()
            body, cut = bytearray(), ""
            try:
                while data := response.read(PIECE_BYTES):
                    body += data
                    if len(body) > self.max_answer_bytes:
                        raise HTTPException(f"longer than {self.max_answer_bytes} bytes")
                if response.length:  # `read` with a size does not check the length
                    raise HTTPException(f"{response.length} bytes are missing")
            except (OSError, HTTPException) as error:
                # After an early refusal, the reset of the connection may overtake the answer.
                if response.status < 400 and not self.permits_cut:
                    raise
                reusable, cut = False, _reason_of(error, channel)
            answer_headers = {name.lower(): value for name, value in response.getheaders()}
            # Tinyproxy closes after each answer without announcing it, so the next request would
            # be lost: a proxy must announce that it does not.
            if channel.forwarded and answer_headers.get("connection", "").lower() != "keep-alive":
                reusable = False
            if response.will_close or not reusable:
                self.close()
            return HttpAnswer(response.status, response.reason, answer_headers, bytes(body), cut)

    def _raise_for_status(self, answer: HttpAnswer, channel: Channel) -> None:
        """Raise BrokerUnavailable for an error of a proxy, or one that any request would get."""
        reason = str(answer)
        by_proxy = channel.proxy and not answer.is_problem
        if by_proxy and answer.status in BY_A_PROXY:
            schemes = answer.headers.get("proxy-authenticate", "")
            reason = channel.proxy.refusal(answer.status, answer.reason, schemes)
        elif by_proxy and answer.status in MAYBE_BY_A_PROXY:
            reason = f"{answer} (from the {channel.proxy}, or from the broker)"
        elif not (300 <= answer.status < 400 or answer.status > 500 or answer.status in NOT_NOW):
            return
        elif answer.status == 401 and not answer.is_problem:
            reason = f"{answer} ({LOGIN_REJECTED if self._headers else LOGIN_REQUIRED})"
        elif answer.status < 400:
            location = one_line(answer.headers.get("location", "nowhere"), MAX_QUOTED)
            reason = f"{answer} (it redirects to {location})"
        raise BrokerUnavailable(self._target, reason)


def encoded(
    request: HttpRequest, broker: Broker, headers: Mapping[str, str], forwarded: bool = False
) -> bytes:
    """The request as it is sent; to a proxy (`forwarded`) with the absolute URI."""
    target = f"http://{broker.netloc}{request.target}" if forwarded else request.target
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {broker.netloc}"]
    lines += [f"{name}: {value}" for name, value in {**headers, **request.headers}.items()]
    # Always a length, never chunks: some brokers take a body without a length for empty.
    lines += [f"Content-Length: {len(request.body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + request.body


def preview(request: HttpRequest, target: Target, headers: Iterable[str]) -> bytes:
    """The request as it would be sent, with secrets hidden; `headers` are those of the session."""
    broker = target.broker
    proxy = None if broker.tls else usable(target, target.find_proxy)
    hidden = [*headers, *(proxy.headers if proxy else ())]
    shown = dict.fromkeys(hidden, HIDDEN)
    return encoded(request, broker, shown, proxy is not None) + b"\n"


def _reason_of(error: Exception, channel: Channel) -> str:
    """Why the answer is missing or incomplete."""
    reason = one_line(error_text(error), MAX_QUOTED)
    if isinstance(error, ConnectionError):
        reason = f"it closed the connection before it answered ({reason})"
    elif isinstance(error, HTTPException):
        reason = f"not HTTP, or truncated: {reason}"
    return f"{channel.proxy}: {reason}" if channel.proxy else reason


def _was_closed(channel: Channel) -> bool:
    """Whether the peer closed an idle connection, or sent bytes without a request.

    A TLS session ticket may arrive at any time; it is ignored.
    """
    try:
        channel.socket.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


TOPIC, QUEUE = "topic", "queue"
READ_BACK_SHARE = 0.8
"""The share of the remaining time that is spent reading back; the rest is for cleaning up."""
PAUSE_S = 0.05

# No `/ ? > *`: they are wildcards, or mean different things to different brokers.
_DESTINATION = re.compile(r"/(topic|queue)/([\w.:$-]+)", re.ASCII)
_STOMP_HEADERS = {DESTINATION, "persistent"}


class CannotTravel(Exception):
    """The protocol can't carry the message; the text says why."""


class RefusedByBroker(CannotTravel):
    """The broker refuses the message, which others of its kind may take."""


@contextmanager
def rejecting(broker: object, position: int = 0) -> Iterator[None]:
    """Raise `MessageRejected` for a message that cannot travel."""
    try:
        yield
    except CannotTravel as error:
        for_good = not isinstance(error, RefusedByBroker)
        raise MessageRejected(broker, position, str(error), for_good) from error


class EncodedMessage(NamedTuple):
    """A message as a part of a request, and its position in the call of `send`."""

    position: int
    message_id: str
    text: bytes


class HttpTransport(Transport):
    """A transport over one HTTP session."""

    def __init__(self, target: Target, deadline: Deadline) -> None:
        self._target = target
        self._session = HttpSession(target, deadline, self.secrets(target))

    def close(self) -> None:
        self._session.close()

    @classmethod
    def secrets(cls, target: Target) -> dict[str, str]:
        """The headers by which the broker knows us, read at each call; raises BrokerUnavailable."""
        user, password = usable(target, target.login)
        return {} if user is None else {"Authorization": basic_login(user, password)}

    @classmethod
    def secrets_shown(cls, target: Target) -> Iterable[str]:
        """The names of these headers, for a preview, which needs no secret."""
        return ["Authorization"] if target.user else []

    @classmethod
    @abstractmethod
    def request_of(cls, broker: Broker, message: Message) -> HttpRequest:
        """The request that publishes one message; raises CannotTravel."""

    @classmethod
    def refusal_of(cls, broker: Broker, message: Message) -> str:
        try:
            cls.request_of(broker, message)
        except CannotTravel as error:
            return str(error)
        return ""

    @classmethod
    def preview(cls, target: Target, message: Message) -> bytes:
        with rejecting(target):
            request = cls.request_of(target.broker, message)
        return preview(request, target, cls.secrets_shown(target))

    @classmethod
    def round_trip(cls, target: Target, message: Message, deadline: Deadline) -> str:
        with closing(cls(target, deadline)) as transport:
            return transport.prove(message, deadline)

    @abstractmethod
    def prove(self, message: Message, deadline: Deadline) -> str:
        """See `round_trip`."""


class OneByOne(HttpTransport):
    """One request per message."""

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        for position, message in enumerate(messages):
            with rejecting(self._target, position):
                self._publish(message, deadline)
            yield position

    @abstractmethod
    def _publish(self, message: Message, deadline: Deadline) -> None:
        """Return once the broker has the message; raises CannotTravel and BrokerUnavailable."""

    def _await_back(
        self,
        message: Message,
        deadline: Deadline,
        read: Callable[[float], Sequence[tuple[object, bytes]]],
    ) -> None:
        """Read until the message comes back unchanged.

        Args:
            read: waits at most that many seconds, returns pairs of message id and body.

        Raises:
            BrokerUnavailable: the message does not come back, or is changed.
        """
        patience = Deadline.after(deadline.remaining() * READ_BACK_SHARE)
        while not patience.expired:
            received = read(patience.remaining())
            for message_id, body in received:
                if message_id == message.message_id:
                    if body == message.body:
                        return
                    raise BrokerUnavailable(self._target, "the check message came back changed")
            if not received:
                time.sleep(PAUSE_S)
        raise BrokerUnavailable(self._target, "it confirmed the message but did not deliver it")


def destination_of(message: Message) -> tuple[str, str]:
    """The kind of the destination, TOPIC or QUEUE, and its name.

    Raises:
        CannotTravel: the destination is neither.
    """
    destination = message.headers.get(DESTINATION, "")
    match = _DESTINATION.fullmatch(destination)
    if not match:
        raise CannotTravel(f"destination {destination!r} is neither /topic/NAME nor /queue/NAME")
    return match[1], match[2]


def travelling_headers(message: Message) -> dict[str, str]:
    """The headers that reach a consumer over STOMP, without those of STOMP itself."""
    return {
        name: value.replace("\0", "")
        for name, value in message.headers.items()
        if name not in _STOMP_HEADERS and can_travel(name)
    }
