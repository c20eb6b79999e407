"""`sam-db` imports history and live feeds, prunes, and makes partitions; also killed."""

from __future__ import annotations

import gzip
import os
import random
import re
import shlex
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
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
from sam_pipeline.schema.records.text import write_wlcg
from tests.support import feed_server
from tests.support.builders import metric_result
from tests.support.commands import Answer, Workplace
from tests.support.database.gocdb_files import endpoint_elements, nested_downtime, site
from tests.support.feed_samples import (
    CRIC_DOWNTIME,
    osg_downtime,
    osg_downtimes,
    osg_group,
    osg_resource,
    osg_service,
    osg_summary,
)
from tests.support.feed_server import XML, Fault, FeedServer, as_json, serving, vo_feed
from tests.support.reports.stored import query
from tests.support.waiting import eventually

RECORDS = 12_000
BAD = {number for number in range(RECORDS) if number % 500 == 7}
KILLS = 3
HOSTS = 35


def record(number: int) -> str:
    return write_wlcg(
        metric_result(
            hostName=f"ce{number % 100}.example.org",
            timestamp=f"2011-03-{number // 1000 + 1:02}T{number // 100 % 10:02}:00:00Z",
            metricStatus="SPLENDID" if number in BAD else "OK",
            summaryData=f"number {number}",
        )
    )


def test_killed_imports_resume_and_store_every_record_once(workplace: Workplace) -> None:
    half = RECORDS // 2
    workplace.write("old.txt", "".join(map(record, range(half))))
    packed = gzip.compress("".join(map(record, range(half, RECORDS))).encode())
    (workplace.directory / "new.txt.gz").write_bytes(packed)
    command = ("sam-db", "import", "records", "old.txt", "new.txt.gz", "--json")

    def stored() -> int:
        tables = ("metricOutput", "dead_letter")
        counted = (f"SELECT count(*) AS n FROM {table}" for table in tables)
        return sum(query(workplace.database, statement)[0]["n"] for statement in counted)

    dice, survived = random.Random(5), 0
    for number in range(KILLS):
        enough = RECORDS * (number + dice.random()) / (KILLS + 2)
        with workplace.running(*command) as process:
            eventually(lambda enough=enough: stored() > enough)
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        survived = stored()
    last = workplace.run(*command)

    assert last.code == BAD_DATA, str(last)
    facts = last.json
    taken = facts["rows"] + facts["duplicates"]  # the last batch may have been repeated
    assert (facts["records"], taken, facts["refused"]) == (RECORDS, RECORDS - len(BAD), len(BAD))
    assert facts["resumed"] >= survived - 1000
    good = query(workplace.database, "SELECT summaryData AS text FROM metricOutput")
    bad = query(workplace.database, "SELECT body FROM dead_letter")
    rows = sorted(int(row["text"].removeprefix("number ")) for row in good)
    dead = sorted(
        int(bytes(row["body"]).decode().split("summaryData: number ")[1].split("\n")[0])
        for row in bad
    )
    assert (rows, dead) == (sorted(set(range(RECORDS)) - BAD), sorted(BAD))


# Live feeds


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FeedServer]:
    with serving(tmp_path) as server:
        now = int(time.time())
        server.elements = {
            "get_service_endpoint": endpoint_elements(range(HOSTS)),
            "get_site": [site()],
            "get_downtime_nested_services": [
                nested_downtime(("h1.example.org", "CE"), start=now, end=now + 86_400)
            ],
        }
        server.documents = {"/vo.xml": (XML, vo_feed("atlas", {"A": [("h1", "CE")]}, "T2"))}
        server.documents["/api/core/service/query/"] = as_json({})
        server.documents["/api/core/federation/query/"] = as_json({"F": {"rcsites": ["A"]}})
        server.documents["/api/core/downtime/query/"] = as_json({"4711": CRIC_DOWNTIME})
        group = osg_group("EXAMPLE_T2", osg_resource("ce.example.edu", osg_service("CE")))
        server.documents["/rgsummary/xml"] = (XML, osg_summary(group))
        server.documents["/rgdowntime/xml"] = (XML, osg_downtimes(osg_downtime()))
        yield server


