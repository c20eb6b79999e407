"""One request: its sender, its parameters, its body and its answer."""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sam_pipeline.consumer.sources.door.access import MAX_BODY_BYTES, Access, Strangers
from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    EXPECTATION_FAILED,
    LENGTH_REQUIRED,
    TOO_LARGE,
    TOO_SLOW,
    UNSUPPORTED,
    HttpProblem,
    Reply,
    unauthorized,
)
from sam_pipeline.consumer.sources.door.intake import Intake, Waiting
from sam_pipeline.schema.messages.message import Message

FORM = "application/x-www-form-urlencoded"
CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s";]+)"?', re.IGNORECASE)
"""The character set in a Content-Type."""
UTF_8 = ("utf-8", "utf8", "us-ascii")
"""The names of UTF-8, and of a part of it."""
LONG_BYTES = 64 * 1024
"""A form that takes several milliseconds to read."""
MAX_PARAMETERS = 1000
"""Each takes memory, many times the byte that it takes in the request."""
PIECE_LENGTH = 16 * 1024
"""How many characters are percent-decoded at a time."""

GRACE_S = 10.0
"""The longest silence in a body."""
SLOWEST = 1000
"""A body must arrive faster, in bytes per second, GRACE_S aside."""
PIECE_BYTES = 64 * 1024
"""The size of the pieces in which a compressed body is inflated."""
LOOK_BYTES = 4096
"""How much of a form is searched for its sender while it arrives."""
GZIP = ("gzip", "x-gzip")
_GZIP_WBITS = 31
"""The `wbits` of zlib."""

SERVER = "sam-consume"


