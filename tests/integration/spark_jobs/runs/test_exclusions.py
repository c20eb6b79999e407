"""`sam-report exclusion`: stored rows, days that become due, and refused options."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

import sam_pipeline.spark_jobs.cli
from sam_pipeline.schema.program.command import NO_INPUT, OK, USAGE
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.days import Period, as_day
from sam_pipeline.spark_jobs.runs.published import published_runs
from sam_pipeline.sql.database.engine import reading, writing
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query
from tests.support.reports.database import profile
from tests.support.reports.runs import FIRST, computed, day_facts, url_of

Command = Callable[..., int]
METRIC = ("--metric", "org.sam.Put")
MONITOR = ("--monitoring-host", "nagios.example.org")
SITE = ("--group", "A")
WHEN = ("--start", "2025-10-10T12:00Z", "--end", "2025-10-10T13:00Z", "--reason", "network down")


@pytest.fixture
def exclusion(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`sam-report exclusion …`, run as the reporter; returns the exit code."""
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    return run_exclusion


def run_exclusion(*arguments: str) -> int:
    try:
        return sam_pipeline.spark_jobs.cli.main(["exclusion", *arguments])
    except SystemExit as usage:
        return int(str(usage.code))


def reported(engine: Engine, first: str = "2025-10-08") -> None:
    """Pretend that results begin on that day, and that a run has taken all changes."""
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO changed_day VALUES (:day, 1)"), {"day": first})


def changed(engine: Engine) -> list[str]:
    rows = query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL ORDER BY day")
    return [f"{as_day(day):%m-%d}" for (day,) in rows]


