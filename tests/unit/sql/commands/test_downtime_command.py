"""`sam-db downtime` on an SQLite file: its arguments, output and errors."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import NO_INPUT, OK
from sam_pipeline.sql.cli import main
from tests.support.database.sam_db import Output, answer, refusal

ADD = ("downtime", "add", "--site", "A", "--reason", "power cut", "--who", "jane")
TIMES = ("--start", "2026-01-05T22:00Z", "--end", "2026-01-07T00:00Z")

# Reports begin with this day.
FIRST_RESULT = """
    INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus, timestamp)
    VALUES ('ce01', 'CE', 'org.example.Ping', 'OK', '2026-01-02T00:00:00Z')
"""


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_database: Path) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", f"sqlite:///{tmp_path}/sam.db")
    shutil.copy(empty_database, tmp_path)
    with closing(sqlite3.connect(tmp_path / "sam.db")) as connection, connection:
        connection.execute(FIRST_RESULT)


def test_add_prints_the_new_id_and_the_days_that_are_due(capsys: Output) -> None:
    assert main([*ADD, *TIMES]) == OK

    downtime_id, due = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"local-\d{8}-[0-9a-f]{8}", downtime_id)
    assert due == "due: 2026-01-05 2026-01-06"


def test_days_without_reports_are_not_due(capsys: Output) -> None:
    answered = answer(capsys, *ADD, "--start", "2025-12-30T00:00Z", "--end", "2026-01-04T00:00Z")

    assert answered["due_days"] == ["2026-01-02", "2026-01-03"]


def test_add_prints_the_downtime_in_json(capsys: Output) -> None:
    answered = answer(capsys, *ADD, *TIMES, "--host", "CE01.example.org", "--flavour", "CE,SRM")

    rows = answered["downtimes"]
    assert answered["due_days"] == ["2026-01-05", "2026-01-06"]
    assert [(row["host_name"], row["service_flavour"]) for row in rows] == [
        ("ce01.example.org", "CE"),
        ("ce01.example.org", "SRM"),
    ]
    assert rows[0]["description"] == "power cut (jane)"
    assert (rows[0]["classification"], rows[0]["severity"]) == ("SCHEDULED", "OUTAGE")
    assert (rows[0]["moved"], rows[0]["cancelled"]) == (False, False)
    assert (rows[0]["source"], rows[0]["start_time"]) == ("by hand", "2026-01-05T22:00:00Z")


def test_add_with_a_known_id_moves_it(capsys: Output) -> None:
    answer(capsys, *ADD, *TIMES, "--id", "X1")

    moved = answer(
        capsys, *ADD, "--start", "2026-01-06T12:00Z", "--end", "2026-01-08T12:00Z", "--id", "X1"
    )

    assert moved["downtimes"][0]["moved"] is True
    assert moved["due_days"] == ["2026-01-05", "2026-01-06", "2026-01-07", "2026-01-08"]


def test_cancel_prints_the_due_days_once(capsys: Output) -> None:
    answer(capsys, *ADD, *TIMES, "--id", "X1")

    first = answer(capsys, "downtime", "cancel", "X1", "--who", "joe")
    assert main(["downtime", "cancel", "X1"]) == OK

    second = capsys.readouterr()
    assert first["due_days"] == ["2026-01-05", "2026-01-06"]
    assert first["downtimes"][0]["description"] == "power cut (jane); cancelled (joe)"
    assert first["downtimes"][0]["cancelled"] is True
    assert (second.out, "X1 was already cancelled" in second.err) == ("", True)


def test_cancel_may_end_it_early(capsys: Output) -> None:
    answer(capsys, *ADD, *TIMES, "--id", "X1")

    answered = answer(
        capsys, "downtime", "cancel", "X1", "--end", "2026-01-06T00:00Z", "--reason", "quick"
    )

    assert answered["downtimes"][0]["end_time"] == "2026-01-06T00:00:00Z"
    assert re.fullmatch(
        r"power cut \(jane\); ended: quick \(.+\)", answered["downtimes"][0]["description"]
    )


def test_an_unknown_id_exits_66(capsys: Output) -> None:
    assert main(["downtime", "cancel", "X9"]) == NO_INPUT
    assert capsys.readouterr().err == (
        "sam-db: error: there is no downtime X9; nothing was changed\n"
    )


def test_list_shows_coming_downtimes_or_those_of_the_given_days(capsys: Output) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    coming = ("--start", f"{soon:%FT%RZ}", "--end", f"{soon + timedelta(days=1):%FT%RZ}")
    answer(capsys, *ADD, *TIMES, "--id", "PAST")
    answer(capsys, *ADD, *TIMES, "--id", "NEVER")
    answer(capsys, "downtime", "cancel", "NEVER")
    answer(capsys, *ADD, *coming, "--id", "COMING")

    def listed(*options: str) -> set[str]:
        return {row["downtime_id"] for row in answer(capsys, "downtime", "list", *options)}

    day = ("--from", "2026-01-06", "--to", "2026-01-06")
    assert listed() == {"COMING"}
    assert listed("--all") == {"PAST", "NEVER", "COMING"}
    assert listed(*day) == {"PAST"}
    assert listed("--from", "2026-01-05", "--to", "2026-01-05", "--all") == {"PAST", "NEVER"}
    assert listed("--from", "2026-01-07") == listed("--site", "A") == {"COMING"}
    assert listed("--to", "2026-01-04") == listed("--site", "B", "--all") == set()


def test_the_list_is_a_table(capsys: Output) -> None:
    answer(capsys, *ADD, *TIMES, "--id", "X1", "--host", "ce01")
    assert main(["downtime", "list", "--all"]) == OK

    header, _, line = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["downtime_id", "site", "host_name"]
    assert line.split()[:3] == ["X1", "A", "ce01"]
    assert line.endswith("power cut (jane)             by hand")


def test_an_unknown_site_is_announced_with_a_warning(capsys: Output) -> None:
    assert main([*ADD, *TIMES]) == OK

    assert "site A is not in the topology" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--start", TIMES[3], "--end", TIMES[1]), "--end 2026-01-05T22:00:00Z is not after"),
        (("--start", TIMES[1], "--end", TIMES[1]), "is not after --start"),
        (("--start", "2026-01-05T22:00", "--end", TIMES[3]), "has no time zone"),
        (("--start", "yesterday", "--end", TIMES[3]), "is not a time"),
        ((*TIMES, "--host", "two words"), "hostName 'two words' is not a host name"),
        ((*TIMES, "--id", " "), "--id: is empty"),
        ((*TIMES, "--reason", ""), "--reason: is empty"),
        ((*TIMES, "--site", ""), "--site: is empty"),
        ((*TIMES, "--severity", ""), "--severity: is empty"),
        (TIMES[:2], "--end"),
    ],
)
def test_bad_options_are_refused(capsys: Output, options: tuple[str, ...], message: str) -> None:
    assert message in refusal(capsys, *ADD, *options)
    assert answer(capsys, "downtime", "list", "--all") == []


def test_days_in_the_wrong_order_are_refused(capsys: Output) -> None:
    options = ("--from", "2026-01-02", "--to", "2026-01-01")

    assert "--to 2026-01-01 is before" in refusal(capsys, "downtime", "list", *options)
