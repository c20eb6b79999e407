"""Snapshots of GOCDB in either database."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.records.classes import SERVICE_ENDPOINT
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import FeedChanges, FeedSnapshot, Window
from sam_pipeline.sql.imports.feed_import import apply_snapshot
from sam_pipeline.sql.imports.feed_rows import FeedRows
from sam_pipeline.sql.imports.gocdb import read_downtimes, read_endpoints, read_groups
from sam_pipeline.sql.topology.view_rows import insert_rows
from tests.support.database.gocdb_files import (
    document,
    downtime,
    endpoints_of,
    listed_site,
    nested_downtime,
    service_endpoint,
    site,
    write,
)
from tests.support.database.sql_rows import insert, query, stored
from tests.support.database.sql_rows import service_endpoint as endpoint_row

DAY1, DAY2, DAY3 = (f"2026-11-0{day}T06:00:00Z" for day in (1, 2, 3))
NOW = "2026-11-20T00:00:00Z"
START, END = 1_793_836_800, 1_793_923_200  # 2026-11-05 and 2026-11-06
NOVEMBER = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.xml"


def apply_documents(
    engine: Engine,
    file: Path,
    at: str,
    *,
    endpoints: str = "",
    groups: str = "",
    downtimes: str = "",
    accept_shrinking: bool = True,
    dry_run: bool = False,
) -> list[FeedChanges]:
    """Import the documents as the snapshot of the time `at`."""
    exports = FeedRows(
        read_endpoints([write(file, endpoints)]) if endpoints else None,
        read_groups([write(file, groups)]) if groups else {},
        read_downtimes([write(file, downtimes)]) if downtimes else None,
    )
    snapshot = FeedSnapshot(
        "gocdb", at, NOW, window=NOVEMBER if downtimes else None, accept_shrinking=accept_shrinking
    )
    return apply_snapshot(engine, exports, snapshot, dry_run=dry_run)


def hosts_valid(engine: Engine, *times: str) -> list[list[str]]:
    """The hosts in the topology at each of the times."""
    rows = query(engine, "SELECT host_name, valid_from, valid_to FROM report_topology ORDER BY 1")
    return [[host for host, start, end in rows if start <= time < (end or "9")] for time in times]


def test_a_snapshot_becomes_rows_of_the_class_views(engine: Engine, file: Path) -> None:
    apply_documents(
        engine,
        file,
        DAY1,
        endpoints=document(service_endpoint(host="CE01.Example.org", monitored="N", url="ce01:1")),
        groups=document(site(scopes=["EGI"])),
        downtimes=document(downtime(start=START, end=END, description='say "no"; --')),
    )

    source = {"messageId": f"gocdb:{DAY1}"}
    assert stored(engine, "serviceEndpoint") == [
        {
            "siteName": "EXAMPLE-LCG2",
            "hostName": "ce01.example.org",
            "serviceFlavour": "CE",
            "serviceURI": "ce01:1",
            "production": "Y",
            "monitored": "N",
            "validFrom": DAY1,
            **source,
        }
    ]
    member = {"siteName": "EXAMPLE-LCG2", "validFrom": DAY1, **source}
    assert sorted(stored(engine, "siteGroup"), key=lambda row: row["groupType"]) == [
        {**member, "groupName": "NGI_SI", "groupType": "NGI"},
        {**member, "groupName": "EGI", "groupType": "scope"},
    ]
    assert stored(engine, "downtime") == [
        {
            "downtimeId": "5001G0",
            "siteName": "EXAMPLE-LCG2",
            "hostName": "ce01.example.org",
            "serviceFlavour": "CE",
            "startTime": "2026-11-05T00:00:00Z",
            "endTime": "2026-11-06T00:00:00Z",
            "classification": "SCHEDULED",
            "severity": "OUTAGE",
            "description": 'say "no"; --',
            "timestamp": DAY1,
            **source,
        }
    ]


def test_the_topology_follows_the_snapshots_and_keeps_its_history(
    engine: Engine, file: Path
) -> None:
    for day, hosts in ((DAY1, "ab"), (DAY2, "b"), (DAY3, "abc")):
        for _ in range(2):
            changes = apply_documents(engine, file, day, endpoints=endpoints_of(hosts))
        assert changes[0].rows == ()

    before_and_after = hosts_valid(engine, "2026-11-01T05:59:59Z", DAY1, DAY2, DAY3)

    assert before_and_after == [[], ["a", "b"], ["b"], ["a", "b", "c"]]


def test_a_changed_flag_begins_a_new_row(engine: Engine, file: Path) -> None:
    apply_documents(engine, file, DAY1, endpoints=document(service_endpoint()))
    [changes] = apply_documents(
        engine, file, DAY2, endpoints=document(service_endpoint(production="N"))
    )

    rows = query(
        engine, "SELECT production, valid_from, valid_to FROM report_topology ORDER BY valid_from"
    )

    assert (changes.changed, changes.new, changes.ended) == (1, 0, 0)
    assert rows == [("Y", DAY1, DAY2), ("N", DAY2, None)]


def test_a_site_that_changes_its_ngi_keeps_scopes_missing_from_the_export(
    engine: Engine, file: Path
) -> None:
    apply_documents(engine, file, DAY1, groups=document(site("A", "NGI_SI", ["EGI"])))
    apply_documents(engine, file, DAY2, groups=document(listed_site("A", "NGI_CH")))

    rows = query(
        engine, "SELECT group_name, valid_from, valid_to FROM report_site_group ORDER BY 1"
    )

    assert rows == [("EGI", DAY1, None), ("NGI_CH", DAY2, None), ("NGI_SI", DAY1, DAY2)]


def test_a_downtime_is_moved_loses_a_service_and_is_cancelled(engine: Engine, file: Path) -> None:
    services = [("ce01", "CE"), ("se01", "SRM")]
    steps: Sequence[tuple[str, str]] = (
        (DAY1, nested_downtime(*services, start=START, end=END)),
        (DAY2, nested_downtime(services[0], start=START + 3600, end=END)),
        (DAY3, ""),
    )
    downtimes_after = []
    for at, element in steps:
        apply_documents(engine, file, at, downtimes=document(element))
        downtimes_after.append(
            query(engine, "SELECT host_name, start_time FROM report_downtime ORDER BY 1")
        )

    start, later = "2026-11-05T00:00:00Z", "2026-11-05T01:00:00Z"
    assert downtimes_after == [[("ce01", start), ("se01", start)], [("ce01", later)], []]
    assert {row["timestamp"] for row in stored(engine, "downtime")} == {DAY2, DAY3}


def test_a_current_downtime_ends_with_the_snapshot_and_a_past_one_stays(
    engine: Engine, file: Path
) -> None:
    running, past = START - 7 * 86_400, START - 5 * 86_400
    elements = [
        downtime("1G0", running, END),
        downtime("2G0", running, past),
        downtime("3G0", START, END),
    ]
    apply_documents(engine, file, "2026-10-30T00:00:00Z", downtimes=document(*elements))

    [changes] = apply_documents(engine, file, DAY2, downtimes=document(elements[2]))

    ends = query(engine, "SELECT downtime_id, end_time FROM report_downtime ORDER BY 1")
    assert (changes.ended, changes.unchanged) == (1, 1)
    assert ends == [
        ("1G0", DAY2),
        ("2G0", "2026-10-31T00:00:00Z"),
        ("3G0", "2026-11-06T00:00:00Z"),
    ]


def test_topology_of_other_sources_is_unchanged(engine: Engine, file: Path) -> None:
    insert(engine, "serviceEndpoint", endpoint_row(hostName="other.org", messageId="m-1"))
    apply_documents(engine, file, DAY2, endpoints=endpoints_of("ab"))
    apply_documents(engine, file, DAY3, endpoints=endpoints_of("a"))

    assert hosts_valid(engine, DAY1, DAY3) == [["other.org"], ["a", "other.org"]]


def test_nothing_is_written_if_a_part_is_refused(engine: Engine, file: Path) -> None:
    apply_documents(engine, file, DAY1, groups=document(site("A"), site("B")))

    with pytest.raises(BadInput, match="siteGroup NGI: 1 of 2"):
        apply_documents(
            engine,
            file,
            DAY2,
            endpoints=endpoints_of("ab"),
            groups=document(site("A")),
            accept_shrinking=False,
        )

    assert stored(engine, "serviceEndpoint") == []


def test_texts_are_stored_unchanged_so_that_a_repeat_changes_nothing(
    engine: Engine, file: Path
) -> None:
    description = "two\nlines,\ta tab, Ž, \u202e and 'quotes';  \n"
    downtimes = document(downtime(description=description, site="A 'B' & <C>; select"))
    endpoints = document(service_endpoint(url="https://ce/?a=1&b=%20\\", site="A 'B' & <C>"))
    apply_documents(engine, file, DAY1, downtimes=downtimes, endpoints=endpoints)

    changes = apply_documents(engine, file, DAY2, downtimes=downtimes, endpoints=endpoints)

    assert [(change.unchanged, change.rows) for change in changes] == [(1, ()), (1, ())]


def test_a_dry_run_writes_nothing(engine: Engine, file: Path) -> None:
    [changes] = apply_documents(engine, file, DAY1, endpoints=endpoints_of("ab"), dry_run=True)

    assert (changes.new, len(changes.rows)) == (2, 2)
    assert stored(engine, "serviceEndpoint") == []


def test_concurrent_imports_run_one_after_another(engine: Engine, file: Path) -> None:
    exports = FeedRows(read_endpoints([write(file, endpoints_of("abc"))]), {}, None)
    counted: list[tuple[int, int]] = []

    def run() -> None:
        [changes] = apply_snapshot(engine, exports, FeedSnapshot("gocdb", DAY1, NOW))
        counted.append((changes.new, changes.unchanged))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(counted) == [(0, 3), (0, 3), (0, 3), (3, 0)]


def test_an_import_waits_for_a_loader_that_creates_names(engine: Engine, file: Path) -> None:
    exports = FeedRows(read_endpoints([write(file, endpoints_of("abc"))]), {}, None)
    changes: list[FeedChanges] = []
    thread = threading.Thread(
        target=lambda: changes.extend(
            apply_snapshot(engine, exports, FeedSnapshot("gocdb", DAY1, NOW))
        )
    )
    with writing(engine) as connection:
        insert_rows(
            connection,
            SERVICE_ENDPOINT,
            [{"siteName": "A", "hostName": "a", "serviceFlavour": "CE", "validFrom": DAY2}],
        )
        thread.start()
        thread.join(timeout=1)
        assert thread.is_alive()
    thread.join()

    assert [change.new for change in changes] == [3]


def test_thousands_of_endpoints_are_one_import(engine: Engine, file: Path) -> None:
    hosts = [f"h{number:05}.example.org" for number in range(5_000)]

    [first] = apply_documents(engine, file, DAY1, endpoints=endpoints_of(hosts))
    [second] = apply_documents(
        engine, file, DAY2, endpoints=endpoints_of(hosts[500:]), accept_shrinking=False
    )

    assert (first.new, second.ended, second.unchanged) == (5_000, 500, 4_500)
    still_valid = query(engine, "SELECT count(*) FROM report_topology WHERE valid_to IS NULL")
    assert still_valid == [(4_500,)]