def test_an_exclusion_is_entered_and_listed(
    engine: Engine, exclusion: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--site", "A", "--flavour", "CE", "--host", "CE01.example.org.")
    added = exclusion("add", *METRIC, *where, *WHEN, "--who", "Jane")
    exclusion_id = int(capsys.readouterr().out.split()[0])

    exclusion("list")
    table = capsys.readouterr().out.splitlines()
    exclusion("list", "--json")
    [listed] = json.loads(capsys.readouterr().out)

    assert added == OK
    assert {"id", "start", "end", "reason", "who"} <= set(table[0].split())
    assert table[2].split()[1:7] == [
        *("metric", "org.sam.Put", "A", "CE", "ce01.example.org", "2025-10-10T12:00:00Z")
    ]
    assert listed.pop("added_at") <= datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert listed == {
        "exclusion_id": exclusion_id,
        "kind": "metric",
        "monitoring_host": "",
        "metric_name": "org.sam.Put",
        "site": "A",
        "service_flavour": "CE",
        "host_name": "ce01.example.org",
        "start_time": "2025-10-10T12:00:00Z",
        "end_time": "2025-10-10T13:00:00Z",
        "reason": "network down",
        "who": "Jane",
        "removed_at": None,
        "removed_by": None,
        "removed_because": None,
    }
    assert query(engine, "SELECT start_s, end_s FROM report_exclusion") == [
        (1760097600, 1760101200)
    ]


def test_a_removed_exclusion_no_longer_applies_and_stays_on_record(
    engine: Engine, exclusion: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    exclusion("add", *SITE, *WHEN)
    exclusion_id = capsys.readouterr().out.split()[0]

    removed = exclusion("remove", exclusion_id, "--who", "Joe", "--reason", "it had failed")

    assert removed == OK
    assert query(engine, "SELECT * FROM report_exclusion") == []
    capsys.readouterr()
    assert exclusion("list") == OK
    assert capsys.readouterr().out == ""
    exclusion("list", "--all", "--json")
    [listed] = json.loads(capsys.readouterr().out)
    removal = [listed[name] for name in ("site", "removed_by", "removed_because")]
    assert removal == ["A", "Joe", "it had failed"]
    exclusion("list", "--all")
    shown = capsys.readouterr().out
    assert "Joe" in shown
    assert "it had failed" in shown


def test_removing_an_exclusion_requires_a_reason(
    exclusion: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exclusion("remove", "1") == USAGE
    assert "--reason" in capsys.readouterr().err


def test_a_removed_or_unknown_exclusion_cannot_be_removed(
    exclusion: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    exclusion("add", *SITE, *WHEN)
    exclusion_id = capsys.readouterr().out.split()[0]
    exclusion("remove", exclusion_id, "--who", "Joe", "--reason", "it had failed")

    capsys.readouterr()
    again = exclusion("remove", exclusion_id, "--reason", "x")
    error = capsys.readouterr().err
    unknown = exclusion("remove", "4711", "--reason", "x")

    assert (again, unknown) == (USAGE, NO_INPUT)
    assert re.search(rf"exclusion {exclusion_id} .*removed.* Joe", error)
    assert "no exclusion 4711" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("selector", "start", "end", "days"),
    [
        (METRIC, "10-10T12:00Z", "10-11T00:00Z", ["10-10"]),
        (METRIC, "10-10T12:00Z", "10-11T00:00:01Z", ["10-10", "10-11"]),
        (SITE, "10-10T00:00+02:00", "10-10T03:00+02:00", ["10-09", "10-10"]),
        (SITE, "10-01T00:00Z", "10-09T00:00Z", ["10-08"]),  # results begin on the 8th
        (SITE, "09-01T00:00Z", "10-01T00:00Z", []),
        # Results of the last second no longer count, and they were carried into the day after.
        (MONITOR, "10-10T12:00Z", "10-10T23:59:59Z", ["10-10", "10-11"]),
        (MONITOR, "10-10T12:00Z", "10-11T00:00Z", ["10-10", "10-11", "10-12"]),
        (MONITOR, "10-07T12:00Z", "10-07T13:00Z", ["10-08"]),
    ],
)
def test_the_days_that_an_exclusion_touches_are_due(
    engine: Engine,
    exclusion: Command,
    selector: tuple[str, str],
    start: str,
    end: str,
    days: list[str],
) -> None:
    reported(engine)
    times = ("--start", f"2025-{start}", "--end", f"2025-{end}", "--reason", "x")

    assert exclusion("add", *selector, *times) == OK

    assert changed(engine) == days


def test_removing_an_exclusion_makes_its_days_due_again(
    engine: Engine, exclusion: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    reported(engine)
    exclusion("add", *MONITOR, *WHEN)
    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = 2"))

    exclusion("remove", capsys.readouterr().out.split()[0], "--reason", "x")
    assert capsys.readouterr().out.splitlines() == ["due: 2025-10-10 to 2025-10-11"]

    assert changed(engine) == ["10-10", "10-11"]


@pytest.mark.parametrize("selector", [METRIC, MONITOR])
def test_an_exclusion_until_further_notice_marks_no_future_day(
    engine: Engine, exclusion: Command, selector: tuple[str, str]
) -> None:
    today = datetime.now(UTC).date()
    reported(engine, today.isoformat())
    times = ("--start", f"{today}T00:00Z", "--end", "9999-12-31T23:59:59Z", "--reason", "gone")

    assert exclusion("add", *selector, *times) == OK

    # Midnight may pass in between.
    assert changed(engine)[0] == f"{today:%m-%d}"
    assert len(changed(engine)) <= 2


def test_frozen_days_are_not_marked_and_a_warning_names_their_end(
    engine: Engine, exclusion: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    reported(engine)
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO horizon VALUES ('2025-10-10')"))
    times = ("--start", "2025-10-09T00:00Z", "--end", "2025-10-11T00:00Z", "--reason", "x")

    assert exclusion("add", *SITE, *times) == OK

    assert changed(engine) == ["10-10"]
    assert "days before 2025-10-10" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((*SITE, "--host", "h", *WHEN), "--host: only with --metric"),
        ((*MONITOR, "--site", "A", "--flavour", "CE", *WHEN), "--site, --flavour: only with --met"),
        ((*SITE, *MONITOR, *WHEN), "not allowed with"),
        (WHEN, "--monitoring-host --metric --group is required"),
        ((*SITE, *WHEN[:4]), "required: --reason"),
        ((*SITE, *WHEN[:4], "--reason", " "), "--reason: is empty"),
        ((*SITE, *WHEN, "--who", ""), "--who: is empty"),
        (("--group", "", *WHEN), "--group: is empty"),
        ((*METRIC, "--host", "", *WHEN), "--host: is empty"),
        ((*SITE, "--start", "2025-10-10T13:00Z", *WHEN[2:]), "--end 2025-10-10T13:00:00Z is not"),
        ((*SITE, "--start", "2025-10-10T12:00", *WHEN[2:]), "has no time zone"),
        ((*SITE, "--start", "1760097600", *WHEN[2:]), "is not a time"),
        ((*SITE, *WHEN[:4], "--reason", "\udcff"), "--reason: is not valid UTF-8"),
    ],
)
def test_contradictory_or_malformed_options_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", "sqlite:////nowhere/sam.db")  # it is not opened

    assert run_exclusion("add", *arguments) == USAGE

    assert problem in capsys.readouterr().err


@only_on("postgresql")
def test_exclusions_stay_on_record(engine: Engine, exclusion: Command) -> None:
    """A reporter may remove an exclusion, but neither change nor delete its row."""
    exclusion("add", *SITE, *WHEN)

    with acting_as("reporter", engine) as reporter:
        for statement in ("DELETE FROM exclusion", "UPDATE exclusion SET reason = 'other'"):
            with (
                pytest.raises(ProgrammingError, match="permission denied"),
                reporter.begin() as connection,
            ):
                connection.execute(text(statement))


def test_a_run_records_the_exclusions_and_downtimes_it_has_read(
    engine: Engine, tmp_path: Path
) -> None:
    excluded = Exclusion(7, "group", "", "", "A", "", "", 1760054400, 1760058000, "ümläut", "me")
    downtime = Downtime("D", "A", "h1", "", 1760054400, 1760058000, "UNSCHEDULED", "AT_RISK", "")
    facts = day_facts(
        FIRST, exclusions=[excluded], exclusions_digest="1", downtimes=[downtime], newest_result=42
    )

    computed(engine, profile(tmp_path), facts)

    with acting_as("reader", engine) as reader, reading(reader) as connection:
        [run] = published_runs(connection, "test", Period(FIRST, FIRST))
    assert (run.exclusions, run.downtimes, run.newest_result) == ([excluded], [downtime], 42)


def test_a_changed_exclusion_is_recorded_as_the_reason(engine: Engine, tmp_path: Path) -> None:
    report = profile(tmp_path)
    excluded = Exclusion(7, "group", "", "", "A", "", "", 1760054400, 1760058000, "x", "me")
    with_one = {"exclusions": [excluded], "exclusions_digest": "one"}
    computed(engine, report, day_facts(FIRST), ok_s=1)

    computed(engine, report, day_facts(FIRST), ok_s=2)
    computed(engine, report, day_facts(FIRST, **with_one), ok_s=3)
    computed(engine, report, day_facts(FIRST, results_digest="other", **with_one), ok_s=4)
    computed(engine, report, day_facts(FIRST), ok_s=5)

    reasons = query(engine, "SELECT reason FROM report_change ORDER BY run_id")
    assert reasons == [
        ("computed differently",),
        ("exclusions changed",),
        ("results changed",),
        ("results changed, exclusions changed",),
    ]
    digests = query(engine, "SELECT count(DISTINCT input_digest) FROM report_run")
    assert digests == [(3,)]
