"""Restoring a day, and pruning only what the archive holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.program.command import OK, USAGE
from sam_pipeline.sql.archive.restore import restore_day
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.engine import writing
from tests.support.database.archived import BEFORE, DAY, archive, fill, load, results_of
from tests.support.database.old_results import horizon, prune_now
from tests.support.database.sam_db import answer, url_of
from tests.support.database.sql_rows import downtime, insert, query

STORED = {
    "metricOutput": "hostName, metricStatus, timestamp, gatheredAt, summaryData, performanceData,"
    " detailsData, siteName, voName, messageId, publisher",
    "serviceEndpoint": "siteName, hostName, serviceFlavour, validFrom, validTo, messageId",
    "siteGroup": "siteName, groupName, weight, validFrom, messageId",
    "downtime": "downtimeId, startTime, endTime, description, messageId",
    "contested_record": "message_class, record",
}


def stored(engine: Engine) -> Mapping[str, list[Any]]:
    """What the database has, without the ids and times that it gave to the rows."""
    return {
        view: sorted(query(engine, f"SELECT {columns} FROM {view}"), key=str)
        for view, columns in STORED.items()
    }


@pytest.fixture
def configured(engine: Engine, local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """The archive of the three days, for `sam-db`."""
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    monkeypatch.setenv("SAM_ARCHIVE_URL", local.url)
    fill(engine)
    return local


def test_restoring_a_day_that_the_database_has_changes_nothing(
    engine: Engine, configured: LocalStore
) -> None:
    manifest = archive(engine, configured)
    before = stored(engine)

    restored = restore_day(engine, configured, manifest)

    assert stored(engine) == before
    assert restored.rows == {"serviceEndpoint": 0, "siteGroup": 0, "downtime": 0, "metricOutput": 0}
    assert restored.duplicates["metricOutput"] == 12


def test_a_pruned_day_is_restored_as_it_was_and_a_repeat_changes_nothing(
    engine: Engine, configured: LocalStore
) -> None:
    manifest = archive(engine, configured)
    before = stored(engine)
    prune_now(engine, results=-1)
    assert len(stored(engine)["metricOutput"]) == 15

    first = restore_day(engine, configured, manifest)
    after = stored(engine)
    second = restore_day(engine, configured, manifest)

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


def test_topology_and_downtimes_that_are_missing_are_restored(
    engine: Engine, configured: LocalStore
) -> None:
    manifest = archive(engine, configured)
    for table in ("announced_downtime", "endpoint_membership", "site_group_member"):
        with writing(engine) as connection:
            connection.execute(text(f"DELETE FROM {table}"))

    restored = restore_day(engine, configured, manifest)

    assert restored.rows == {"serviceEndpoint": 2, "siteGroup": 1, "downtime": 1, "metricOutput": 0}
    assert query(engine, "SELECT groupName, weight FROM siteGroup") == [("North", 3)]
    assert query(engine, "SELECT downtimeId, startTime FROM downtime") == [
        ("D1", "2026-11-20T08:00:00Z")
    ]


def test_a_downtime_that_was_cancelled_since_stays_cancelled(
    engine: Engine, configured: LocalStore
) -> None:
    manifest = archive(engine, configured)
    cancelled = downtime(endTime="2026-11-20T08:00:00Z", timestamp="2026-11-24T00:00:00Z")
    insert(engine, "downtime", cancelled)

    restore_day(engine, configured, manifest)

    assert query(engine, "SELECT downtime_id FROM report_downtime") == []


def test_prune_keeps_days_that_are_not_archived_or_not_verified(
    engine: Engine,
    configured: LocalStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    age = (datetime.now(UTC).date() - DAY).days - 1  # the day is the last one to prune
    prune = ("prune", "--keep-results", f"{age}d", "--keep-details", f"{age}d")

    def kept_back() -> list[tuple[str, str]]:
        document = answer(capsys, *prune)
        return [(each["day"], each["reason"]) for each in document["kept_back"]]

    assert kept_back() == [
        (str(BEFORE), "is not in the archive"),
        (str(DAY), "is not in the archive"),
    ]
    assert horizon(engine) == BEFORE
    assert main(["-q", "archive", "--from", str(BEFORE), "--to", str(DAY)]) == OK
    unverified = "version 1 was not verified, or found to be damaged"
    assert kept_back() == [(str(BEFORE), unverified), (str(DAY), unverified)]
    assert main(["-q", "archive", "--verify"]) == OK
    load(engine, {**next(results_of(DAY)), "timestamp": f"{DAY}T01:00:00Z", "messageId": "late"})
    assert kept_back() == [(str(DAY), "has changed since version 1")]
    assert horizon(engine) == DAY
    assert len(stored(engine)["metricOutput"]) == 3 + 13 + 12
    assert main(["-q", "archive", "--day", str(DAY)]) == OK
    assert main(["-q", "archive", "--verify"]) == OK
    assert kept_back() == []
    assert horizon(engine) == DAY + timedelta(days=1)
    assert len(stored(engine)["metricOutput"]) == 3 + 12


def test_prune_does_nothing_while_the_archive_is_away(
    engine: Engine, configured: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_ARCHIVE_URL", "/nowhere")
    before = stored(engine)

    assert main(["prune", "--keep-results", "1d"]) == 69

    assert stored(engine) == before
    assert horizon(engine) is None


def test_pruned_and_open_days_are_not_archived(
    engine: Engine, configured: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    prune_now(engine, results=-1)
    today = datetime.now(UTC).date()

    for day, reason in ((DAY, "were pruned"), (today, "is not over yet")):
        with pytest.raises(SystemExit) as caught:
            main(["archive", "--day", str(day)])
        assert caught.value.code == USAGE
        assert reason in capsys.readouterr().err


def test_the_list_shows_versions_and_what_has_changed(
    engine: Engine, configured: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-q", "archive", "--from", str(BEFORE), "--to", str(DAY)]) == OK
    load(engine, {**next(results_of(DAY)), "timestamp": f"{DAY}T01:00:00Z", "messageId": "late"})
    capsys.readouterr()

    listed = answer(capsys, "archive", "--list")

    assert [(row["day"], row["versions"], row["state"]) for row in listed] == [
        (str(BEFORE), [1], "current"),
        (str(DAY), [1], "changed"),
    ]
    assert main(["archive", "--list"]) == OK
    assert "2026-11-20  v1            12" in capsys.readouterr().out
    assert json.dumps(listed)