@pytest.fixture
def feeds(workplace: Workplace, server: FeedServer) -> Workplace:
    """All feeds of the server are those of sam.toml."""
    urls = {"gocdb": server.gocdb, "vofeed": f"{server.url}/vo.xml"}
    urls |= {"cric": server.url, "osg": server.url}
    files = f'ca_file = "{server.ca_file}"\ncertificate_file = "{server.certificate_file}"\n'
    tables = (
        f'[[import.feed]]\nkind = "{kind}"\nurl = "{url}"\ntimeout = "60s"\n{files}'
        for kind, url in urls.items()
    )
    text = (workplace.directory / "sam.toml").read_text()
    workplace.write("sam.toml", text + "".join(tables))
    return workplace


def import_gocdb(feeds: Workplace, server: FeedServer, *options: str) -> Answer:
    return feeds.run("sam-db", "import", "gocdb", "--url", server.gocdb, *options)


def rows(feeds: Workplace) -> Mapping[str, list[Any]]:
    """The numbers of rows by kind that an import would add, change, end or leave."""
    kinds = feeds.succeed("sam-db", "import", "feeds", "--dry-run", "--json").json
    names = ("new", "changed", "ended", "unchanged")
    return {
        f"{feed['kind']} {kind['kind']}": [kind[name] for name in names]
        for feed in kinds
        for kind in feed["kinds"]
    }


def test_all_feeds_are_imported_and_then_unchanged(feeds: Workplace, server: FeedServer) -> None:
    """By a login that has only the role for imports."""
    first = feeds.succeed("sam-db", "import", "feeds")

    assert f"{server.gocdb}: 6 documents" in first.out
    assert rows(feeds) == {
        "gocdb serviceEndpoint": [0, 0, 0, HOSTS],
        "gocdb siteGroup NGI": [0, 0, 0, 1],
        "gocdb siteGroup scope": [0, 0, 0, 2],
        "gocdb siteContact": [0, 0, 0, 0],
        "gocdb downtime": [0, 0, 0, 1],
        "vofeed serviceEndpoint": [0, 0, 0, 1],
        "vofeed siteGroup": [0, 0, 0, 1],
        "vofeed siteContact": [0, 0, 0, 0],
        "cric serviceEndpoint": [0, 0, 0, 0],
        "cric siteGroup federation": [0, 0, 0, 1],
        "cric downtime": [0, 0, 0, 2],
        "osg serviceEndpoint": [0, 0, 0, 1],
        "osg siteGroup OSG_Facility": [0, 0, 0, 1],
        "osg siteGroup OSG_Site": [0, 0, 0, 1],
        "osg siteContact": [0, 0, 0, 0],
        "osg downtime": [0, 0, 0, 2],
    }
    half = len(server.requests) // 2
    assert server.statuses() == [200] * half + [304] * half


on_sqlite = pytest.mark.parametrize("workplace", ["sqlite"], indirect=True)


@on_sqlite
def test_a_feed_that_fails_does_not_stop_the_others_and_the_first_decides_the_exit_code(
    feeds: Workplace, server: FeedServer
) -> None:
    del server.documents["/api/core/federation/query/"]
    server.faults.append(feed_server.page_of_an_error)

    done = feeds.run("sam-db", "import", "feeds", "--json")

    failed, vo_feed, cric, _ = done.json
    assert done.code == BAD_DATA
    assert "instead of application/xml" in failed["error"]
    assert "instead of application/xml" in done.err
    assert "answered 404" in cric["error"]
    assert [kind["new"] for kind in vo_feed["kinds"]] == [1, 1, 0]


@on_sqlite
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
    feeds: Workplace, server: FeedServer, fault: Fault, code: int
) -> None:
    text = (feeds.directory / "sam.toml").read_text()
    feeds.write("sam.toml", text.replace('timeout = "60s"', 'timeout = "2s"'))
    server.faults.extend([None, fault])

    done = import_gocdb(feeds, server)

    assert (done.code, "Traceback" in done.err) == (code, False)
    assert import_gocdb(feeds, server, "--dry-run", "--json").json["kinds"][0]["new"] == HOSTS
    (feeds.directory / "state").rename(feeds.directory / "other")
    feeds.write("state", "a file")
    assert import_gocdb(feeds, server).code == CANNOT_CREATE


