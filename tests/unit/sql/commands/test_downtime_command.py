"""`sam-db downtime` on an SQLite file."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import NO_INPUT, OK
from tests.support.database.sam_db import SamDb

ADD = ("downtime", "add", "--site", "A", "--reason", "power cut", "--who", "jane")
TIMES = ("--start", "2026-01-05T22:00Z", "--end", "2026-01-07T00:00Z")

# Reports begin with this day.
FIRST_RESULT = """
    INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus, timestamp)
    VALUES ('ce01', 'CE', 'org.example.Ping', 'OK', '2026-01-02T00:00:00Z')
"""


@pytest.fixture(autouse=True)
def first_result(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(FIRST_RESULT)


def test_add_prints_ids_days_that_are_due_and_a_row_for_each_flavour(sam_db: SamDb) -> None:
    added = sam_db(*ADD, *TIMES)
    early = ("--start", "2025-12-30T00:00Z", "--end", "2026-01-04T00:00Z")
    answer = sam_db.document(*ADD, *early, "--host", "CE01.example.org", "--flavour", "CE,SRM")

    downtime_id, due = added.out.splitlines()
    assert (added.code, due) == (OK, "due: 2026-01-05 2026-01-06")
    assert re.fullmatch(r"local-\d{8}-[0-9a-f]{8}", downtime_id)
    assert "site A is not in the topology" in added.err
    assert answer["due_days"] == ["2026-01-02", "2026-01-03"]
    rows = answer["downtimes"]
    assert [row["service_flavour"] for row in rows] == ["CE", "SRM"]
    expected = {"host_name": "ce01.example.org", "description": "power cut (jane)"}
    expected |= {"classification": "SCHEDULED", "severity": "OUTAGE", "source": "by hand"}
    assert rows[0] == rows[0] | expected | {"moved": False, "cancelled": False}


def test_cancel_ends_a_known_id_once(sam_db: SamDb) -> None:
    sam_db.document(*ADD, *TIMES, "--id", "X1")

    cancelled = sam_db.document("downtime", "cancel", "X1", "--who", "joe")
    again, unknown = sam_db("downtime", "cancel", "X1"), sam_db("downtime", "cancel", "X9")

    assert cancelled["due_days"] == ["2026-01-05", "2026-01-06"]
    assert cancelled["downtimes"][0]["cancelled"] is True
    assert cancelled["downtimes"][0]["description"] == "power cut (jane); cancelled (joe)"
    assert (again.code, again.out, "already cancelled" in again.err) == (OK, "", True)
    assert (unknown.code, "no downtime X9" in unknown.err) == (NO_INPUT, True)


def test_list_shows_coming_downtimes_or_those_of_the_given_days(sam_db: SamDb) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    coming = ("--start", f"{soon:%FT%RZ}", "--end", f"{soon + timedelta(days=1):%FT%RZ}")
    for name, times in (("PAST", TIMES), ("NEVER", TIMES), ("COMING", coming)):
        sam_db.document(*ADD, *times, "--id", name)
    sam_db.document("downtime", "cancel", "NEVER")

    def listed(options: str) -> set[str]:
        rows = sam_db.document("downtime", "list", *options.split())
        return {row["downtime_id"] for row in rows}

    assert listed("") == {"COMING"}
    assert listed("--all") == {"PAST", "NEVER", "COMING"}
    assert listed("--from 2026-01-06 --to 2026-01-06") == {"PAST"}
    assert listed("--from 2026-01-05 --to 2026-01-05 --all") == {"PAST", "NEVER"}
    assert listed("--from 2026-01-07") == listed("--site A") == {"COMING"}
    assert listed("--to 2026-01-04") == listed("--site B --all") == set()
