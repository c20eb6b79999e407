"""Snapshots of GOCDB in either database; tests/unit/sql/imports has what they change."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
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
from tests.support.database import gocdb_files as gocdb
from tests.support.database.gocdb_files import document, endpoints_of, nested_downtime, site, write
from tests.support.database.sql_rows import insert, query, service_endpoint, stored

DAY1, DAY2, DAY3 = (f"2026-11-0{day}T06:00:00Z" for day in (1, 2, 3))
NOW = "2026-11-20T00:00:00Z"
START, END = 1_793_836_800, 1_793_923_200  # 2026-11-05 and 2026-11-06
NOVEMBER = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.xml"


def take(
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
    window = NOVEMBER if downtimes else None
    snapshot = FeedSnapshot("gocdb", at, NOW, window=window, accept_shrinking=accept_shrinking)
    return apply_snapshot(engine, exports, snapshot, dry_run=dry_run)


def test_a_snapshot_becomes_rows_of_the_class_views(engine: Engine, file: Path) -> None:
    """Texts are stored unchanged, so that a repeat changes nothing."""
    description = "two\nlines,\ta tab, Ž, \u202e and 'quotes'; --  \n"
    name = "A 'B' & <C>; select"
    url = "https://ce/?a=1&b=%20\\"
    endpoint = {"host": "CE01.Example.org", "site": name, "monitored": "N", "url": url}
    announced = gocdb.downtime("5001G0", START, END, site=name, description=description)
    documents = {
        "endpoints": document(gocdb.service_endpoint(**endpoint)),
        "groups": document(site(name, scopes=["EGI"])),
        "downtimes": document(announced),
    }
    take(engine, file, DAY1, **documents)

    again = take(engine, file, DAY2, **documents)

    assert [(change.unchanged, change.rows) for change in again] == [(1, ())] * 4
    source = {"siteName": name, "messageId": f"gocdb:{DAY1}"}
    place = {**source, "hostName": "ce01.example.org", "serviceFlavour": "CE"}
    flags = {"production": "Y", "monitored": "N", "serviceURI": url}
    assert stored(engine, "serviceEndpoint") == [{**place, **flags, "validFrom": DAY1}]
    member = {**source, "validFrom": DAY1}
    assert sorted(stored(engine, "siteGroup"), key=lambda row: row["groupType"]) == [
        {**member, "groupName": "NGI_SI", "groupType": "NGI"},
        {**member, "groupName": "EGI", "groupType": "scope"},
    ]
    [downtime] = stored(engine, "downtime")
    assert downtime.pop("description").split() == description.split()
    times = {"startTime": "2026-11-05T00:00:00Z", "endTime": "2026-11-06T00:00:00Z"}
    kind = {"downtimeId": "5001G0", "classification": "SCHEDULED", "severity": "OUTAGE"}
    assert downtime == {**place, **times, **kind, "timestamp": DAY1}


def test_the_topology_follows_the_snapshots_and_keeps_its_history_and_other_sources(
    engine: Engine, file: Path
) -> None:
    insert(engine, "serviceEndpoint", service_endpoint(hostName="other", messageId="m-1"))
    for day, hosts in ((DAY1, "ab"), (DAY2, "b"), (DAY3, "abc")):
        take(engine, file, day, endpoints=endpoints_of(hosts))
    statement = "SELECT host_name, valid_from, valid_to FROM report_topology ORDER BY 1"
    rows = query(engine, statement)

    valid = [
        "".join(host for host, start, end in rows if start <= time < (end or "9"))
        for time in ("2026-11-01T05:59:59Z", DAY1, DAY2, DAY3)
    ]

    assert valid == ["other", "abother", "bother", "abcother"]


def test_a_site_changes_its_ngi_and_a_downtime_moves_loses_a_service_and_is_cancelled(
    engine: Engine, file: Path
) -> None:
    services = [("ce01", "CE"), ("se01", "SRM")]
    downtimes = (
        nested_downtime(*services, start=START, end=END),
        nested_downtime(services[0], start=START + 3600, end=END),
        "",
    )
    counted = []
    for at, ngi, element in zip(
        (DAY1, DAY2, DAY3), ("NGI_A", "NGI_B", "NGI_B"), downtimes, strict=True
    ):
        take(engine, file, at, groups=document(site("A", ngi)), downtimes=document(element))
        counted.append(
            query(engine, "SELECT host_name, start_time FROM report_downtime ORDER BY 1")
        )

    start, later = "2026-11-05T00:00:00Z", "2026-11-05T01:00:00Z"
    assert counted == [[("ce01", start), ("se01", start)], [("ce01", later)], []]
    assert query(
        engine,
        "SELECT group_name, valid_from, valid_to FROM report_site_group"
        " WHERE group_name LIKE 'NGI%' ORDER BY 1",
    ) == [("NGI_A", DAY1, DAY2), ("NGI_B", DAY2, None)]


def test_nothing_is_written_by_a_dry_run_or_if_a_part_is_refused(
    engine: Engine, file: Path
) -> None:
    [changes] = take(engine, file, DAY1, endpoints=endpoints_of("ab"), dry_run=True)
    assert (changes.new, len(changes.rows)) == (2, 2)
    take(engine, file, DAY1, groups=document(site("A"), site("B")))

    with pytest.raises(BadInput, match="siteGroup NGI: 1 of 2"):
        take(
            engine,
            file,
            DAY2,
            endpoints=endpoints_of("ab"),
            groups=document(site("A")),
            accept_shrinking=False,
        )

    assert stored(engine, "serviceEndpoint") == []


def test_imports_at_once_run_one_after_another_and_wait_for_loaders(
    engine: Engine, file: Path
) -> None:
    hosts = [f"h{number:04}.example.org" for number in range(2_000)]
    exports = FeedRows(read_endpoints([write(file, endpoints_of(hosts))]), {}, None)

    def run() -> tuple[int, int]:
        [changes] = apply_snapshot(engine, exports, FeedSnapshot("gocdb", DAY1, NOW))
        return changes.new, changes.unchanged

    place = {"siteName": "A", "hostName": "a", "serviceFlavour": "CE", "validFrom": DAY2}
    with ThreadPoolExecutor(3) as pool:
        with writing(engine) as connection:
            insert_rows(connection, SERVICE_ENDPOINT, [place])
            counted = [pool.submit(run) for _ in range(3)]
            threading.Event().wait(0.3)
            assert not any(each.done() for each in counted)
        found = sorted(each.result() for each in counted)

    assert found == [(0, 2_000), (0, 2_000), (2_000, 0)]