@on_sqlite
def test_an_import_killed_at_any_moment_is_repeated_and_a_second_one_does_not_wait(
    feeds: Workplace, server: FeedServer
) -> None:
    command = ("sam-db", "import", "gocdb", "--url", server.gocdb)
    for page in range(4):  # killed while it waits for the rest of this page
        server.faults.extend([*[None] * page, feed_server.dribble])
        server.requests.clear()
        with feeds.running(*command):
            eventually(lambda page=page: len(server.requests) > page)
            second = feeds.run(*command)
            assert (second.code, "another import of" in second.err) == (TRY_LATER, True)
    assert query(feeds.database, "SELECT * FROM serviceEndpoint") == []

    assert import_gocdb(feeds, server).code == OK

    # The last import is complete, and the lock of a killed process is free.
    gocdb = {kind: changes for kind, changes in rows(feeds).items() if kind.startswith("gocdb")}
    assert all(changes[:3] == [0, 0, 0] for changes in gocdb.values())
    assert gocdb["gocdb serviceEndpoint"][3] == HOSTS


# Prunes and partitions ----------------------------------------------------------------------------

SERVICE = Path(__file__).parents[3] / "deploy/systemd/database/sam-db-prune.service"


def day(age: int) -> date:
    return datetime.now(UTC).date() - timedelta(days=age)


def load(workplace: Workplace, *ages: int) -> None:
    """Publish and consume two results of each host on each day."""
    records = [
        f"hostName: ce{host:05}.example.org\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
        f"metricStatus: OK\ntimestamp: {day(age)}T00:00:{second:02}Z\ndetailsData: {second}\nEOT\n"
        for age in ages
        for second in (0, 1)
        for host in range(HOSTS)
    ]
    workplace.succeed("sam-publish", "send", workplace.write("records.txt", "".join(records)))
    workplace.succeed("sam-consume", "run", "--drain")


def stored(workplace: Workplace, condition: str = "") -> dict[date, int]:
    """The number of results of each day."""
    rows = query(workplace.database, f"SELECT timestamp FROM metricOutput {condition}")
    return dict(Counter(date.fromisoformat(str(row["timestamp"])[:10]) for row in rows))


def test_results_and_details_are_removed_at_their_age_and_counted(workplace: Workplace) -> None:
    load(workplace, 0, 1, 2, 3, 500)
    [command] = re.findall(r"^ExecStart=(.*)$", SERVICE.read_text(), re.MULTILINE)
    program, config, file, *options = shlex.split(command)
    assert (Path(program).name, config, file) == ("sam-db", "--config", "/etc/sam/sam.toml")
    workplace.succeed("sam-db", "--config", workplace.directory / "sam.toml", *options)
    assert set(stored(workplace)) == {day(age) for age in range(4)}
    ages = ("--keep-results", "2d", "--keep-details", "1d")

    workplace.succeed("sam-db", "prune", *ages)

    assert stored(workplace) == {
        **{day(age): 2 * HOSTS for age in range(3)},
        day(3): HOSTS,
    }
    assert set(stored(workplace, "WHERE detailsData IS NOT NULL")) == {day(0), day(1)}
    again = workplace.succeed("sam-db", "prune", *ages, "--dry-run", "--json").json
    assert (again["dry_run"], again["results"]["before"]) == (True, str(day(2)))
    assert (again["left"], again["not_dropped"]) == ([], [])


@pytest.mark.parametrize("workplace", ["postgresql"], indirect=True)
def test_partitions_of_the_coming_days_are_created(workplace: Workplace) -> None:
    load(workplace, 1)

    first = workplace.succeed("sam-db", "partition", "create", "--ahead", "2d", "--json").json
    second = workplace.succeed("sam-db", "partition", "create", "--ahead", "2d", "--json").json
    table = workplace.succeed("sam-db", "partition", "list").out

    names = [
        [f"metric_result{kind}_{day(age):%Y%m%d}" for kind in ("", "_detail")]
        for age in (1, 0, -1, -2)
    ]
    # The consumer has created those of today and tomorrow, the last day that it would load.
    assert [row["partition"] for row in first] == names[-1]
    assert second == []
    assert [line.split()[0] for line in table.splitlines()[2:]] == [
        name for of_day in names for name in of_day
    ]
