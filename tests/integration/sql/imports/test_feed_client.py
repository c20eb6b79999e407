"""A client of a server of feeds over HTTPS that fails in every way that we know."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.proxy import Proxy, parse_proxy
from sam_pipeline.sql.errors import BadInput, FeedRefused, FeedUnavailable
from sam_pipeline.sql.imports.http.client import (
    ATTEMPTS,
    MAX_REDIRECTS,
    XML,
    FeedClient,
    Validators,
)
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from tests.integration.sql.imports.conftest import TEXT
from tests.services.process import free_ports
from tests.support import feed_server
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.feed_server import Fault, FeedServer, serving, status

NOTHING = Validators()


class Fetch:
    """Fetches `/x.xml`; `pauses` are those between attempts, which take no time."""

    def __init__(self, server: FeedServer, path: Path) -> None:
        self.server, self.path = server, path
        self.pauses: list[float] = []
        self.proxy: Proxy | None = None
        files = {"ca_file": server.ca_file, "certificate_file": server.certificate_file}
        self.feed = FeedConfig("vofeed", f"{server.url}/x.xml", **files)

    def __call__(self, known: Validators = NOTHING, **settings: Any) -> Validators | None:
        feed = replace(self.feed, **settings)
        client = FeedClient(feed, self.proxy, Deadline.after(60), self.pauses.append)
        return client.fetch(feed.url, self.path, XML, known)


@pytest.fixture
def fetch(server: FeedServer, tmp_path: Path) -> Fetch:
    return Fetch(server, tmp_path / "answer.xml")


def test_the_client_shows_its_certificate_alone_and_fetches_only_what_has_changed(
    server: FeedServer, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends no password of other programs, and uses no proxy of theirs."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login jane password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    server.faults.append(feed_server.as_gzip)
    first = fetch()
    assert first is not None
    assert fetch.path.read_text() == TEXT

    assert fetch(first) is None
    server.documents["/x.xml"] = (feed_server.XML, "<results/>")
    assert fetch(first) not in (None, first)

    assert server.statuses()[1:] == [304, 200]
    assert fetch.path.read_text() == "<results/>"
    assert {request.client for request, _ in server.requests} == {"importer"}
    assert not any("Authorization" in request.headers for request, _ in server.requests)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        *((status(code), f"answered {code}") for code in (500, 429)),
        (feed_server.hang_up, "closed the connection"),
        (feed_server.truncated, "is truncated"),
        (feed_server.truncated_chunks, "is truncated"),
        (feed_server.truncated_gzip, "is truncated"),
    ],
)
def test_what_may_pass_is_tried_again_but_not_for_ever(
    server: FeedServer, fetch: Fetch, fault: Fault, problem: str
) -> None:
    server.faults.extend([fault, fault])

    fetch()

    assert fetch.path.read_text() == TEXT
    assert len(server.requests) == 3
    first, second = fetch.pauses
    assert 0.5 <= first <= 1 <= second <= 2
    server.faults.extend([fault] * ATTEMPTS)
    with pytest.raises(FeedUnavailable, match=problem):
        fetch()
    assert len(server.requests) == 3 + ATTEMPTS


def test_a_pause_that_the_server_demands_is_made_within_the_time_left(
    server: FeedServer, fetch: Fetch
) -> None:
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    server.faults += [status(429, Retry_After="17"), status(503, Retry_After=later)]
    fetch()
    seconds, until = fetch.pauses
    assert seconds == 17
    assert 25 < until <= 30

    server.faults.append(status(429, Retry_After="100"))
    with pytest.raises(FeedUnavailable, match="retry after 100 s"):
        fetch()
    assert len(fetch.pauses) == 2


def damaged_gzip(handler: Any, reply: feed_server.Reply) -> None:
    feed_server.send(handler, reply._replace(headers={"Content-Encoding": "gzip"}))


@pytest.mark.parametrize(
    ("fault", "error", "problem"),
    [
        (status(403), FeedRefused, "answered 403"),
        (status(404), ConfigError, "answered 404.*check the URL"),
        (status(204), BadInput, "answered 204"),
        (status(304), BadInput, "answered 304"),  # without validators of ours
        (feed_server.page_of_an_error, BadInput, "text/html instead of application/xml"),
        (damaged_gzip, BadInput, "not valid gzip"),
        (feed_server.bomb, BadInput, r"more than 1000000 bytes \(max_bytes\)"),
        (feed_server.redirect("http://localhost/x.xml"), ConfigError, "another server"),
    ],
)
def test_what_another_attempt_would_not_change_ends_at_once(
    server: FeedServer, fetch: Fetch, fault: Fault, error: type[Exception], problem: str
) -> None:
    server.faults.append(fault)

    with pytest.raises(error, match=problem):
        fetch(max_bytes=1_000_000)

    assert len(server.requests) == 1
    assert not fetch.path.exists() or fetch.path.stat().st_size <= 1_000_000


def test_redirects_on_the_same_server_are_followed_but_not_in_a_circle(
    server: FeedServer, fetch: Fetch
) -> None:
    server.documents["/y.xml"] = (feed_server.XML, "<results/>")
    server.faults.append(feed_server.redirect("/y.xml"))
    fetch()
    assert [request.path for request, _ in server.requests] == ["/x.xml", "/y.xml"]

    server.faults.extend([feed_server.redirect("/x.xml")] * 50)
    with pytest.raises(ConfigError, match="redirects more than"):
        fetch()
    assert len(server.requests) == 2 + 1 + MAX_REDIRECTS


def test_only_our_authority_is_trusted_and_only_with_our_certificate(
    server: FeedServer, fetch: Fetch, tmp_path: Path
) -> None:
    """Nor one that only the authorities of a library know."""
    exposed = fetch.path.with_name("exposed.pem")
    shutil.copy(server.certificate_file, exposed)
    exposed.chmod(0o644)
    [port] = free_ports(1)

    with pytest.raises(FeedUnavailable, match=r"can't be trusted.*ca_file"):
        fetch(ca_file=None)
    with serving(tmp_path) as other, pytest.raises(FeedUnavailable, match="can't be trusted"):
        fetch(ca_file=other.ca_file)
    with pytest.raises(FeedUnavailable):  # TLS 1.3 says why only if we read before we write
        fetch(certificate_file=None)
    with pytest.raises(ConfigError, match="accessible to other users"):
        fetch(certificate_file=exposed)
    with pytest.raises(FeedUnavailable, match="connection refused"):
        fetch(url=f"https://localhost:{port}/x.xml")

    assert server.requests == []


def test_a_proxy_is_logged_in_to(server: FeedServer, fetch: Fetch) -> None:
    """It sees no request of ours, only CONNECT."""
    with ProxyServer("sam", "s3cret") as proxy:
        fetch.proxy = parse_proxy(proxy.url_with("sam:s3cret"), "proxy")
        fetch()
        assert proxy.asked == [f"CONNECT {urlsplit(server.url).netloc}"]
        fetch.proxy = parse_proxy(proxy.url_with("sam:wr0ng"), "proxy")
        with pytest.raises(FeedUnavailable, match="rejected the login of sam") as caught:
            fetch()

    assert len(server.requests) == 1
    assert "wr0ng" not in str(caught.value)
