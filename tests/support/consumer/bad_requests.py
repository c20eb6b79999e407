"""Requests that a door refuses, with the status of each, and good ones that only look bad.

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


def _requests() -> Iterator[BadRequest]:
    """Each kind of request that is refused."""
    # Paths and methods.
    yield BadRequest("an unknown path", post(target="/v1/messagez/metricOutput"), 404)
    yield BadRequest("the root", post(target="/"), 404)
    yield BadRequest("a path without a class", post(target="/v1/messages/"), 400)
    yield BadRequest("a path that climbs", post(target="/v1/messages/../../etc/passwd"), 400)
    yield BadRequest("a class that climbs", post(target="/v1/messages/..%2f..%2fetc"), 400)
    yield BadRequest("a doubled slash", post(target="//v1/messages/metricOutput"), 404)
    yield BadRequest("a GET of messages", request("GET", PATH), 405)
    yield BadRequest("a DELETE of messages", request("DELETE", PATH), 405)
    yield BadRequest("a TRACE of messages", request("TRACE", PATH), 405)
    yield BadRequest("a POST of the health", post(target="/healthz"), 405)
    yield BadRequest("an unknown method", post(method="BREW"), 400, False)
    yield BadRequest("a method in lower case", post(method="post"), 400, False)

    # The request line and the headers.
    yield BadRequest("no HTTP", b"hello\r\n\r\n", 400, False)
    yield BadRequest("a STOMP frame", b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", 400, False)
    yield BadRequest(
        "the start of TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, False
    )
    yield BadRequest("HTTP/0.9", b"GET /healthz\r\n\r\n", 400, False)
    yield BadRequest("HTTP/2 without TLS", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, False)
    yield BadRequest("a later version", post(version="HTTP/2.0"), 400, False)
    yield BadRequest("no Host", post().replace(b"Host: door.example.org\r\n", b""), 400, False)
    yield BadRequest("two hosts", post(("Host", "a"), ("Host", "b")), 400, False)
    yield BadRequest("a blank before a colon", post(("X ", "y")), 400, False)
    yield BadRequest("a header without a name", post(("", "y")), 400, False)
    yield BadRequest("a NUL in a header", post(("X", "a\0b")), 400, False)
    yield BadRequest("a folded header", post(("X", "a\r\n b")), 400, False)
    yield BadRequest("lines that end with LF", post().replace(b"\r\n", b"\n"), 400, False)
    yield BadRequest("a long target", post(target=f"{PATH}?{'x' * 20_000}"), 414, False)
    yield BadRequest("a long header", post(("X", "y" * 100_000)), 431, False)
    yield BadRequest("many headers", post(*[(f"X{n}", "y") for n in range(3000)]), 400, False)
    yield BadRequest("an unknown expectation", post(("Expect", "200-maybe")), 417)

    # The length of the body.
    yield BadRequest("no length", post(body=None), 411)
    yield BadRequest("a negative length", post(("Content-Length", "-1"), body=None), 400, False)
    yield BadRequest("a signed length", post(("Content-Length", "+1"), body=None), 400, False)
    yield BadRequest("a list of lengths", post(("Content-Length", "1, 1"), body=None), 400, False)
    yield BadRequest("an endless length", post(("Content-Length", "9" * 30), body=None), 400, False)
    yield BadRequest("two lengths", post(("Content-Length", "0")), 400, False)
    yield BadRequest("the length twice", post(("Content-Length", str(len(GOOD)))), 400, False)
    te = ("Transfer-Encoding", "chunked")
    yield BadRequest("a length and chunks", post(te) + chunked(GOOD), 400, False)
    for name, body in (
        ("a chunk without a size", b"zz\r\nhi\r\n0\r\n\r\n"),
        ("a chunk of negative size", b"-2\r\nhi\r\n0\r\n\r\n"),
        ("a chunk of endless size", b"fffffffffffffffff\r\nhi\r\n0\r\n\r\n"),
        ("a chunk that is longer than its size", b"1\r\nhi\r\n0\r\n\r\n"),
        ("chunks with LF", b"2\nhi\n0\n\n"),
    ):
        yield BadRequest(name, post(te, body=None) + body, 400, False)
    for coding in ("gzip, chunked", "chunked, chunked", "chunked, identity", "xchunked"):
        fields = ("Transfer-Encoding", coding)
        yield BadRequest(coding, post(fields, body=None) + chunked(GOOD), 400, False)
    yield BadRequest("two codings", post(te, te, body=None) + chunked(GOOD), 400, False)
    too_large = ("Content-Length", str(5 * MIB))
    yield BadRequest("a large length", post(too_large, body=None), 413, False)
    yield BadRequest("a large body", post(te, body=None) + chunked(*[b" " * MIB] * 5), 413, False)

    # The coding and the type of the body.
    zipped = ("Content-Encoding", "gzip")
    yield BadRequest("a gzip bomb", post(zipped, body=bomb()), 413, False)
    yield BadRequest("a bomb in chunks", post(zipped, te, body=None) + chunked(bomb()), 413, False)
    yield BadRequest("damaged gzip", post(zipped, body=GOOD), 400)
    yield BadRequest("truncated gzip", post(zipped, body=gzip.compress(GOOD)[:-9]), 400)
    yield BadRequest("bytes after gzip", post(zipped, body=gzip.compress(GOOD) + b"x"), 400)
    yield BadRequest("an empty gzip body", post(zipped, body=b""), 400)
    deflated = ("Content-Encoding", "deflate")
    yield BadRequest("deflate", post(deflated, body=zlib.compress(GOOD)), 415)
    yield BadRequest("an unknown coding", post(("Content-Encoding", "br"), body=b"x"), 415)
    twice = ("Content-Encoding", "gzip, gzip")
    body = gzip.compress(gzip.compress(GOOD))
    yield BadRequest("gzip in gzip", post(twice, body=body), 415)
    yield BadRequest("a picture", post(content_type="image/png"), 415)
    yield BadRequest("a content type without a slash", post(content_type="text"), 415)

    # Bodies that are not a message.
    yield BadRequest("an empty body", post(body=b""), 400)
    yield BadRequest("text without records", post(body=b"all is well\n"), 400)
    yield BadRequest("JSON that ends early", post(content_type=JSON, body=b'[{"a": "b"'), 400)
    yield BadRequest("a JSON number", post(content_type=JSON, body=b"7"), 422)
    yield BadRequest("deep JSON", post(content_type=JSON, body=b"[" * 100_000), 400)
    nested = b'[{"hostName": {"a": 1}}]'
    yield BadRequest("nested JSON", post(content_type=JSON, body=nested), 422)

    # The id of a message.
    for name, ids in (
        ("two ids", ["a", "b"]),
        ("a long id", ["i" * 5000]),
        ("an id with a tab", ["a\tb"]),
    ):
        fields_of_ids = [("Sam-Message-Id", one) for one in ids]
        yield BadRequest(name, post(*fields_of_ids), 400)


BAD_REQUESTS = tuple(_requests())
