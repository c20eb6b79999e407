"""An HTTP client on the standard library alone, like that of a sender without our publisher."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple

TIMEOUT_S = 40.0
"""Longer than a door takes to answer, so only one that is frozen or was killed does not."""
TEXT = "text/plain"
JSON = "application/json"
LINES = "application/x-ndjson"
NO_ANSWER = (OSError, HTTPException)
"""The connection was refused, closed or reset, or nothing arrived for too long."""


class HttpAnswer(NamedTuple):
    """`headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_complete: bool
    """Whether the whole body arrived."""

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The documents of all complete lines."""
        return [json.loads(line) for line in self.body.splitlines(True) if line.endswith(b"\n")]

    @property
    def documents(self) -> list[dict[str, Any]]:
        """All its documents; none if it is not JSON."""
        content_type = self.headers.get("content-type", "")
        if content_type.startswith(LINES):
            return self.lines
        return [self.document] if content_type.startswith(JSON) else []


class HttpClient:
    """One keep-alive connection, opened again after an error, and closed at the end of a block."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        if context:
            self._connection: HTTPConnection = HTTPSConnection(
                host, port, timeout=TIMEOUT_S, context=context
            )
        else:
            self._connection = HTTPConnection(host, port, timeout=TIMEOUT_S)

    @property
    def certificate(self) -> str:
        """The certificate of the server as PEM; connects first."""
        self._connection.connect()
        return ssl.DER_cert_to_PEM_cert(self._connection.sock.getpeercert(binary_form=True))

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> HttpAnswer:
        return self._answer("GET", path, b"", {})

    def post(self, path: str, body: bytes, content_type: str = TEXT, **headers: str) -> HttpAnswer:
        """Headers are given with underscores: `Sam_Message_Id`.

        Raises:
            OSError, HTTPException: no status arrived.
        """
        return self._answer("POST", path, body, _head(content_type, headers))

    def post_and_hang_up(
        self, path: str, body: bytes, content_type: str = TEXT, **headers: str
    ) -> None:
        """Close the connection instead of waiting for the answer."""
        with suppress(*NO_ANSWER):
            self._connection.request("POST", path, body, _head(content_type, headers))
        self._connection.close()

    def _answer(self, method: str, path: str, body: bytes, head: Mapping[str, str]) -> HttpAnswer:
        is_complete = False
        try:
            self._connection.request(method, path, body, dict(head))
            response = self._connection.getresponse()
            received, is_complete = _read(response)
            headers = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, headers, received, is_complete)
        finally:
            if not is_complete:
                self._connection.close()


def _head(content_type: str, headers: Mapping[str, str]) -> dict[str, str]:
    return {
        "Content-Type": content_type,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }


def _read(response: HTTPResponse) -> tuple[bytes, bool]:
    """What arrives of the body, and whether that is all of it."""
    received = b""
    try:
        while data := response.read1(65536):
            received += data
    except NO_ANSWER:
        return received, False
    is_complete = not response.length
    response.close()  # the connection may go on
    return received, is_complete
