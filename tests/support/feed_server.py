"""A server of feeds over HTTPS, like GOCDB and CRIC, which can be told to fail."""

from __future__ import annotations

import gzip
import json
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import trustme

from tests.support.brokers.http_stand_in import Asked, HttpServer
from tests.support.database.gocdb_files import DECLARATION

HOST = "localhost"
PAGE_SIZE = 10
DRIP_S = 0.05
XML, JSON = "application/xml", "application/json"


class FeedRequest(NamedTuple):
    """A request as the server has read it."""

    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    client: str
    """The common name of the client's certificate; "" without one."""


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = XML
    headers: Mapping[str, str] = {}

    @property
    def head(self) -> bytes:
        headers = {}
        if self.status != 304:
            headers = {"Content-Type": self.content_type, "Content-Length": str(len(self.body))}
        headers |= self.headers
        if "Transfer-Encoding" in headers:
            del headers["Content-Length"]
        lines = [f"{name}: {value}" for name, value in headers.items() if value]
        return "\r\n".join([f"HTTP/1.1 {self.status} Reason", *lines, "", ""]).encode()

    def half(self) -> bytes:
        return self._replace(status=200).head + self.body[: len(self.body) // 2]


Fault = Callable[[Reply], Reply | bytes]
"""What to answer instead of the reply: another one, or the last bytes of the connection."""


@dataclass
class FeedServer(HttpServer):
    """What is served, which may be changed between requests, and what was requested.

    Without `elements` there is no GOCDB; `documents` are those of other paths.
    """

    context: ssl.SSLContext | None = None
    ca_file: Path = Path()
    certificate_file: Path = Path()
    """Of a client that it accepts."""
    elements: dict[str, Sequence[str]] = field(default_factory=dict)
    """By method of GOCDB: the elements of its answer."""
    certified: dict[str, Sequence[str]] = field(default_factory=dict)
    """By certification status: the elements of the list of these sites."""
    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By path: content type and text."""
    faults: deque[Fault | None] = field(default_factory=deque)
    """For the next requests, one after the other; None answers normally."""
    requests: list[tuple[FeedRequest, int]] = field(default_factory=list)
    """With the statuses that were answered; 0 for a fault."""

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def gocdb(self) -> str:
        return f"{self.url}/gocdbpi"

    def statuses(self) -> list[int]:
        return [status for _, status in self.requests]

    def _handle(self, connection: Any, asked: Asked) -> bool:
        parts = urlsplit(asked.target)
        parameters = {name: values[-1] for name, values in parse_qs(parts.query, True).items()}
        peer = connection.getpeercert() or {}
        subject = dict(pair for names in peer.get("subject", ()) for pair in names)
        headers = {name.title(): value for name, value in asked.headers.items()}
        request = FeedRequest(parts.path, parameters, headers, subject.get("commonName", ""))
        reply = self.reply(request)
        fault = self.faults.popleft() if self.faults else None
        self.requests.append((request, reply.status if fault is None else 0))
        answer = fault(reply) if fault else reply
        if isinstance(answer, Reply):
            self._say(connection, answer.head)
            self._say(connection, answer.body, DRIP_S if fault is dribble else 0.0)
            return True
        self._say(connection, answer)
        return False

    def reply(self, request: FeedRequest) -> Reply:
        if request.path.startswith("/gocdbpi/"):
            reply = Reply(200, self._gocdb(request).encode())
        elif request.path in self.documents:
            content_type, text = self.documents[request.path]
            reply = Reply(200, text.encode(), content_type)
        else:
            return Reply(404, b"<html>not here</html>", "text/html")
        etag = f'"{sha256(reply.body).hexdigest()[:16]}"'
        if request.headers.get("If-None-Match") == etag:
            return Reply(304, headers={"ETag": etag})
        return reply._replace(headers={"ETag": etag})

    def _gocdb(self, request: FeedRequest) -> str:
        parameters = dict(request.parameters)
        method = parameters.pop("method", "")
        elements = self.elements.get(method)
        known = {"scope", "scope_match", "windowstart", "windowend", "next_cursor"}
        if method == "get_site_list":
            known = {"scope", "scope_match", "certification_status", "production_status"}
            if status := parameters.get("certification_status"):
                elements = self.certified.get(status, ())
        if unknown := parameters.keys() - known:
            return f"<error>Unsupported parameter: {', '.join(unknown)}</error>"
        if elements is None or (method == "get_site" and "/private/" not in request.path):
            return "<error>Unknown method or access denied</error>"
        if "next_cursor" not in parameters:
            return f"{DECLARATION}<results>\n{''.join(elements)}</results>\n"
        start = int(parameters["next_cursor"])
        page = elements[start : start + PAGE_SIZE]
        # Like that of a server behind another one, which does not know its own name.
        link = f"http://inside.invalid{request.path}?method={method}&amp;next_cursor="
        following = f'<link rel="next" href="{link}{start + len(page)}"/>' if page else ""
        meta = (
            f'<meta><link rel="self" href="{link}{start}"/>{following}'
            f"<count>{len(page)}</count><max_page_size>{PAGE_SIZE}</max_page_size></meta>"
        )
        return f"{DECLARATION}<results>{meta}\n{''.join(page)}</results>\n"


@contextmanager
def serving(directory: Path, *, requires_certificate: bool = True) -> Iterator[FeedServer]:
    """A server that requires, or at least requests, a certificate of its clients.

    Its files are in the directory.
    """
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = FeedServer(context, directory / "feed-ca.pem", directory / "feed-client.pem")
    authority.cert_pem.write_to_path(server.ca_file)
    issued = authority.issue_cert("importer@example.org", common_name="importer")
    issued.private_key_and_cert_chain_pem.write_to_path(server.certificate_file)
    server.certificate_file.chmod(0o600)
    authority.issue_cert(HOST).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED if requires_certificate else ssl.CERT_OPTIONAL
    with server:
        yield server


def status(code: int, **headers: str) -> Fault:
    """An error; headers are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: Reply(code, b"<html>no</html>", "text/html", named)


def page_of_an_error(_: Reply) -> Reply:
    return Reply(200, b"<html>Scheduled maintenance</html>", "text/html")


def as_gzip(reply: Reply) -> Reply:
    headers = {**reply.headers, "Content-Encoding": "gzip"}
    return reply._replace(body=gzip.compress(reply.body), headers=headers)


def bomb(reply: Reply) -> Reply:
    """A small answer that becomes 100 MB."""
    return as_gzip(reply._replace(body=b"<results>" + b" " * 100_000_000))


def truncated(reply: Reply) -> bytes:
    return reply.half()


def truncated_without_length(reply: Reply) -> bytes:
    """Like `truncated`, but only the end of the connection is the end of the body."""
    return reply._replace(headers={"Content-Length": ""}).half()


def truncated_chunks(reply: Reply) -> bytes:
    chunk = b"%x\r\n%s\r\n" % (len(reply.body), reply.body)
    return reply._replace(body=chunk * 2, headers={"Transfer-Encoding": "chunked"}).half()


def dribble(reply: Reply) -> Reply:
    """A byte now and then, for longer than anybody waits."""
    return reply._replace(status=200, headers={})


def hang_up(_: Reply) -> bytes:
    return b""


def redirect(location: str) -> Fault:
    return status(302, Location=location)


def as_json(document: object) -> tuple[str, str]:
    """A document of CRIC."""
    return JSON, json.dumps(document)


def vo_feed(vo: str, sites: Mapping[str, Sequence[tuple[str, str]]], *groups: str) -> str:
    """A VO feed: hosts and flavours by site; each site is in all groups, whose type is `Tier`."""
    members = "".join(f'<group name="{group}" type="{vo}_Tier"/>' for group in groups)
    text = "".join(
        f'<atp_site name="{site}">'
        + "".join(f'<service hostname="{host}" flavour="{kind}"/>' for host, kind in services)
        + f"{members}</atp_site>\n"
        for site, services in sites.items()
    )
    head = f"<title>{vo} topology</title><last_update>2026-11-01T00:00:00Z</last_update>"
    return f"{DECLARATION}<root>{head}<vo>{vo}</vo>\n{text}</root>\n"
