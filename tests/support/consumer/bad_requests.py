"""Requests that a door refuses, with the status of each.

Each is complete: the door needs no further byte to answer it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from sam_pipeline.schema.messages.message import TEXT
from sam_pipeline.schema.records.text import Record, write_wlcg
from tests.support.builders import metric_result
from tests.support.raw_http import Field, request

JSON = "application/json"
PATH = "/v1/messages/metricOutput"
MIB = 1024 * 1024
CHUNKS = ("Transfer-Encoding", "chunked")
GZIP = ("Content-Encoding", "gzip")


def wlcg(*records: Record) -> bytes:
    return "".join(map(write_wlcg, records)).encode()


GOOD = wlcg(metric_result())


class BadRequest(NamedTuple):
    """`keeps_alive`: the next request of the connection can be read, and is answered too."""

    name: str
    data: bytes
    status: int
    keeps_alive: bool = True


def post(
    *fields: Field,
    body: bytes | None = GOOD,
    target: str = PATH,
    content_type: str = TEXT,
    method: str = "POST",
    version: str = "HTTP/1.1",
) -> bytes:
    """A good message, unless something is given."""
    given = [("Content-Type", content_type)] if content_type else []
    return request(method, target, *given, *fields, body=body, version=version)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """The body of a request with `Transfer-Encoding: chunked`."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + end


def bomb(size: int = 20 * MIB) -> bytes:
    """Blanks, a thousandth of their size as gzip."""
    return gzip.compress(b" " * size)


def in_chunks(body: bytes, *fields: Field) -> bytes:
    return post(*fields, CHUNKS, body=None) + body


def sized(length: str) -> bytes:
    return post(("Content-Length", length), body=None)


def coded(coding: str, body: bytes) -> bytes:
    return post(("Content-Encoding", coding), body=body)


def sent_as(coding: str) -> bytes:
    return post(("Transfer-Encoding", coding), body=None) + chunked(GOOD)


def json(body: bytes) -> bytes:
    return post(content_type=JSON, body=body)


PACKED = gzip.compress(GOOD)

KEEP_ALIVE = (
    ("an unknown path", post(target="/v1/messagez/metricOutput"), 404),
    ("the root", post(target="/"), 404),
    ("a path without a class", post(target="/v1/messages/"), 400),
    ("a path that climbs", post(target="/v1/messages/../../etc/passwd"), 400),
    ("a class that climbs", post(target="/v1/messages/..%2f..%2fetc"), 400),
    ("a doubled slash", post(target="//v1/messages/metricOutput"), 404),
    *((f"a {name} of messages", request(name, PATH), 405) for name in ("GET", "DELETE", "TRACE")),
    ("a PATCH of messages", post(method="PATCH"), 405),
    ("a POST of the health", post(target="/healthz"), 405),
    ("an unknown expectation", post(("Expect", "200-maybe")), 417),
    ("no length", post(body=None), 411),
    ("damaged gzip", post(GZIP, body=GOOD), 400),
    ("truncated gzip", post(GZIP, body=PACKED[:-9]), 400),
    ("bytes after gzip", post(GZIP, body=PACKED + b"x"), 400),
    ("an empty gzip body", post(GZIP, body=b""), 400),
    ("deflate", coded("deflate", zlib.compress(GOOD)), 415),
    ("an unknown coding", coded("br", b"x"), 415),
    ("gzip in gzip", coded("gzip, gzip", gzip.compress(PACKED)), 415),
    ("a picture", post(content_type="image/png"), 415),
    ("a content type without a slash", post(content_type="text"), 415),
    ("an empty body", post(body=b""), 400),
    ("text without records", post(body=b"all is well\n"), 400),
    ("JSON that ends early", json(b'[{"a": "b"'), 400),
    ("a JSON number", json(b"7"), 422),
    ("deep JSON", json(b"[" * 100_000), 400),
    ("nested JSON", json(b'[{"hostName": {"a": 1}}]'), 422),
    ("two ids", post(("Sam-Message-Id", "a"), ("Sam-Message-Id", "b")), 400),
    ("a long id", post(("Sam-Message-Id", "i" * 5000)), 400),
    ("an id with a tab", post(("Sam-Message-Id", "a\tb")), 400),
)
CLOSE = (
    ("an unknown method", post(method="BREW"), 400),
    ("a method in lower case", post(method="post"), 400),
    ("no HTTP", b"hello\r\n\r\n", 400),
    ("a STOMP frame", b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", 400),
    ("the start of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ("HTTP/0.9", b"GET /healthz\r\n\r\n", 400),
    ("HTTP/2 without TLS", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ("a later version", post(version="HTTP/2.0"), 400),
    ("no Host", post().replace(b"Host: localhost\r\n", b""), 400),
    ("two hosts", post(("Host", "a"), ("Host", "b")), 400),
    ("a blank before a colon", post(("X ", "y")), 400),
    ("a header without a name", post(("", "y")), 400),
    ("a NUL in a header", post(("X", "a\0b")), 400),
    ("a folded header", post(("X", "a\r\n b")), 400),
    ("lines that end with LF", post().replace(b"\r\n", b"\n"), 400),
    ("a long target", post(target=f"{PATH}?{'x' * 20_000}"), 414),
    ("a long header", post(("X", "y" * 100_000)), 431),
    ("many headers", post(*[(f"X{n}", "y") for n in range(3000)]), 400),
    *((f"the length {length}", sized(length), 400) for length in ("-1", "+1", "1, 1", "9" * 30)),
    ("two lengths", post(("Content-Length", "0")), 400),
    ("the length twice", post(("Content-Length", str(len(GOOD)))), 400),
    ("a length and chunks", post(CHUNKS) + chunked(GOOD), 400),
    ("a chunk without a size", in_chunks(b"zz\r\nhi\r\n0\r\n\r\n"), 400),
    ("a chunk of negative size", in_chunks(b"-2\r\nhi\r\n0\r\n\r\n"), 400),
    ("a chunk of endless size", in_chunks(b"fffffffffffffffff\r\nhi\r\n0\r\n\r\n"), 400),
    ("a chunk that is longer than its size", in_chunks(b"1\r\nhi\r\n0\r\n\r\n"), 400),
    ("chunks with LF", in_chunks(b"2\nhi\n0\n\n"), 400),
    *((coding, sent_as(coding), 400) for coding in ("gzip, chunked", "chunked, chunked")),
    *((coding, sent_as(coding), 400) for coding in ("chunked, identity", "xchunked")),
    ("two codings", in_chunks(chunked(GOOD), CHUNKS), 400),
    ("a large length", sized(str(5 * MIB)), 413),
    ("a large body", in_chunks(chunked(*[b" " * MIB] * 5)), 413),
    ("a gzip bomb", post(GZIP, body=bomb()), 413),
    ("a bomb in chunks", in_chunks(chunked(bomb()), GZIP), 413),
)


def _requests() -> Iterator[BadRequest]:
    for rows, keeps_alive in ((KEEP_ALIVE, True), (CLOSE, False)):
        for name, data, status in rows:
            yield BadRequest(name, data, status, keeps_alive)


BAD_REQUESTS = tuple(_requests())
