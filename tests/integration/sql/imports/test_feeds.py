"""Feeds fetched over HTTPS, in either database, with the role for imports."""

from __future__ import annotations

import fcntl
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.sql.commands.imports.feed_command import rows_of_feed
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import (
    BadInput,
    DatabaseRefused,
    FeedUnavailable,
    ImportRunning,
    StateUnusable,
)
from sam_pipeline.sql.imports.feed_changes import FeedChanges, FeedSnapshot, Window
from sam_pipeline.sql.imports.feed_import import apply_snapshot
from sam_pipeline.sql.imports.http.download import downloaded
from sam_pipeline.sql.imports.http.feed_config import FeedConfig
from sam_pipeline.sql.topology.view_rows import source_of
from tests.support import feed_server
from tests.support.database.dialects import only_on
from tests.support.database.gocdb_files import (
    document,
    nested_downtime,
    service_endpoint,
    site,
    write,
)
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, stored
from tests.support.database.sql_rows import service_endpoint as endpoint_row
from tests.support.feed_server import Fault, FeedServer, as_json, serving, vo_feed

NOW = "2026-11-20T00:00:00Z"
WINDOW = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
START = 1_793_836_800  # 2026-11-05
CLASSES = ("serviceEndpoint", "siteGroup", "downtime")
METHODS = ("get_service_endpoint", "get_site", "get_downtime_nested_services")


def day(number: int) -> str:
    return f"2026-11-{number:02}T06:00:00Z"


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeedServer]:
    with serving(tmp_path_factory.mktemp("feed-server")) as server:
        yield server


@pytest.fixture
def server(shared_server: FeedServer) -> FeedServer:
    """With a GOCDB of 25 endpoints."""
    shared_server.elements = {
        "get_service_endpoint": endpoints(range(25)),
        "get_site": [site("EXAMPLE-LCG2")],
        "get_downtime_nested_services": [nested_downtime(("h1", "CE"), start=START, end=START + 1)],
    }
    shared_server.documents = {}
    shared_server.faults.clear()
    shared_server.requests.clear()
    shared_server.has_validators = True
    return shared_server


@pytest.fixture
def importer(engine: Engine) -> Iterator[Engine]:
    """The database as the role for imports sees it."""
    with acting_as("topology", engine) as other:
        yield other


def endpoints(numbers: Sequence[int] | range) -> list[str]:
    return [service_endpoint(host=f"h{number}.example.org") for number in numbers]


def feed_of(server: FeedServer, kind: str = "gocdb", path: str = "/gocdbpi") -> FeedConfig:
    return FeedConfig(
        kind,
        f"{server.url}{path}",
        ca_file=server.ca_file,
        certificate_file=server.certificate_file,
        timeout_s=60.0,
    )


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