def media_type(content_type: str) -> str:
    """The type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


async def parameters_in(
    request: web.BaseRequest, content: bytes, errors: str = "strict"
) -> Mapping[str, str]:
    """The parameters of a request with this body; a long form does not keep others waiting."""
    content_type = request.headers.get("Content-Type", "")
    parts = request.rel_url.raw_query_string, content_type, content, errors
    if len(content) < LONG_BYTES:
        return parameters_of(*parts)
    return await asyncio.to_thread(parameters_of, *parts)


def parameters_of(
    query: str, content_type: str, body: bytes, errors: str = "strict"
) -> Mapping[str, str]:
    """The parameters by name; of a repeated name the first counts, and the URL before the form.

    `errors` says what becomes of bytes that are not UTF-8, as in `bytes.decode`.

    Raises:
        HttpProblem: there are too many, or they are not UTF-8.
    """
    parts = [query]
    try:
        if media_type(content_type) == FORM:
            parts.append(body.decode("utf-8", errors))
        if max(part.count("&") for part in parts) >= MAX_PARAMETERS:
            raise HttpProblem(BAD_REQUEST, f"more than {MAX_PARAMETERS} parameters")
        fields = [field.partition("=") for part in parts for field in part.split("&") if field]
        return {
            _unquoted(name, errors): _unquoted(value, errors) for name, _, value in reversed(fields)
        }
    except UnicodeDecodeError as error:
        text = f"a parameter is not UTF-8 text: {error.reason}"
        raise HttpProblem(BAD_REQUEST, text) from None


def _unquoted(quoted: str, errors: str) -> str:
    """A name or a value, decoded in pieces: meanwhile each escape takes a hundred bytes."""
    quoted = quoted.replace("+", " ")
    pieces = []
    start = 0
    while start < len(quoted):
        end = start + PIECE_LENGTH
        cut_escape = quoted.rfind("%", end - 2, end)
        end = end if cut_escape < 0 else cut_escape
        pieces.append(unquote_to_bytes(quoted[start:end].encode("utf-8", "surrogateescape")))
        start = end
    return b"".join(pieces).decode("utf-8", errors)


class Body:
    """The body of one request, which must be closed."""

    def __init__(self, request: web.BaseRequest, intake: Intake, strangers: Strangers) -> None:
        self._request = request
        self._content = request.content
        self._intake = intake
        self._strangers = strangers
        self.is_known = False
        """Whether its sender is known."""
        self.reserved = 0
        """How many bytes of it count as being read."""
        self._waited_s = 0.0

    async def whole(self) -> bytes:
        """The body, decompressed; it counts as being read until `close`.

        Raises:
            HttpProblem: it is too large, arrives too slowly, can't be decompressed, or there is no
                room for it.
        """
        limit = self._intake.max_message_bytes
        pieces = []
        if (self._request.content_length or 0) <= limit:
            async for piece in self.pieces():
                if self.reserved > limit:
                    break
                pieces.append(piece)
                self._intake.require_room(self.reserved)
            else:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        text = f"the body is larger than max_message_bytes = {limit}"
        raise HttpProblem(TOO_LARGE, text, closes=True)

    async def whole_or_empty(self) -> bytes:
        """Like `whole`, for requests that need no body: everything may be in their URL."""
        return await self.whole() if self._request.body_exists else b""

    async def form(self, look: Callable[[bytes], bool]) -> bytes:
        """Like `whole_or_empty`, for a form that may name its sender.

        `look` sees nothing, then the beginning of the form as it arrives, until it knows the
        sender. Until then the body has only the room of strangers.
        """
        pieces: list[bytes] = []
        if not look(b"") and self._request.body_exists:
            if self._begin():
                text = "a compressed form must name its sender in a header or in the URL"
                raise unauthorized(text, closes=True)
            while piece := await self._next():
                pieces.append(piece)
                is_known = self.reserved < LOOK_BYTES and look(b"".join(pieces))
                self._reserve(len(piece))
                if is_known:
                    break
                if self.reserved > MAX_BODY_BYTES:
                    text = f"the form does not name its sender in its first {LOOK_BYTES} bytes"
                    raise unauthorized(text, closes=True)
            else:
                return b"".join(pieces)
        return b"".join(pieces) + await self.whole_or_empty()

    def accept(self) -> None:
        """Its sender is known now, so it no longer takes the room of strangers."""
        if not self.is_known:
            self._strangers.reading_bytes -= self.reserved
            self._intake.reading_bytes += self.reserved
            self.is_known = True

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in pieces, decompressed; each counts as being read until it is freed."""
        inflater = _Inflater() if self._begin() else None
        while piece := await self._next():
            for content in inflater.inflated(piece) if inflater else (piece,):
                self._reserve(len(content))
                yield content
                if inflater or not self._content.at_eof():
                    await asyncio.sleep(0)  # a long body must not keep others waiting
        if inflater and not inflater.is_complete:
            raise HttpProblem(BAD_REQUEST, "the compressed body is truncated")

    def free(self, count: int) -> None:
        """`count` bytes have left the memory."""
        self.reserved -= count
        if self.is_known:
            self._intake.reading_bytes -= count
        else:
            self._strangers.reading_bytes -= count

    def close(self) -> None:
        """The body is no longer needed."""
        self.free(self.reserved)

    def _begin(self) -> bool:
        """Whether the body is compressed; raises HttpProblem if it can't be read."""
        headers = self._request.headers
        coding = headers.get("Content-Encoding", "identity").strip().lower()
        if coding != "identity" and coding not in GZIP:
            text = f"a body with Content-Encoding {coding[:80]!r} can't be read (expected gzip)"
            raise HttpProblem(UNSUPPORTED, text, {"Accept-Encoding": "gzip"})
        if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
            raise HttpProblem(LENGTH_REQUIRED, "the request has no body")
        expectation = headers.get("Expect", "")
        if expectation.lower() == "100-continue":
            if self._request.transport and not self._content.total_bytes:
                self._request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif expectation:
            raise HttpProblem(EXPECTATION_FAILED, f"unknown expectation {expectation[:80]!r}")
        return coding in GZIP

    def _reserve(self, count: int) -> None:
        self.reserved += count
        if self.is_known:
            self._intake.reserve(count, self.reserved)
        else:
            self._strangers.reserve(count)

    async def _next(self) -> bytes:
        """What has arrived; empty at the end."""
        content = self._content
        try:
            if piece := content.read_nowait():
                return piece
            if content.at_eof():
                return b""
            began = time.monotonic()
            credit_s = content.total_bytes / SLOWEST - self._waited_s
            async with asyncio.timeout(max(GRACE_S + min(credit_s, 0), 0)):
                piece = await content.readany()
            self._waited_s += time.monotonic() - began
            return piece
        except TimeoutError:
            text = f"the body arrived too slowly: {content.total_bytes} bytes"
            raise HttpProblem(TOO_SLOW, text, closes=True) from None
        except (web.RequestPayloadError, HttpProcessingError) as error:
            raise HttpProblem(BAD_REQUEST, f"the body is malformed: {error}", closes=True) from None


class _Inflater:
    """Inflates gzip, which may have several members, piece by piece."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WBITS)

    @property
    def is_complete(self) -> bool:
        return self._member.eof

    def inflated(self, piece: bytes) -> Iterator[bytes]:
        try:
            while piece:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP_WBITS)
                if content := self._member.decompress(piece, PIECE_BYTES):
                    yield content
                piece = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise HttpProblem(BAD_REQUEST, f"the compressed body is damaged: {error}") from None


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
        """The identity of the sender, who is no longer a stranger; raises HttpProblem."""
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
