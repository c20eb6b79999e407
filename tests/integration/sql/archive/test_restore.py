"""Restoring a day, pruning only what the archive holds, and the list of days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine, text

from sam_pipeline.schema.program.command import NO_PERMISSION, OK, UNAVAILABLE
from sam_pipeline.sql.archive.restore import restore_day
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.database.engine import writing
from tests.services.postgres import as_role
from tests.support.database.archived import BEFORE, DAY, archive, load, results_of
from tests.support.database.dialects import only_on
from tests.support.database.old_results import horizon, prune_now
from tests.support.database.sam_db import SamDb
from tests.support.database.sql_rows import downtime, insert, query

STORED = {
    "metricOutput": "hostName, metricStatus, timestamp, gatheredAt, summaryData, performanceData,"
    " detailsData, siteName, voName, messageId, publisher",
    "serviceEndpoint": "siteName, hostName, serviceFlavour, validFrom, validTo, messageId",
    "siteGroup": "siteName, groupName, weight, validFrom, messageId",
    "downtime": "downtimeId, startTime, endTime, description, messageId",
    "contested_record": "message_class, record",
}
LATE = {**next(results_of(DAY)), "timestamp": f"{DAY}T01:00:00Z", "messageId": "late"}


def stored(engine: Engine) -> Mapping[str, list[Any]]:
    """What the database has, without the ids and times that it gave to the rows."""
    return {
        view: sorted(query(engine, f"SELECT {columns} FROM {view}"), key=str)
        for view, columns in STORED.items()
    }


def test_a_pruned_day_is_restored_as_it_was_and_a_repeat_changes_nothing(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    manifest = archive(engine, local)
    before = stored(engine)
    needless = restore_day(engine, local, manifest)
    assert (stored(engine), set(needless.rows.values())) == (before, {0})
    assert needless.duplicates["metricOutput"] == 12
    prune_now(engine, results=-1)
    assert len(stored(engine)["metricOutput"]) == 15

    first = restore_day(engine, local, manifest)
    after = stored(engine)
    second = restore_day(engine, local, manifest)

    # The newest result of each instance was not pruned, only its details were.
    pruned = [
        row
        for row in before["metricOutput"]
        if str(DAY) in str(row) and "m-2026-11-20-3" not in row
    ]
    assert len(pruned) == 9
    assert [row for row in after["metricOutput"] if row in pruned] == pruned
    assert len(after["metricOutput"]) == 12 + 12
    assert first.rows["metricOutput"] >= 9
    assert second.rows["metricOutput"] == 0
    assert stored(engine) == after


def test_topology_and_downtimes_that_are_missing_are_restored_but_not_what_was_cancelled(
    engine: Engine, local: LocalStore, sam_db: SamDb
) -> None:
    manifest = archive(engine, local)
    with writing(engine) as connection:
        for table in ("announced_downtime", "endpoint_membership", "site_group_member"):
            connection.execute(text(f"DELETE FROM {table}"))

    restored = restore_day(engine, local, manifest)

    assert restored.rows == {"serviceEndpoint": 2, "siteGroup": 1, "downtime": 1, "metricOutput": 0}
    assert query(engine, "SELECT groupName, weight FROM siteGroup") == [("North", 3)]
    start = "2026-11-20T08:00:00Z"
    assert query(engine, "SELECT downtimeId, startTime FROM downtime") == [("D1", start)]
    insert(engine, "downtime", downtime(endTime=start, timestamp="2026-11-24T00:00:00Z"))
    restore_day(engine, local, manifest)
    assert query(engine, "SELECT downtime_id FROM report_downtime") == []


def test_prune_keeps_days_that_are_not_archived_or_not_verified(
    engine: Engine, sam_db: SamDb
) -> None:
    age = (datetime.now(UTC).date() - DAY).days - 1  # the day is the last one to prune
    prune = ("prune", "--keep-results", f"{age}d", "--keep-details", f"{age}d")

    def kept_back() -> list[tuple[str, str]]:
        document = sam_db.document(*prune)
        return [(each["day"], each["reason"]) for each in document["kept_back"]]

    assert kept_back() == [(str(day), "is not in the archive") for day in (BEFORE, DAY)]
    assert horizon(engine) == BEFORE
    details = "SELECT count(*) FROM metricOutput WHERE detailsData IS NOT NULL"
    assert query(engine, details) == [(27,)]
    sam_db.document("archive", "--from", str(BEFORE), "--to", str(DAY))
    unverified = "version 1 was not verified, or found to be damaged"
    assert kept_back() == [(str(BEFORE), unverified), (str(DAY), unverified)]
    sam_db.document("archive", "--verify")
    load(engine, LATE)
    listed = sam_db.document("archive", "--list")
    facts = [(row["day"], row["versions"], row["state"]) for row in listed]
    assert facts == [(str(BEFORE), [1], "current"), (str(DAY), [1], "changed")]
    assert "2026-11-20  v1            12" in sam_db("archive", "--list").out
    assert kept_back() == [(str(DAY), "has changed since version 1")]
    assert horizon(engine) == DAY
    assert len(stored(engine)["metricOutput"]) == 3 + 13 + 12
    sam_db.document("archive", "--day", str(DAY))
    assert kept_back() == [(str(DAY), "version 2 was not verified, or found to be damaged")]
    sam_db.document("archive", "--verify")
    assert kept_back() == []
    assert horizon(engine) == DAY + timedelta(days=1)
    assert len(stored(engine)["metricOutput"]) == 3 + 12
    assert sam_db.document("archive", "--list")[0]["state"] == "pruned"


def test_prune_does_nothing_while_the_archive_is_away(engine: Engine, sam_db: SamDb) -> None:
    before = stored(engine)

    away = replace(sam_db, environment={"SAM_ARCHIVE_URL": "/nowhere"})
    assert away("prune", "--keep-results", "1d").code == UNAVAILABLE

    assert stored(engine) == before
    assert horizon(engine) is None


def test_pruned_and_open_days_are_not_archived(engine: Engine, sam_db: SamDb) -> None:
    prune_now(engine, results=-1)
    today = datetime.now(UTC).date()

    for day, reason in ((DAY, "were pruned"), (today, "is not over yet")):
        assert reason in sam_db.refusal("archive", "--day", str(day))


@only_on("postgresql")
def test_an_archiver_can_do_nothing_else(engine: Engine, sam_db: SamDb) -> None:
    archiver = replace(sam_db, url=as_role(sam_db.url, "archiver"))

    assert archiver("archive", "--due", "--verify").code == OK

    assert archiver("archive", "--restore", str(DAY)).code == NO_PERMISSION
    assert archiver("prune", "--keep-results", "9999d").code == NO_PERMISSION
