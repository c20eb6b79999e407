"""A small world to archive: three closed days, with topology, groups, a downtime, an exclusion."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from pyarrow import parquet as pq
from sqlalchemy import Engine, text

from sam_pipeline.sql.archive.day import archive_day
from sam_pipeline.sql.archive.manifest import Manifest, newest, read_manifest, versions
from sam_pipeline.sql.archive.record import note_archived, number_changes
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.archive.verify import problems_of_files
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.fold import fold_all
from tests.support.builders import metric_result
from tests.support.database.sql_rows import Values, downtime, insert, service_endpoint, site_group

DAY = date(2026, 11, 20)
BEFORE, AFTER = DAY - timedelta(days=1), DAY + timedelta(days=1)
TIMES = ("00:00:00", "06:00:00", "12:00:00", "23:59:59")
HOSTS = ("ce02.example.org", "ce01.example.org", "se01.example.org")
EXCLUSION = """
INSERT INTO exclusion (
    kind, monitoring_host, metric_name, site, service_flavour, host_name, start_time, end_time,
    reason, who, added_at
)
VALUES ('monitoring-host', 'nagios.example.org', '', '', '', '', :start, :end, 'broken', 'me', :end)
"""


def fill(engine: Engine) -> None:
    """Load the three days."""
    of_grid_site = service_endpoint(hostName=HOSTS[0], gridSite="GRID")
    insert(engine, "serviceEndpoint", service_endpoint(), of_grid_site)
    insert(engine, "siteGroup", site_group())
    insert(engine, "downtime", downtime())
    start, end = (1_795_132_800 + 60 * n for n in (53, 54))
    if engine.dialect.name == "postgresql":
        start, end = (f"2026-11-20T00:{n:02}:00Z" for n in (53, 54))  # type: ignore[assignment]
    with writing(engine) as connection:
        connection.execute(text(EXCLUSION), {"start": start, "end": end})
    for day in (BEFORE, DAY, AFTER):
        load(engine, *results_of(day))


def load(engine: Engine, *results: Values) -> None:
    """Insert results, and mark their days as changed."""
    insert(engine, "metricOutput", *results)
    fold_all(engine)


def results_of(day: date) -> Iterator[Values]:
    """Twelve results of three instances, newest first; texts as they come from probes."""
    for number in reversed(range(4)):
        for host in HOSTS:
            yield {
                **metric_result(
                    hostName=host,
                    metricStatus=("OK", "CRITICAL", "WARNING", "UNKNOWN")[number],
                    timestamp=f"{day}T{TIMES[number]}Z",
                    detailsData=f'two\nlines, "quoted" \\N {host}' if number else None,
                    summaryData="été, \ttab" if number else None,
                    performanceData="time=10s;;; size=1MB" if number == 2 else None,
                ),
                "messageId": f"m-{day}-{number}",
                "publisher": "key:abc" if number else "login:me",
            }


def archive(engine: Engine, store: Store, day: date = DAY) -> Manifest:
    """Write a version of a day, as the command does."""
    manifest = archive_day(engine, store, day, number_changes(engine))
    note_archived(engine, manifest)
    return manifest


def rows_of(store: Store, manifest: Manifest, kind: str) -> list[dict[str, Any]]:
    """The rows of the files of a kind."""
    source = store.source()
    return [
        row
        for file in manifest.of_kind(kind)
        for row in pq.read_table(
            source.path(file.name), filesystem=source.filesystem(), partitioning=None
        ).to_pylist()
    ]


def newest_day(store: Store) -> Manifest:
    manifest = newest(store, DAY)
    assert manifest is not None
    return manifest


def is_intact(store: Store) -> bool:
    """Whether every version has all of its files."""
    return all(
        not list(problems_of_files(store, read_manifest(store, day, version)))
        for day, of_day in versions(store).items()
        for version in of_day
    )


def directory(tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    path.mkdir()
    return path
