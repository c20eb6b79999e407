"""Feeds fetched over HTTPS, in either database, with the role for imports."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Proxy, parse_proxy
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT
from sam_pipeline.sql.commands.import_ import FEED_KINDS
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import BadInput, FeedRefused, FeedUnavailable
from sam_pipeline.sql.imports.client import (
    ATTEMPTS,
    MAX_REDIRECTS,
    XML,
    FeedClient,
    Validators,
)
from sam_pipeline.sql.imports.download import downloaded
from sam_pipeline.sql.imports.feed_changes import FeedChanges, FeedSnapshot, Window, apply_snapshot
from sam_pipeline.sql.imports.feed_config import FeedConfig
from sam_pipeline.sql.imports.feed_rows import taken
from sam_pipeline.sql.imports.formats.gocdb import read_gocdb
from sam_pipeline.sql.topology.view_rows import insert_rows
from tests.integration.sql.imports.conftest import TEXT
from tests.services.process import free_ports
from tests.support import feed_server
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.database.dialects import only_on
from tests.support.database.gocdb_files import (
    document,
    endpoint_elements,
    service_endpoint,
    write,
)
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, query, stored
from tests.support.database.sql_rows import service_endpoint as endpoint_row
from tests.support.database.with_schema import with_schema
from tests.support.feed_server import Fault, FeedServer, as_json, serving, status, vo_feed

WINDOW = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
CLASSES = ("serviceEndpoint", "siteGroup", "downtime")
CLIENT = "sam_pipeline.sql.imports.client"


def day(number: int) -> str:
    return f"2026-11-{number:02}T06:00:00Z"


@pytest.fixture
def importer(engine: Engine) -> Iterator[Engine]:
    """The database as the role for imports sees it."""
    with acting_as("topology", engine) as other:
        yield other


def feed_of(server: FeedServer, kind: str = "gocdb", path: str = "/gocdbpi") -> FeedConfig:
    files = {"ca_file": server.ca_file, "certificate_file": server.certificate_file}
    return FeedConfig(kind=kind, url=f"{server.url}{path}", **files, timeout_s=60.0)


def import_feed(
    engine: Engine, feed: FeedConfig, state: Path, at: str, accept_shrinking: bool = False
) -> list[FeedChanges]:
    with downloaded(feed, WINDOW, state, {}) as download:
        rows = taken(FEED_KINDS[feed.kind].read(download.files), feed, download.answered)
        snapshot = FeedSnapshot(rows.feed, at, None, WINDOW, accept_shrinking)
        return apply_snapshot(engine, rows, snapshot)


def counts(changes: Sequence[FeedChanges]) -> dict[str, tuple[int, ...]]:
    """The numbers of new, changed, ended and unchanged rows, by kind."""
    return {c.kind: (c.new, c.changed, c.ended, c.unchanged) for c in changes}


def contents(engine: Engine) -> Mapping[str, list[tuple[tuple[str, object], ...]]]:
    """All rows of the topology."""
    return {
        name: sorted(tuple(sorted(row.items())) for row in stored(engine, name)) for name in CLASSES
    }


def open_endpoints(engine: Engine) -> set[tuple[str, str, str]]:
    """Host, VO and source of the endpoints that have no end."""
    rows = query(
        engine,
        """
        SELECT hostName, coalesce(voName, ''), replace(source, 'feed ', '') FROM serviceEndpoint
        WHERE validTo IS NULL
        """,
    )
    return set(rows)  # type: ignore[arg-type]


DAMAGES: Sequence[Callable[[Path], object]] = [
    lambda current: (current / "endpoints-2.xml").write_text("<results/>"),
    lambda current: (current / "endpoints-2.xml").unlink(),
    lambda current: (current / "index.json").write_text("{"),
    lambda current: (current / "index.json").write_text('{"u": 1}'),
    lambda current: (current / "index.json").unlink(),
]


@only_on("sqlite")
def test_damaged_files_of_the_last_import_are_fetched_again(
    engine: Engine, server: FeedServer, tmp_path: Path
) -> None:
    import_feed(engine, feed_of(server), tmp_path / "state", day(1))
    before = contents(engine)
    [current] = tmp_path.glob("state/import-gocdb-*/current")
    for number, damage in enumerate(DAMAGES, 2):
        damage(current)
        import_feed(engine, feed_of(server), tmp_path / "state", day(number))
        assert contents(engine) == before
    other = with_schema(f"sqlite:///{tmp_path / 'other.db'}")  # as if made again
    import_feed(other, feed_of(server), tmp_path / "state", day(1))
    assert contents(other) == before
    other.dispose()


def page_without_meta(reply: feed_server.Reply) -> feed_server.Reply:
    body = document(*endpoint_elements([1])).encode()
    return reply._replace(body=body)


HALVES: Mapping[str, Sequence[Fault | None]] = {
    "a page that fails after others": [None, None, *[feed_server.status(500)] * 5],
    "the end of a page is missing": [None, feed_server.truncated_without_length],
    "a page is an error page": [None, None, None, feed_server.page_of_an_error],
    "a page without meta": [None, page_without_meta],
    "the last document is truncated": [None] * 4 + [feed_server.truncated_without_length],
}


@pytest.mark.parametrize("faults", HALVES.values(), ids=HALVES)
def test_half_an_export_changes_nothing(
    engine: Engine,
    importer: Engine,
    server: FeedServer,
    tmp_path: Path,
    faults: Sequence[Fault | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{CLIENT}.sleep", lambda seconds: None)
    feed = feed_of(server)
    import_feed(importer, feed, tmp_path, day(1))
    before = contents(engine)
    server.elements["get_service_endpoint"] = endpoint_elements(range(1, 26))
    server.faults.extend(faults)

    with pytest.raises((BadInput, FeedUnavailable)):
        import_feed(importer, feed, tmp_path, day(2))
    assert contents(engine) == before

    after = counts(import_feed(importer, feed, tmp_path, day(3)))
    assert after["serviceEndpoint"] == (1, 0, 1, 24)


def test_feeds_of_several_owners_leave_each_others_rows_alone(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    """Each drops the hosts that all of them have; what shrinks must be accepted."""
    shared = ("shared1", "shared2", "shared3")
    for host in shared:
        insert(engine, "serviceEndpoint", endpoint_row(hostName=host, messageId=f"m-{host}"))

    def serve(*hosts: str) -> None:
        server.elements["get_service_endpoint"] = [service_endpoint(host=host) for host in hosts]
        services = [(host, "CE") for host in hosts]
        for vo in ("atlas", "cms"):
            feed = vo_feed(vo, {"EXAMPLE-LCG2": services}, *hosts)
            server.documents[f"/{vo}.xml"] = (feed_server.XML, feed)
        place = {"rcsite": "EXAMPLE-LCG2", "flavour": "CE"}
        cric = as_json({host: {**place, "endpoint": host} for host in hosts})
        server.documents["/api/core/service/query/"] = cric
        federations = as_json({host: {"rcsites": ["EXAMPLE-LCG2"]} for host in hosts})
        server.documents["/api/core/federation/query/"] = federations
        server.documents["/api/core/downtime/query/"] = as_json({})

    feeds = {
        "gocdb": feed_of(server),
        "vofeed:atlas": feed_of(server, "vofeed", "/atlas.xml"),
        "vofeed:cms": feed_of(server, "vofeed", "/cms.xml"),
        "cric": feed_of(server, "cric", ""),
    }
    serve(*shared, "own")
    for number, feed in enumerate(feeds.values(), 1):
        import_feed(importer, feed, tmp_path, day(number))
    everything = open_endpoints(engine)
    groups = [row for row in stored(engine, "siteGroup") if "validTo" not in row]
    serve("own")

    for number, (source, feed) in enumerate(feeds.items(), 10):
        for _ in range(2):  # the refused one is not taken for the last import
            with pytest.raises(BadInput, match=r"3 of 4 rows from .*--accept-shrinking"):
                import_feed(importer, feed, tmp_path, day(number))
        import_feed(importer, feed, tmp_path, day(number), accept_shrinking=True)
        gone = everything - open_endpoints(engine)
        assert gone == {(host, source.partition(":")[2], source) for host in shared}
        everything -= gone

    left = [row for row in stored(engine, "siteGroup") if "validTo" not in row]
    owners = {("own", source.partition(":")[2], source) for source in feeds}
    assert everything == {*((host, "", "message") for host in shared), *owners}
    assert len(groups) - len(left) == 3 * len(shared)  # of the two VOs and of CRIC


def test_imports_at_once_run_one_after_another_and_wait_for_loaders(
    engine: Engine, tmp_path: Path
) -> None:
    hosts = [f"h{number:04}.example.org" for number in range(2_000)]
    export = document(*(service_endpoint(host=host) for host in hosts))
    exports = read_gocdb({"endpoints": [write(tmp_path / "x.xml", export)]})

    def run() -> tuple[int, int]:
        [changes] = apply_snapshot(engine, exports, FeedSnapshot("gocdb", day(1)))
        return changes.new, changes.unchanged

    place = {"siteName": "A", "hostName": "a", "serviceFlavour": "CE", "validFrom": day(2)}
    with ThreadPoolExecutor(3) as pool:
        with writing(engine) as connection:
            insert_rows(connection, SERVICE_ENDPOINT, [place])
            counted = [pool.submit(run) for _ in range(3)]
            threading.Event().wait(0.3)
            assert not any(each.done() for each in counted)
        found = sorted(each.result() for each in counted)

    assert found == [(0, 2_000), (0, 2_000), (2_000, 0)]


# The client of a server that fails in every way that we know --------------------------------------

NOTHING = Validators()


class Fetch:
    """Fetches `/x.xml`; `pauses` are those between attempts, which take no time."""

    def __init__(self, server: FeedServer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.path = server, path
        self.pauses: list[float] = []
        monkeypatch.setattr(f"{CLIENT}.sleep", self.pauses.append)
        self.proxy: Proxy | None = None
        files = {"ca_file": server.ca_file, "certificate_file": server.certificate_file}
        self.feed = FeedConfig(kind="vofeed", url=f"{server.url}/x.xml", **files)

    def __call__(self, known: Validators = NOTHING, **settings: Any) -> Validators | None:
        feed = self.feed.replace(**settings)
        client = FeedClient(feed, self.proxy, Deadline.after(60))
        return client.fetch(feed.url, self.path, XML, known)


@pytest.fixture
def fetch(server: FeedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    return Fetch(server, tmp_path / "answer.xml", monkeypatch)


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
    assert first == 0
    assert 2 <= second <= 3
    server.faults.extend([fault] * ATTEMPTS)
    with pytest.raises(FeedUnavailable, match=problem):
        fetch()
    assert len(server.requests) == 3 + ATTEMPTS


@pytest.mark.parametrize("fault", [feed_server.truncated, feed_server.truncated_chunks])
def test_a_body_that_breaks_off_is_fetched_once_more(
    server: FeedServer, fetch: Fetch, fault: Fault
) -> None:
    server.faults.append(fault)

    fetch()

    assert fetch.path.read_text() == TEXT
    server.faults.extend([fault, fault])
    with pytest.raises(FeedUnavailable, match=r"is truncated|prematurely"):
        fetch()
    assert len(server.requests) == 4


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
    with pytest.raises(FeedUnavailable, match="answered 429: retry after 100 s"):
        fetch()
    assert len(fetch.pauses) == 2


def damaged_gzip(reply: feed_server.Reply) -> feed_server.Reply:
    return reply._replace(headers={"Content-Encoding": "gzip"})


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
        (feed_server.redirect("http://[::1"), BadInput, "an invalid URL"),
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
