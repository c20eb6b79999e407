"""Feeds fetched over HTTPS, in either database, with the role for imports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT
from sam_pipeline.sql.commands.imports.feed_command import rows_of_feed
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import BadInput, FeedUnavailable
from sam_pipeline.sql.imports.feed_changes import FeedChanges, FeedSnapshot, Window
from sam_pipeline.sql.imports.feed_import import apply_snapshot
from sam_pipeline.sql.imports.feed_rows import FeedRows
from sam_pipeline.sql.imports.gocdb import read_endpoints
from sam_pipeline.sql.imports.http.download import downloaded
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from sam_pipeline.sql.topology.view_rows import insert_rows, source_of
from tests.support import feed_server
from tests.support.database.dialects import only_on
from tests.support.database.gocdb_files import (
    document,
    endpoint_elements,
    endpoints_of,
    service_endpoint,
    write,
)
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, stored
from tests.support.database.sql_rows import service_endpoint as endpoint_row
from tests.support.database.with_schema import with_schema
from tests.support.feed_server import Fault, FeedServer, as_json, vo_feed

NOW = "2026-11-20T00:00:00Z"
WINDOW = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
CLASSES = ("serviceEndpoint", "siteGroup", "downtime")


def day(number: int) -> str:
    return f"2026-11-{number:02}T06:00:00Z"


@pytest.fixture
def importer(engine: Engine) -> Iterator[Engine]:
    """The database as the role for imports sees it."""
    with acting_as("topology", engine) as other:
        yield other


def feed_of(server: FeedServer, kind: str = "gocdb", path: str = "/gocdbpi") -> FeedConfig:
    files = {"ca_file": server.ca_file, "certificate_file": server.certificate_file}
    return FeedConfig(kind, f"{server.url}{path}", **files, timeout_s=60.0)


def import_feed(
    engine: Engine, feed: FeedConfig, state: Path, at: str, accept_shrinking: bool = False
) -> list[FeedChanges]:
    with downloaded(feed, WINDOW, state, {}) as download:
        source, rows = rows_of_feed(feed.kind, download.files)
        snapshot = FeedSnapshot(source, at, NOW, None, WINDOW, accept_shrinking)
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
    return {
        (row["hostName"], row.get("voName", ""), source_of(row))
        for row in stored(engine, "serviceEndpoint")
        if "validTo" not in row
    }


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


def page_without_meta(handler: object, reply: feed_server.Reply) -> None:
    body = document(*endpoint_elements([1])).encode()
    feed_server.send(handler, reply._replace(body=body))  # type: ignore[arg-type]


HALVES: Mapping[str, Sequence[Fault | None]] = {
    "a page that fails after others": [None, None, *[feed_server.status(500)] * 5],
    "the end of a page is missing": [None, feed_server.truncated_without_length],
    "a page is the page of an error": [None, None, None, feed_server.page_of_an_error],
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
    monkeypatch.setattr("sam_pipeline.sql.imports.http.client.FIRST_PAUSE_S", 0.01)
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
    """Each drops the host that all of them have; what shrinks must be accepted."""
    insert(engine, "serviceEndpoint", endpoint_row(hostName="shared"))

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

    feeds = {
        "gocdb": feed_of(server),
        "vofeed:atlas": feed_of(server, "vofeed", "/atlas.xml"),
        "vofeed:cms": feed_of(server, "vofeed", "/cms.xml"),
        "cric": feed_of(server, "cric", ""),
    }
    serve("shared", "own")
    for number, feed in enumerate(feeds.values(), 1):
        import_feed(importer, feed, tmp_path, day(number))
    everything = open_endpoints(engine)
    groups = [row for row in stored(engine, "siteGroup") if "validTo" not in row]
    serve("own")

    for number, (source, feed) in enumerate(feeds.items(), 10):
        for _ in range(2):  # the refused one is not taken for the last import
            with pytest.raises(BadInput, match=r"1 of 2 rows from .*--accept-shrinking"):
                import_feed(importer, feed, tmp_path, day(number))
        import_feed(importer, feed, tmp_path, day(number), accept_shrinking=True)
        gone = everything - open_endpoints(engine)
        assert gone == {("shared", source.partition(":")[2], source)}
        everything -= gone

    left = [row for row in stored(engine, "siteGroup") if "validTo" not in row]
    owners = {("own", source.partition(":")[2], source) for source in feeds}
    assert everything == {("shared", "", "message"), *owners}
    assert len(groups) - len(left) == 3  # of the two VOs and of CRIC


def test_imports_at_once_run_one_after_another_and_wait_for_loaders(
    engine: Engine, tmp_path: Path
) -> None:
    hosts = [f"h{number:04}.example.org" for number in range(2_000)]
    exports = FeedRows(read_endpoints([write(tmp_path / "x.xml", endpoints_of(hosts))]), {}, None)

    def run() -> tuple[int, int]:
        [changes] = apply_snapshot(engine, exports, FeedSnapshot("gocdb", day(1), NOW))
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
