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
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import Channel, words_of
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import one_line

MAX_ANSWER_BYTES = 1024 * 1024
MAX_WORDED_BYTES = 65536
MAX_WORDS = 300
HIDDEN = "***"

NOT_NOW = {401, 407, 408, 429}
"""Client errors that are not about what was asked."""
BY_A_PROXY = {407, 502, 503, 504}
MAYBE_BY_A_PROXY = {401, 403}
"""Tinyproxy refuses a wrong login by 401; a broker's own 403 would be about the message."""
LOGIN_REFUSED = "it does not accept this login"
NO_LOGIN = "it wants a login and was given none: keys user and password_file"

_HTML_TITLE = re.compile(r"<title>(?:Error \d+)?(.*?)</title>", re.DOTALL | re.IGNORECASE)


class HttpRequest(NamedTuple):
    """What is asked; `headers` without those that HTTP itself needs."""

    method: str
    target: str
    headers: Mapping[str, str] = {}
    body: bytes = b""


class HttpAnswer(NamedTuple):
    """What came back, whole."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        """The status, and what the broker says to it, in one line."""
        status = f"{self.status} {one_line(self.reason, MAX_WORDS)}".strip()
        return f"{status}: {self.words}" if self.words else status

    @property
    def words(self) -> str:
        """The broker's own words: those of its JSON, the title of its page, or its text."""
        text = self.body[:MAX_WORDED_BYTES].decode("utf-8", "replace")
        title = _HTML_TITLE.search(text)
        words = one_line(title[1] if title else _of_json(text) or text, MAX_WORDS)
        return "" if words.lower() == self.reason.lower() else words


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
        """The broker's answer: 2xx, 500, or 4xx about what was asked.

        A connection that the broker closed while it was idle is opened anew. Once a request is
        under way nothing is sent twice: the broker may have it.

        Raises:
            BrokerUnavailable: no answer, or one that any request would get, in words.
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
            reason = one_line(words_of(error), MAX_WORDS)
            if isinstance(error, ConnectionError):
                reason = f"it closed the connection before it answered ({reason})"
            elif isinstance(error, HTTPException):
                reason = f"no HTTP, or cut: {reason}"
            via = f"{channel.proxy}: " if channel.proxy else ""
            raise BrokerUnavailable(self._address, f"{via}{reason}") from error
        except BaseException:
            self.close()  # half an answer would be taken for the next one
            raise
        self._refuse(answer, channel)
        return answer

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _exchange(self, channel: Channel, request: HttpRequest) -> HttpAnswer:
        broker = self._address.broker
        headers = {**self._headers, **(channel.proxy.headers if channel.proxy else {})}
        taken = False
        with suppress(ConnectionError):  # it may refuse before it has all: the answer says why
            channel.send(encoded(request, broker, headers, channel.forwarded))
            taken = True
        # It needs no more of a socket than what a channel offers.
        with closing(HTTPResponse(cast(Any, channel), method=request.method)) as response:
            response.begin()
            refused = response.status >= 400
            try:
                body = response.read(MAX_ANSWER_BYTES + 1)
            except OSError:
                if not refused:
                    raise
                # It refused before it read all that we sent: the reset may overtake the body.
                response.will_close, body = True, b""
            if len(body) > MAX_ANSWER_BYTES:
                raise HTTPException(f"longer than {MAX_ANSWER_BYTES} bytes")
            cut = response.length  # http.client says nothing where the size is given to `read`
            if cut and not refused:
                raise HTTPException(f"{cut} bytes are missing")
            if response.will_close or not taken:
                self.close()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return HttpAnswer(response.status, response.reason, fields, body)

    def _refuse(self, answer: HttpAnswer, channel: Channel) -> None:
        words = str(answer)
        if channel.proxy and answer.status in BY_A_PROXY:
            wanted = answer.headers.get("proxy-authenticate", "")
            words = channel.proxy.refusal(answer.status, answer.reason, wanted)
        elif channel.proxy and answer.status in MAYBE_BY_A_PROXY:
            words = f"{answer} (said by the {channel.proxy}, or by the broker)"
        elif not (300 <= answer.status < 400 or answer.status > 500 or answer.status in NOT_NOW):
            return
        elif answer.status == 401:
            words = f"{answer} ({LOGIN_REFUSED if self._headers else NO_LOGIN})"
        elif answer.status < 400:
            place = one_line(answer.headers.get("location", "nowhere"), MAX_WORDS)
            words = f"{answer} (it sends us to {place})"
        raise BrokerUnavailable(self._address, words)


def encoded(
    request: HttpRequest, broker: Broker, headers: Mapping[str, str], forwarded: bool = False
) -> bytes:
    """The request as it is sent; `forwarded` to a proxy, which wants the whole URI."""
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
    """The login as HTTP has it; the password is read anew."""
    user, password = config.login(broker)
    if user is None:
        return {}
    from base64 import b64encode

    login = b64encode(f"{user}:{password or ''}".encode()).decode()
    return {"Authorization": f"Basic {login}"}


def _was_closed(channel: Channel) -> bool:
    """Nobody speaks between two requests: what can be read is the end, or good for nothing.

    But for TLS itself, which sends keys for later connections.
    """
    try:
        channel.socket.recv(1)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
    return True


def _of_json(text: str) -> str:
    """`reason` (RabbitMQ) or `error.message` (AMS) of an answer in JSON."""
    if not text.lstrip().startswith("{"):
        return ""
    import json

    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        error = found.get("error")
        return str(error.get("message", "") if isinstance(error, dict) else found.get("reason", ""))
    return ""
