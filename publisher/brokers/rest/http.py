"""HTTP/1.1 over a channel: requests one after another, each within its deadline."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple, Optional, cast

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.secrets import basic_login
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import Channel, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import one_line

MAX_ANSWER_BYTES = 1024 * 1024
MAX_QUOTED_BYTES = 65536
MAX_QUOTED = 300
HIDDEN = "***"

NOT_NOW = {401, 407, 408, 429}
"""Client errors that are not about the request."""
BY_A_PROXY = {407, 502, 503, 504}
MAYBE_BY_A_PROXY = {401, 403}
"""Tinyproxy refuses a wrong login by 401; a broker's own 403 would be about the message."""
LOGIN_REFUSED = "it does not accept this login"
NO_LOGIN = "it wants a login and was given none: keys user and password_file"

_HTML_TITLE = re.compile(r"<title>(?:Error \d+)?(.*?)</title>", re.DOTALL | re.IGNORECASE)


class HttpRequest(NamedTuple):
    """A request; `headers` without those that HTTP itself needs."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class HttpAnswer(NamedTuple):
    """A complete answer."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        """The status and the broker's message, in one line."""
        status = f"{self.status} {one_line(self.reason, MAX_QUOTED)}".strip()
        return f"{status}: {self.message}" if self.message else status

    @property
    def message(self) -> str:
        """The broker's own message: that of its JSON, the title of its page, or its text."""
        text = self.body[:MAX_QUOTED_BYTES].decode("utf-8", "replace")
        title = _HTML_TITLE.search(text)
        message = one_line(title[1] if title else _message_of_json(text) or text, MAX_QUOTED)
        return "" if message.lower() == self.reason.lower() else message


class HttpSession:
    """One connection at a time, kept for the next request; use from one thread.

    `headers` go with every request; they may be secret, and are in no error.
    """

    def __init__(
        self,
        address: BrokerAddress,
        config: PublisherConfig,
        deadline: Deadline,
        headers: Mapping[str, str],
    ) -> None:
        self._address = address
        self._config = config
        self._headers = headers
        self._channel: Optional[Channel] = open_channel(address, config, deadline)

    @property
    def is_open(self) -> bool:
        return self._channel is not None

    def request(self, request: HttpRequest, deadline: Deadline) -> HttpAnswer:
        """The broker's answer: 2xx, 500, or 4xx about this request.

        A connection that the broker closed while it was idle is opened again. Once a request is
        under way nothing is sent twice: the broker may have it.

        Raises:
            BrokerUnavailable: no answer, or one that any request would get.
        """
        if self._channel is not None and _was_closed(self._channel):
            self.close()
        if self._channel is None:
            self._channel = open_channel(self._address, self._config, deadline)
        channel = self._channel
        channel.deadline = deadline
        try:
            answer = self._exchange(channel, request)
        except (OSError, HTTPException) as error:
            self.close()
            reason = one_line(error_text(error), MAX_QUOTED)
            if isinstance(error, ConnectionError):
                reason = f"it closed the connection before it answered ({reason})"
            elif isinstance(error, HTTPException):
                reason = f"not HTTP, or cut: {reason}"
            way = f"{channel.proxy}: " if channel.proxy else ""
            raise BrokerUnavailable(self._address, f"{way}{reason}") from error
        except BaseException:
            self.close()  # half an answer would be taken for the next one
            raise
        self._raise_for_status(answer, channel)
        return answer

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _exchange(self, channel: Channel, request: HttpRequest) -> HttpAnswer:
        broker = self._address.broker
        headers = {**self._headers, **(channel.proxy.headers if channel.proxy else {})}
        reusable = False
        with suppress(ConnectionError):  # it may refuse before it has all: the answer says why
            channel.send(encoded(request, broker, headers, channel.forwarded))
            reusable = True
        # It needs no more of a socket than a channel offers.
        with closing(HTTPResponse(cast(Any, channel), method=request.method)) as response:
            response.begin()
            try:
                body = response.read(MAX_ANSWER_BYTES + 1)
            except OSError:
                if response.status < 400:
                    raise
                # A refusal before it read the whole request: the reset may overtake the message.
                reusable, body = False, b""
            if len(body) > MAX_ANSWER_BYTES:
                raise HTTPException(f"longer than {MAX_ANSWER_BYTES} bytes")
            missing = response.length  # `read` with a size does not check it
            if missing and response.status < 400:
                raise HTTPException(f"{missing} bytes are missing")
            if response.will_close or not reusable:
                self.close()
            answer_headers = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, response.reason, answer_headers, body)

    def _raise_for_status(self, answer: HttpAnswer, channel: Channel) -> None:
        reason = str(answer)
        if channel.proxy and answer.status in BY_A_PROXY:
            wanted = answer.headers.get("proxy-authenticate", "")
            reason = channel.proxy.refusal(answer.status, answer.reason, wanted)
        elif channel.proxy and answer.status in MAYBE_BY_A_PROXY:
            reason = f"{answer} (said by the {channel.proxy}, or by the broker)"
        elif not (300 <= answer.status < 400 or answer.status > 500 or answer.status in NOT_NOW):
            return
        elif answer.status == 401:
            reason = f"{answer} ({LOGIN_REFUSED if self._headers else NO_LOGIN})"
        elif answer.status < 400:
            location = one_line(answer.headers.get("location", "nowhere"), MAX_QUOTED)
            reason = f"{answer} (it redirects to {location})"
        raise BrokerUnavailable(self._address, reason)


def encoded(
    request: HttpRequest, broker: Broker, headers: Mapping[str, str], forwarded: bool = False
) -> bytes:
    """The request as it is sent; `forwarded` to a proxy, which needs the whole URI."""
    target = f"http://{broker.netloc}{request.target}" if forwarded else request.target
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {broker.netloc}"]
    lines += [f"{name}: {value}" for name, value in {**headers, **request.headers}.items()]
    # Always, and never chunks: some brokers take a body without a length for an empty one.
    lines += [f"Content-Length: {len(request.body)}", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + request.body


def preview(
    request: HttpRequest, broker: Broker, config: PublisherConfig, headers: Mapping[str, str]
) -> bytes:
    """The request as it would be sent, with secrets hidden; `headers` as those of a session."""
    proxy = None if broker.tls else config.proxy_for(broker)
    hidden = {**headers, **(proxy.headers if proxy else {})}
    shown = dict.fromkeys(hidden, HIDDEN)
    return encoded(request, broker, shown, proxy is not None) + b"\n"


def login_shown(broker: Broker, config: PublisherConfig) -> dict[str, str]:
    """The names of `login_headers`, for a preview, which needs no secret."""
    return {"Authorization": HIDDEN} if broker.user or config.user else {}


def login_headers(broker: Broker, config: PublisherConfig) -> dict[str, str]:
    """The login as an HTTP header; the password is read each time."""
    user, password = config.login(broker)
    return {} if user is None else {"Authorization": basic_login(user, password)}


def _was_closed(channel: Channel) -> bool:
    """Whether an idle connection is at its end, or holds bytes that answer nothing.

    TLS itself may send keys for later connections meanwhile.
    """
    try:
        channel.socket.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


def _message_of_json(text: str) -> str:
    """`reason` (RabbitMQ) or `error.message` (AMS) of a JSON answer; empty if it has none."""
    if not text.lstrip().startswith("{"):
        return ""
    import json

    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        error = document.get("error")
        is_ams = isinstance(error, dict)
        return str(error.get("message", "") if is_ams else document.get("reason", ""))
    return ""
