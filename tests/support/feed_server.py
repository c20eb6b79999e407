"""A server of feeds over HTTPS, like GOCDB and CRIC, which can be told to fail."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import trustme

from tests.support.database.gocdb_files import DECLARATION

HOST = "localhost"
PAGE_SIZE = 10
XML, JSON = "application/xml", "application/json"


class FeedRequest(NamedTuple):
    """A request as the server has read it, and the status it answered."""

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


Fault = Callable[[BaseHTTPRequestHandler, Reply], None]
"""Answers instead of the server, which would have answered with the reply."""


@dataclass
class FeedServer:
    """What is served, which may be changed between requests, and what was requested.

    Without `elements` there is no GOCDB; `documents` are those of other paths.
    """

    url: str = ""
    elements: dict[str, Sequence[str]] = field(default_factory=dict)
    """By method of GOCDB: the elements of its answer."""
    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By path: content type and text."""
    faults: deque[Fault | None] = field(default_factory=deque)
    """For the next requests, one after the other; None answers normally."""
    requests: list[tuple[FeedRequest, int]] = field(default_factory=list)
    has_validators: bool = True
    ca_file: Path = Path()
    certificate_file: Path = Path()
    """Of a client that it accepts."""

    @property
    def gocdb(self) -> str:
        return f"{self.url}/gocdbpi"

    def statuses(self) -> list[int]:
        return [status for _, status in self.requests]

    def reply(self, request: FeedRequest) -> Reply:
        if request.path.startswith("/gocdbpi/"):
            body = self._gocdb(request).encode()
            reply = Reply(200, body)
        elif request.path in self.documents:
            content_type, text = self.documents[request.path]
            reply = Reply(200, text.encode(), content_type)
        else:
            return Reply(404, b"<html>not here</html>", "text/html")
        if not self.has_validators:
            return reply
        etag = f'"{sha256(reply.body).hexdigest()[:16]}"'
        if request.headers.get("If-None-Match") == etag:
            return Reply(304, headers={"ETag": etag})
        return reply._replace(headers={"ETag": etag})

    def _gocdb(self, request: FeedRequest) -> str:
        parameters = dict(request.parameters)
        method = parameters.pop("method", "")
        elements = self.elements.get(method)
        known = {"scope", "windowstart", "windowend", "next_cursor"}
        if method == "get_site_list":
            known -= {"next_cursor"}
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
    authority = trustme.CA()
    state = FeedServer(
        ca_file=directory / "feed-ca.pem", certificate_file=directory / "feed-client.pem"
    )
    authority.cert_pem.write_to_path(state.ca_file)
    issued = authority.issue_cert("importer@example.org", common_name="importer")
    issued.private_key_and_cert_chain_pem.write_to_path(state.certificate_file)
    state.certificate_file.chmod(0o600)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            parameters = {name: values[-1] for name, values in parse_qs(parts.query, True).items()}
            connection: Any = self.connection
            peer = connection.getpeercert() or {}
            subject = [pair for names in peer.get("subject", ()) for pair in names]
            request = FeedRequest(
                parts.path, parameters, dict(self.headers), dict(subject).get("commonName", "")
            )
            reply = state.reply(request)
            fault = state.faults.popleft() if state.faults else None
            state.requests.append((request, reply.status if fault is None else 0))
            (fault or send)(self, reply)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(HOST).configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED if requires_certificate else ssl.CERT_OPTIONAL

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def get_request(self) -> Any:
            connection, address = super().get_request()
            return context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            ), address

        def handle_error(self, *_: object) -> None:
            """Clients that give up are a part of the tests."""

    server = Server((HOST, 0), Handler)
    state.url = f"https://{HOST}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: BaseHTTPRequestHandler, reply: Reply, whole: bool = True) -> None:
    """Answer with the reply, or with half of it and the end of the connection."""
    if not whole:
        handler.close_connection = True
        reply = reply._replace(status=200)
    handler.send_response(reply.status)
    headers = dict(reply.headers)
    if reply.status != 304:
        headers["Content-Type"] = reply.content_type
        if "Transfer-Encoding" not in headers:
            headers.setdefault("Content-Length", str(len(reply.body)))
    for name, value in headers.items():
        if value:
            handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(reply.body if whole else reply.body[: len(reply.body) // 2])


def status(code: int, **headers: str) -> Fault:
    """An error; headers are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler, _: send(handler, Reply(code, b"<html>no</html>", "text/html", named))


def page_of_an_error(handler: BaseHTTPRequestHandler, _: Reply) -> None:
    send(handler, Reply(200, b"<html>Scheduled maintenance</html>", "text/html"))


def as_gzip(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    headers = {**reply.headers, "Content-Encoding": "gzip"}
    send(handler, reply._replace(body=gzip.compress(reply.body), headers=headers))


def truncated_gzip(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    body = gzip.compress(reply.body)[:-20]
    send(handler, reply._replace(body=body, headers={"Content-Encoding": "gzip"}))


def bomb(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    """A small answer that becomes 100 MB."""
    as_gzip(handler, reply._replace(body=b"<results>" + b" " * 100_000_000))


def truncated(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    send(handler, reply, whole=False)


def truncated_without_length(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    """Like `truncated`, but only the end of the connection is the end of the body."""
    send(handler, reply._replace(headers={"Content-Length": ""}), whole=False)


def truncated_chunks(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    chunk = b"%x\r\n%s\r\n" % (len(reply.body), reply.body)
    chunked = reply._replace(body=chunk * 2, headers={"Transfer-Encoding": "chunked"})
    send(handler, chunked, whole=False)


def dribble(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    """A byte now and then, for longer than anybody waits."""
    size = {"Content-Length": str(len(reply.body))}
    send(handler, Reply(200, headers=size))
    with suppress(OSError):
        for byte in reply.body:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.05)


def hang_up(handler: BaseHTTPRequestHandler, _: Reply) -> None:
    handler.close_connection = True


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