def test_the_database_follows_the_pages_of_gocdb(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    feed = feed_of(server)
    first = counts(import_feed(importer, feed, tmp_path, day(1)))
    server.elements["get_service_endpoint"] = endpoints(range(2, 27))
    server.elements["get_downtime_nested_services"] = []
    second = counts(import_feed(importer, feed, tmp_path, day(2), accept_shrinking=True))

    scopes, ngis, downtimes = "siteGroup scope", "siteGroup NGI", "downtime"
    assert first["serviceEndpoint"] == (25, 0, 0, 0)
    assert (first[scopes], first[ngis], first[downtimes]) == (
        (2, 0, 0, 0),
        (1, 0, 0, 0),
        (1, 0, 0, 0),
    )
    assert second["serviceEndpoint"] == (2, 0, 2, 23)
    assert second[downtimes] == (0, 0, 1, 0)
    assert len(open_endpoints(engine)) == 25


def test_an_unchanged_feed_is_not_sent_and_changes_nothing(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    feed = feed_of(server)
    import_feed(importer, feed, tmp_path, day(1))
    before, documents = contents(engine), len(server.requests)

    import_feed(importer, feed, tmp_path, day(2))

    assert server.statuses() == [200] * documents + [304] * documents
    assert contents(engine) == before


def test_pages_that_have_changed_are_compared_with_the_others(
    importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    feed = feed_of(server)
    import_feed(importer, feed, tmp_path, day(1))
    server.requests.clear()
    server.elements["get_service_endpoint"][12:13] = [service_endpoint(host="new.example.org")]

    changed = counts(import_feed(importer, feed, tmp_path, day(2)))

    assert server.statuses() == [304, 200, 304, 304, 304]
    assert changed["serviceEndpoint"] == (1, 0, 1, 24)


def test_a_database_that_was_made_again_is_filled_from_what_is_unchanged(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    import_feed(importer, feed_of(server), tmp_path / "state", day(1))
    before = contents(engine)
    other = make_engine(f"sqlite:///{tmp_path / 'other.db'}", create=True)
    upgrade(other)

    import_feed(other, feed_of(server), tmp_path / "state", day(1))

    assert 304 in server.statuses()
    assert contents(other) == before
    other.dispose()


@pytest.mark.parametrize(
    "damage",
    [
        lambda current: (current / "endpoints-2.xml").write_text("<results/>"),
        lambda current: (current / "endpoints-2.xml").unlink(),
        lambda current: (current / "index.json").write_text("{"),
        lambda current: (current / "index.json").write_text('{"u": 1}'),
        lambda current: (current / "index.json").unlink(),
    ],
)
@only_on("sqlite")
def test_damaged_files_of_the_last_import_are_fetched_again(
    engine: Engine, server: FeedServer, tmp_path: Path, damage: object
) -> None:
    feed = feed_of(server)
    import_feed(engine, feed, tmp_path / "state", day(1))
    before = contents(engine)
    [current] = tmp_path.glob("state/import-gocdb-*/current")
    assert callable(damage)
    damage(current)

    import_feed(engine, feed, tmp_path / "state", day(2))

    assert contents(engine) == before


HALVES: Mapping[str, Sequence[Fault | None]] = {
    "a page that fails after others": [None, None, *[feed_server.status(500)] * 5],
    "the end of a page is missing": [None, feed_server.truncated_without_length],
    "a page is the page of an error": [None, None, None, feed_server.page_of_an_error],
    "a page without meta": [
        None,
        lambda handler, reply: feed_server.send(
            handler, reply._replace(body=document(*endpoints([1])).encode())
        ),
    ],
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
    server.elements["get_service_endpoint"] = endpoints(range(1, 26))
    server.faults.extend(faults)

    with pytest.raises((BadInput, FeedUnavailable)):
        import_feed(importer, feed, tmp_path, day(2))
    assert contents(engine) == before

    after = counts(import_feed(importer, feed, tmp_path, day(3)))
    assert after["serviceEndpoint"] == (1, 0, 1, 24)


def test_a_feed_that_shrinks_must_be_accepted(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    feed = feed_of(server)
    import_feed(importer, feed, tmp_path, day(1))
    before = contents(engine)
    server.elements["get_service_endpoint"] = endpoints(range(19))

    for number in (2, 3):  # the refused one is not taken for the last import
        with pytest.raises(BadInput, match=r"6 of 25 rows from GOCDB.*--accept-shrinking"):
            import_feed(importer, feed, tmp_path, day(number))
    assert contents(engine) == before

    accepted = import_feed(importer, feed, tmp_path, day(4), accept_shrinking=True)
    assert counts(accepted)["serviceEndpoint"] == (0, 0, 6, 19)


def test_feeds_of_several_owners_leave_each_others_rows_alone(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    """Each drops the host that all of them have."""
    insert(engine, "serviceEndpoint", endpoint_row(hostName="shared"))

    def serve(*hosts: str) -> None:
        server.elements["get_service_endpoint"] = [service_endpoint(host=host) for host in hosts]
        services = [(host, "CE") for host in hosts]
        for vo in ("atlas", "cms"):
            feed = vo_feed(vo, {"EXAMPLE-LCG2": services}, *hosts)
            server.documents[f"/{vo}.xml"] = (feed_server.XML, feed)
        cric = {
            host: {"rcsite": "EXAMPLE-LCG2", "flavour": "CE", "endpoint": host} for host in hosts
        }
        server.documents["/api/core/service/query/"] = as_json(cric)
        federations = {host: {"rcsites": ["EXAMPLE-LCG2"]} for host in hosts}
        server.documents["/api/core/federation/query/"] = as_json(federations)

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
        import_feed(importer, feed, tmp_path, day(number), accept_shrinking=True)
        gone = everything - open_endpoints(engine)
        vo = source.partition(":")[2]
        assert gone == {("shared", vo, source)}
        everything -= gone

    left = [row for row in stored(engine, "siteGroup") if "validTo" not in row]
    assert everything == {
        ("shared", "", "message"),
        ("own", "", "gocdb"),
        ("own", "atlas", "vofeed:atlas"),
        ("own", "cms", "vofeed:cms"),
        ("own", "", "cric"),
    }
    assert len(groups) - len(left) == 3  # of the two VOs and of CRIC


def test_random_histories_over_http_equal_those_of_files(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    """With failures in between, with and without validators."""
    dice = random.Random(23)
    other = make_engine(f"sqlite:///{tmp_path / 'files.db'}", create=True)
    upgrade(other)
    feed = feed_of(server)
    hosts = [f"h{number}" for number in range(30)]
    for number in range(1, 13):
        exports = {
            "get_service_endpoint": [
                service_endpoint(host=host, production=dice.choice("YYN"))
                for host in dice.sample(hosts, dice.randint(5, 30))
            ],
            "get_site": [
                site(name, dice.choice(["NGI_A", "NGI_B"]), dice.sample(["EGI", "tier2"], 1))
                for name in dice.sample(["A", "B", "C"], dice.randint(1, 3))
            ],
            "get_downtime_nested_services": [
                nested_downtime(
                    (host, "CE"), key=host, start=START + dice.randint(0, 3), end=START + 9
                )
                for host in dice.sample(hosts, dice.randint(0, 12))
            ],
        }
        server.elements = exports
        server.has_validators = dice.random() < 0.7
        server.faults.extend(dice.choices([None, feed_server.page_of_an_error], [8, 1], k=6))
        try:
            import_feed(importer, feed, tmp_path, day(number), accept_shrinking=True)
        except BadInput:
            server.faults.clear()
            import_feed(importer, feed, tmp_path, day(number), accept_shrinking=True)
        server.faults.clear()
        files = {
            name: [write(tmp_path / f"{method}.xml", document(*exports[method]))]
            for name, method in zip(("endpoints", "groups", "downtimes"), METHODS, strict=True)
        }
        source, rows = rows_of_feed("gocdb", files)
        apply_snapshot(other, rows, FeedSnapshot(source, day(number), NOW, None, WINDOW, True))

        assert contents(engine) == contents(other)
    other.dispose()


@only_on("sqlite")
def test_two_imports_of_a_feed_on_one_machine_do_not_mix(
    engine: Engine, server: FeedServer, tmp_path: Path
) -> None:
    feed = feed_of(server)
    import_feed(engine, feed, tmp_path / "state", day(1))
    [lock] = tmp_path.glob("state/import-gocdb-*/lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ImportRunning, match=r"another import of .* is running"):
            import_feed(engine, feed, tmp_path / "state", day(2))

    import_feed(engine, feed, tmp_path / "state", day(3))


@only_on("postgresql")
def test_two_imports_into_one_database_do_not_mix(
    engine: Engine, importer: Engine, server: FeedServer, tmp_path: Path
) -> None:
    url = importer.url.update_query_dict({"options": "-c lock_timeout=200ms"})
    hasty = make_engine(url.render_as_string(hide_password=False))
    with writing(engine) as connection:
        connection.exec_driver_sql("SELECT lock_import()")
        with pytest.raises(ImportRunning, match="another import is storing"):
            import_feed(hasty, feed_of(server), tmp_path, day(1))
    hasty.dispose()

    assert stored(engine, "serviceEndpoint") == []


@only_on("postgresql")
def test_the_role_for_imports_loads_nothing_else(engine: Engine, importer: Engine) -> None:
    with pytest.raises(DatabaseRefused, match="permission denied"), writing(importer) as connection:
        connection.exec_driver_sql("INSERT INTO metricOutput (hostName) VALUES ('h')")


@only_on("sqlite")
def test_a_feed_that_never_ends_ends(engine: Engine, server: FeedServer, tmp_path: Path) -> None:
    feed = FeedConfig(**{**vars(feed_of(server)), "timeout_s": 1.0})
    server.faults.append(feed_server.dribble)
    start = time.monotonic()

    with pytest.raises(FeedUnavailable, match=r"not complete after 1 s \(timeout_s\)"):
        import_feed(engine, feed, tmp_path, day(1))

    assert time.monotonic() - start < 10
    assert threading.active_count() < 50


@only_on("sqlite")
def test_a_state_directory_that_cannot_be_written_is_reported(
    engine: Engine, server: FeedServer, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file")

    with pytest.raises(StateUnusable, match="state"):
        import_feed(engine, feed_of(server), tmp_path / "state", day(1))
