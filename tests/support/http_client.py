"""An HTTP client like that of a sender without our publisher."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress

from tests.support.raw_http import JSON as JSON
from tests.support.raw_http import LINES as LINES
from tests.support.raw_http import TEXT as TEXT
from tests.support.raw_http import HttpAnswer as HttpAnswer
from tests.support.raw_http import NotHttp, RawConnection, request

TIMEOUT_S = 40.0
"""Longer than a door takes to answer, so only one that is frozen or was killed does not."""
NO_ANSWER = (OSError, EOFError, NotHttp)
"""The connection was refused, closed or reset, or nothing or a part arrived for too long."""


class HttpClient:
    """One keep-alive connection, opened again after an error, and closed at the end of a block."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._port, self._context = port, context
        self._open: RawConnection | None = None

    @property
    def connection(self) -> RawConnection:
        if self._open is None:
            self._open = RawConnection(self._port, TIMEOUT_S, self._context)
        return self._open

    @property
    def certificate(self) -> str:
        """That of the server, as PEM."""
        return ssl.DER_cert_to_PEM_cert(self.connection.socket.getpeercert(True))

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._open is not None:
            self._open.socket.close()
        self._open = None

    def get(self, path: str) -> HttpAnswer:
        return self.ask(request("GET", path))

    def post(self, path: str, body: bytes, content_type: str = TEXT, **headers: str) -> HttpAnswer:
        """Headers are given with underscores: `Sam_Message_Id`.

        Raises:
            OSError, EOFError, NotHttp: no whole answer arrived.
        """
        return self.ask(self._posted(path, body, content_type, headers))

    def post_and_hang_up(self, path: str, body: bytes, **headers: str) -> None:
        """Close the connection instead of waiting for the answer."""
        with suppress(*NO_ANSWER):
            self.connection.send(self._posted(path, body, TEXT, headers))
        self.close()

    def _posted(
        self, path: str, body: bytes, content_type: str, headers: Mapping[str, str]
    ) -> bytes:
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return request("POST", path, ("Content-Type", content_type), *fields, body=body)

    def ask(self, data: bytes) -> HttpAnswer:
        goes_on = False
        try:
            self.connection.send(data)
            answer = self.connection.answer()
            goes_on = answer.headers.get("connection") != "close"
            return answer
        finally:
            if not goes_on:
                self.close()
