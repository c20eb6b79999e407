"""The body of a request, read in bounded time and memory."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Iterator

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    EXPECTATION_FAILED,
    LENGTH_REQUIRED,
    TOO_LARGE,
    TOO_MANY,
    TOO_SLOW,
    UNSUPPORTED,
    HttpProblem,
    try_again,
)

GRACE_S = 10.0
SLOWEST = 1000
"""A body must arrive faster, in bytes per second, GRACE_S aside."""
PIECE_BYTES = 64 * 1024
"""The size of the pieces in which a compressed body is inflated."""
GZIP = ("gzip", "x-gzip")
_GZIP_FORM = 31
"""The `wbits` of zlib."""


class Budget:
    """The bytes of all bodies that are being read; with the inbox they share `buffer_bytes`."""

    def __init__(self, inbox: Inbox, max_bytes: int) -> None:
        self.used = 0
        self._inbox = inbox
        self._max_bytes = max_bytes

    def take(self, count: int) -> None:
        """Reserve bytes; raises HttpProblem if there is no room."""
        if self.used + self._inbox.size_bytes + count > self._max_bytes:
            raise try_again(TOO_MANY, "too many messages are being received: send it again later")
        self.used += count


class Body:
    """The body of one request, which must be closed."""

    def __init__(self, request: web.BaseRequest, budget: Budget) -> None:
        self._request = request
        self._content = request.content
        self._budget = budget
        self._reserved = 0
        self._waited_s = 0.0

    async def whole(self, max_bytes: int) -> bytes:
        """The body, decompressed.

        Raises:
            HttpProblem: it is larger, arrives too slowly, or can't be decompressed.
        """
        too_large = HttpProblem(
            TOO_LARGE, f"the body is larger than max_message_bytes = {max_bytes}", closes=True
        )
        if (self._request.content_length or 0) > max_bytes:
            raise too_large
        pieces = []
        length = 0
        async for piece in self.pieces():
            length += len(piece)
            if length > max_bytes:
                raise too_large
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in pieces, decompressed; each is part of the budget until `close`."""
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
        inflater = _Inflater() if coding in GZIP else None
        while piece := await self._next():
            for content in inflater.inflated(piece) if inflater else (piece,):
                self._budget.take(len(content))
                self._reserved += len(content)
                yield content
        if inflater and not inflater.is_complete:
            raise HttpProblem(BAD_REQUEST, "the compressed body is truncated")

    def close(self) -> None:
        """Free its part of the budget."""
        self._budget.used -= self._reserved
        self._reserved = 0

    async def _next(self) -> bytes:
        """What has arrived; empty at the end."""
        content = self._content
        try:
            if piece := content.read_nowait():
                return piece
            if content.at_eof():
                return b""
            began = time.monotonic()
            patience_s = GRACE_S + content.total_bytes / SLOWEST - self._waited_s
            async with asyncio.timeout(max(patience_s, 0)):
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
        self._member = zlib.decompressobj(_GZIP_FORM)

    @property
    def is_complete(self) -> bool:
        return self._member.eof

    def inflated(self, piece: bytes) -> Iterator[bytes]:
        try:
            while piece:
                if self._member.eof:
                    self._member = zlib.decompressobj(_GZIP_FORM)
                if content := self._member.decompress(piece, PIECE_BYTES):
                    yield content
                piece = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise HttpProblem(BAD_REQUEST, f"the compressed body is damaged: {error}") from None
