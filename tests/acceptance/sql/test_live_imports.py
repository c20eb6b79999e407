"""Live imports by the installed command: several feeds, failures, kills."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    CANNOT_CREATE,
    NO_PERMISSION,
    OK,
    TRY_LATER,
    UNAVAILABLE,
)
from tests.support import feed_server
from tests.support.commands import Answer, Workplace, embedded
from tests.support.database.gocdb_files import nested_downtime, service_endpoint, site
from tests.support.feed_server import XML, Fault, FeedServer, as_json, serving, vo_feed

HOSTS = 35


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FeedServer]:
    with serving(tmp_path) as server:
        now = int(time.time())
        server.elements = {
            "get_service_endpoint": [
                service_endpoint(host=f"h{number}.example.org") for number in range(HOSTS)
            ],
            "get_site": [site()],
            "get_downtime_nested_services": [
                nested_downtime(("h1.example.org", "CE"), start=now, end=now + 86_400)
            ],
        }
        server.documents = {"/vo.xml": (XML, vo_feed("atlas", {"A": [("h1", "CE")]}, "T2"))}
        server.documents["/api/core/service/query/"] = as_json({})
        server.documents["/api/core/federation/query/"] = as_json({"F": {"rcsites": ["A"]}})
        yield server


@pytest.fixture
def workplace(tmp_path: Path, server: FeedServer) -> Workplace:
    workplace = embedded(tmp_path)
    describe_feeds(workplace, server)
    return workplace


def describe_feeds(workplace: Workplace, server: FeedServer, more: str = "") -> None:
    """Write them all to sam.toml; `more` are further keys of each."""
    urls = {"gocdb": server.gocdb, "vofeed": f"{server.url}/vo.xml", "cric": server.url}
    files = f'ca_file = "{server.ca_file}"\ncertificate_file = "{server.certificate_file}"\n'
    tables = (
        f'[[import.feed]]\nkind = "{kind}"\nurl = "{url}"\n{files}{more}'
        for kind, url in urls.items()
    )
    path = workplace.directory / "sam.toml"
    workplace.write("sam.toml", path.read_text().partition("[[import")[0] + "".join(tables))


def import_gocdb(workplace: Workplace, server: FeedServer, *options: str) -> Answer:
    return workplace.run("sam-db", "import", "gocdb", "--url", server.gocdb, *options)


def rows(workplace: Workplace) -> Mapping[str, list[Any]]:
    """The numbers of rows by kind that an import would change, end or leave."""
    kinds = workplace.succeed("sam-db", "import", "feeds", "--dry-run", "--json").json
    names = ("new", "changed", "ended", "unchanged")
    return {
        f"{feed['kind']} {kind['kind']}": [kind[name] for name in names]
        for feed in kinds
        for kind in feed["kinds"]
    }


def test_all_feeds_are_imported_and_then_unchanged(
    workplace: Workplace, server: FeedServer
) -> None:
    first = workplace.succeed("sam-db", "import", "feeds")

    assert f"{server.gocdb}: 6 documents" in first.out
    assert rows(workplace) == {
        "gocdb serviceEndpoint": [0, 0, 0, HOSTS],
        "gocdb siteGroup NGI": [0, 0, 0, 1],
        "gocdb siteGroup scope": [0, 0, 0, 2],
        "gocdb downtime": [0, 0, 0, 1],
        "vofeed serviceEndpoint": [0, 0, 0, 1],
        "vofeed siteGroup": [0, 0, 0, 1],
        "cric serviceEndpoint": [0, 0, 0, 0],
        "cric siteGroup federation": [0, 0, 0, 1],
    }
    half = len(server.requests) // 2
    assert server.statuses() == [200] * half + [304] * half


def test_a_feed_that_fails_does_not_stop_the_others(
    workplace: Workplace, server: FeedServer
) -> None:
    server.faults.append(feed_server.page_of_an_error)

    done = workplace.run("sam-db", "import", "feeds", "--json")

    assert done.code == BAD_DATA
    failed, vo_feed, cric = done.json
    assert "instead of application/xml" in failed["error"]
    assert "instead of application/xml" in done.err
    assert [kind["new"] for feed in (vo_feed, cric) for kind in feed["kinds"]] == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (feed_server.truncated_without_length, BAD_DATA),
        (feed_server.status(403), NO_PERMISSION),
        (feed_server.dribble, UNAVAILABLE),
    ],
    ids=["truncated", "forbidden", "dribbling"],
)
def test_each_failure_has_its_exit_code_and_changes_nothing(
    workplace: Workplace, server: FeedServer, fault: Fault, code: int
) -> None:
    describe_feeds(workplace, server, "timeout_s = 3\n")
    server.faults.extend([None, fault])

    done = import_gocdb(workplace, server)

    assert done.code == code, str(done)
    assert "Traceback" not in done.err
    assert import_gocdb(workplace, server, "--dry-run", "--json").json["kinds"][0]["new"] == HOSTS


def test_a_state_directory_that_cannot_be_made_is_reported(
    workplace: Workplace, server: FeedServer
) -> None:
    workplace.write("state", "a file")

    assert import_gocdb(workplace, server).code == CANNOT_CREATE


def test_an_import_killed_at_any_moment_is_repeated_as_if_it_had_not_begun(
    workplace: Workplace, server: FeedServer
) -> None:
    dice = random.Random(9)
    command = ("sam-db", "import", "gocdb", "--url", server.gocdb)
    start = time.monotonic()
    assert import_gocdb(workplace, server, "--dry-run").code == OK
    usual_s = time.monotonic() - start
    for _ in range(4):
        with workplace.running(*command) as process:
            time.sleep(dice.uniform(0.3, 1) * usual_s)
            process.send_signal(signal.SIGKILL)
    time.sleep(1.01)  # until the second after the snapshot of the last one

    assert import_gocdb(workplace, server).code == OK

    # The last import is complete, and the lock of a killed process is free.
    [gocdb, *_] = workplace.succeed("sam-db", "import", "feeds", "--dry-run", "--json").json
    changes = [kind[name] for kind in gocdb["kinds"] for name in ("new", "changed", "ended")]
    assert set(changes) == {0}
    assert gocdb["kinds"][0]["unchanged"] == HOSTS


def test_a_second_import_of_a_feed_does_not_wait(workplace: Workplace, server: FeedServer) -> None:
    server.faults.append(feed_server.dribble)
    command = ("sam-db", "import", "gocdb", "--url", server.gocdb)
    with workplace.running(*command):
        while not server.requests:
            time.sleep(0.05)

        second = workplace.run(*command)

    assert second.code == TRY_LATER
    assert "another import of" in second.err


def test_with_a_database_on_a_server_the_role_for_imports_is_enough(
    tmp_path: Path, server: FeedServer, postgres_url: str
) -> None:
    """Commands of imports run with a login of this role alone."""
    workplace = Workplace(tmp_path, f"spool://{tmp_path}/spool", postgres_url)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    describe_feeds(workplace, server)

    workplace.succeed("sam-db", "import", "feeds")

    assert workplace.succeed("sam-db", "check")
    assert rows(workplace)["gocdb serviceEndpoint"] == [0, 0, 0, HOSTS]
