"""A client of a server of feeds over HTTPS that fails in every way that we know."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.proxy import Proxy, parse_proxy
from sam_pipeline.sql.errors import BadInput, FeedRefused, FeedUnavailable
from sam_pipeline.sql.imports.http.client import ATTEMPTS, XML, FeedClient, Validators
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from tests.services import needed
from tests.services.process import free_ports
from tests.services.tinyproxy import running_tinyproxy
from tests.support import feed_server
from tests.support.feed_server import Fault, FeedServer, serving

NOTHING = Validators()
TEXT = f"<results>{'<x/>' * 10_000}</results>"


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeedServer]:
    with serving(tmp_path_factory.mktemp("feed-server")) as server:
        yield server


@pytest.fixture
def server(shared_server: FeedServer) -> FeedServer:
    shared_server.documents = {"/x.xml": (feed_server.XML, TEXT)}
    shared_server.faults.clear()
    shared_server.requests.clear()
    return shared_server


class Fetch:
    """Fetches `/x.xml`; `pauses` are those between attempts, which take no time."""

    def __init__(self, server: FeedServer, path: Path) -> None:
        self.server, self.path = server, path
        self.pauses: list[float] = []
        self.proxy: Proxy | None = None
        self.feed = FeedConfig(
            "vofeed",
            f"{server.url}/x.xml",
            ca_file=server.ca_file,
            certificate_file=server.certificate_file,
        )

    def __call__(
        self, known: Validators = NOTHING, timeout_s: float = 60, **settings: Any
    ) -> Validators | None:
        feed = replace(self.feed, **settings)
        client = FeedClient(feed, self.proxy, Deadline.after(timeout_s), self.pauses.append)
        return client.fetch(feed.url, self.path, XML, known)


@pytest.fixture
def fetch(server: FeedServer, tmp_path: Path) -> Fetch:
    return Fetch(server, tmp_path / "answer.xml")


def test_the_client_shows_its_certificate(server: FeedServer, fetch: Fetch) -> None:
    fetch()

    [(request, _)] = server.requests
    assert request.client == "importer"
    assert fetch.path.read_text() == TEXT


def test_an_unchanged_document_is_not_sent_again(server: FeedServer, fetch: Fetch) -> None:
    first = fetch()
    assert first is not None

    assert fetch(first) is None
    server.documents["/x.xml"] = (feed_server.XML, "<results/>")
    assert fetch(first) not in (None, first)

    assert server.statuses() == [200, 304, 200]
    assert fetch.path.read_text() == "<results/>"


def test_not_modified_is_no_answer_to_a_first_request(server: FeedServer, fetch: Fetch) -> None:
    server.faults.append(feed_server.status(304))

    with pytest.raises(BadInput, match="answered 304"):
        fetch()


def test_compressed_answers_are_understood(server: FeedServer, fetch: Fetch) -> None:
    server.faults.append(feed_server.as_gzip)

    fetch()

    assert fetch.path.read_text() == TEXT


@pytest.mark.parametrize(
    "fault",
    [
        feed_server.status(500),
        feed_server.status(502),
        feed_server.status(503),
        feed_server.status(429),
        feed_server.hang_up,
        feed_server.truncated,
        feed_server.truncated_chunks,
        feed_server.truncated_gzip,
    ],
)
def test_what_may_pass_is_tried_again(server: FeedServer, fetch: Fetch, fault: Fault) -> None:
    server.faults.extend([fault, fault])

    fetch()

    assert fetch.path.read_text() == TEXT
    assert len(server.requests) == 3
    first, second = fetch.pauses
    assert 0.5 <= first <= 1 <= second <= 2


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (feed_server.status(503), "answered 503"),
        (feed_server.hang_up, "closed the connection"),
        (feed_server.truncated, "is truncated"),
    ],
)
def test_after_some_attempts_the_feed_is_unavailable(
    server: FeedServer, fetch: Fetch, fault: Fault, problem: str
) -> None:
    server.faults.extend([fault] * ATTEMPTS)

    with pytest.raises(FeedUnavailable, match=problem):
        fetch()

    assert len(server.requests) == ATTEMPTS


def test_a_pause_that_the_server_demands_is_made(server: FeedServer, fetch: Fetch) -> None:
    server.faults.append(feed_server.status(429, Retry_After="17"))
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    server.faults.append(feed_server.status(503, Retry_After=later))

    fetch()

    seconds, until = fetch.pauses
    assert seconds == 17
    assert 25 < until <= 30


def test_a_pause_beyond_the_time_left_is_not_begun(server: FeedServer, fetch: Fetch) -> None:
    server.faults.append(feed_server.status(429, Retry_After="100"))

    with pytest.raises(FeedUnavailable, match="retry after 100 s"):
        fetch()

    assert fetch.pauses == []


@pytest.mark.parametrize(
    ("fault", "error", "problem"),
    [
        (feed_server.status(401), FeedRefused, "answered 401"),
        (feed_server.status(403), FeedRefused, "answered 403"),
        (feed_server.status(404), ConfigError, "answered 404.*check the URL"),
        (feed_server.status(204), BadInput, "answered 204"),
        (feed_server.page_of_an_error, BadInput, "text/html instead of application/xml"),
        (feed_server.redirect("https://evil.example/x.xml"), ConfigError, "another server"),
        (feed_server.redirect("http://localhost/x.xml"), ConfigError, "another server"),
    ],
)
def test_what_another_attempt_would_not_change_ends_at_once(
    server: FeedServer, fetch: Fetch, fault: Fault, error: type[Exception], problem: str
) -> None:
    server.faults.append(fault)

    with pytest.raises(error, match=problem):
        fetch()

    assert len(server.requests) == 1


def test_a_redirect_on_the_same_server_is_followed(server: FeedServer, fetch: Fetch) -> None:
    server.documents["/y.xml"] = (feed_server.XML, "<results/>")
    server.faults.append(feed_server.redirect("/y.xml"))

    fetch()

    assert [request.path for request, _ in server.requests] == ["/x.xml", "/y.xml"]


def test_redirects_in_a_circle_end(server: FeedServer, fetch: Fetch) -> None:
    server.faults.extend([feed_server.redirect("/x.xml")] * 50)

    with pytest.raises(ConfigError, match="redirects more than"):
        fetch()


def test_a_small_answer_that_becomes_large_is_bounded(server: FeedServer, fetch: Fetch) -> None:
    server.faults.append(feed_server.bomb)

    with pytest.raises(BadInput, match=r"more than 1000000 bytes \(max_bytes\)"):
        fetch(max_bytes=1_000_000)

    assert fetch.path.stat().st_size <= 1_000_000


def test_damaged_gzip_is_refused(server: FeedServer, fetch: Fetch) -> None:
    def damaged(handler: Any, reply: feed_server.Reply) -> None:
        headers = {"Content-Encoding": "gzip"}
        feed_server.send(handler, reply._replace(headers=headers))

    server.faults.append(damaged)

    with pytest.raises(BadInput, match="not valid gzip"):
        fetch()


def test_a_server_of_another_authority_is_not_trusted(
    server: FeedServer, fetch: Fetch, tmp_path: Path
) -> None:
    """Nor one that only the authorities of a library know."""
    with pytest.raises(FeedUnavailable, match=r"can't be trusted.*ca_file"):
        fetch(ca_file=None)
    with serving(tmp_path) as other, pytest.raises(FeedUnavailable, match="can't be trusted"):
        fetch(ca_file=other.ca_file)

    assert server.requests == []


def test_without_a_certificate_the_server_refuses_us(server: FeedServer, fetch: Fetch) -> None:
    with pytest.raises(FeedUnavailable):  # TLS 1.3 says why only if we read before we write
        fetch(certificate_file=None)

    assert server.requests == []


def test_a_key_that_others_can_read_is_not_used(server: FeedServer, fetch: Fetch) -> None:
    exposed = fetch.path.with_name("exposed.pem")
    shutil.copy(server.certificate_file, exposed)
    exposed.chmod(0o644)

    with pytest.raises(ConfigError, match="accessible to other users"):
        fetch(certificate_file=exposed)


def test_passwords_of_other_programs_stay_at_home(
    server: FeedServer, fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login jane password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")

    fetch()

    [(request, _)] = server.requests
    assert "Authorization" not in request.headers


def test_a_proxy_is_logged_in_to(server: FeedServer, fetch: Fetch) -> None:
    """It sees no request of ours, only CONNECT."""
    with needed(running_tinyproxy(user="sam", password="s3cret")) as proxy:

        def through(login: str) -> None:
            fetch.proxy = parse_proxy(f"http://{login}@{proxy.host}:{proxy.port}", "proxy")
            fetch()

        through("sam:s3cret")
        seen = proxy.asked
        with pytest.raises(FeedUnavailable, match="rejected the login of sam") as caught:
            through("sam:wr0ng")

    assert seen == [f"CONNECT {urlsplit(server.url).netloc}"]
    assert len(server.requests) == 1
    assert "wr0ng" not in str(caught.value)


def test_an_unreachable_server_is_reported(fetch: Fetch) -> None:
    [port] = free_ports(1)

    with pytest.raises(FeedUnavailable, match="connection refused"):
        fetch(url=f"https://localhost:{port}/x.xml")
