"""Sealed months keep their published figures; later runs become candidates (rule 17)."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

import sam_pipeline.spark_jobs.cli
from sam_pipeline.schema.program.command import NO_PERMISSION, OK, USAGE
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, as_day, day_start, month_of
from sam_pipeline.spark_jobs.runs.due import due_days
from sam_pipeline.spark_jobs.runs.published import candidates, published_runs
from sam_pipeline.spark_jobs.runs.record import Published
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import DatabaseRefused
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.operations.log import operations
from tests.services.postgres import as_role
from tests.support.builders import metric_result
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, query
from tests.support.reports.database import PROFILE, profile
from tests.support.reports.runs import FIRST, computed, day_facts, url_of

Command = Callable[..., int]
MONTH = f"{FIRST:%Y-%m}"
SECOND = FIRST + timedelta(days=1)
SEAL = ("--month", MONTH, "--who", "Jane Doe")
CHANGED = {"results_digest": "late results"}


@pytest.fixture
def seal(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`sam-report seal …`, run as the reporter; returns the exit code."""
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))

    def command(*arguments: str) -> int:
        try:
            return sam_pipeline.spark_jobs.cli.main(["seal", *arguments])
        except SystemExit as usage:
            return int(str(usage.code))

    return command


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    return profile(tmp_path)


def month_computed(engine: Engine, but: tuple[date, ...] = ()) -> None:
    """Publish the whole month by inserting rows, since a run for each day would take long."""
    lite = engine.dialect.name == "sqlite"
    with writing(engine) as connection:
        for day in month_of(FIRST).days():
            if day not in but:
                values = {
                    "day": str(day),
                    "now": day_start(day) if lite else f"{day}T00:00Z",
                    "profile": json.dumps(tomllib.loads(PROFILE)),
                }
                run_id = connection.execute(
                    text(
                        "INSERT INTO run (report, day, started_at, state, change_no, profile)"
                        " VALUES ('test', :day, :now, 'published', 0, :profile)"
                        " RETURNING run_id"
                    ),
                    values,
                ).scalar_one()
                connection.execute(
                    text("INSERT INTO published_run VALUES ('test', :day, :run_id)"),
                    {**values, "run_id": run_id},
                )


def months_figures(engine: Engine) -> list[tuple[object, ...]]:
    """The figures of the month as readers see them."""
    return query(engine, "SELECT * FROM site_availability ORDER BY day")


def states(engine: Engine, *run_ids: int) -> list[str]:
    state_of = dict(map(tuple, query(engine, "SELECT run_id, state FROM report_run")))
    return [state_of[run_id] for run_id in run_ids]


def test_a_sealed_day_keeps_its_figures_and_a_later_run_is_its_candidate(
    engine: Engine, seal: Command, report: Profile
) -> None:
    month_computed(engine, but=(FIRST,))
    old, _ = computed(engine, report, day_facts(FIRST), ok_s=80_000)
    before = months_figures(engine)
    assert seal(*SEAL) == OK

    new, result = computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=70_000)

    assert result == Published(changes=0, sealed_days=1, candidates=1)
    assert months_figures(engine) == before
    assert states(engine, old, new) == ["published", "candidate"]
    [(day, run_id)] = query(engine, "SELECT day, run_id FROM report_candidate")
    assert (as_day(day), run_id) == (FIRST, new)
    [(names, sealed, candidate_figure, reason)] = query(
        engine, f"SELECT names, old, new, reason FROM report_change WHERE run_id = {new}"
    )
    assert (json.loads(names), reason) == ({"site": "A"}, "results changed")
    assert (json.loads(sealed)["ok_s"], json.loads(candidate_figure)["ok_s"]) == (80_000, 70_000)
    with acting_as("reader", engine) as reader, reading(reader) as connection:
        assert [run.run_id for run in published_runs(connection, "test", Period(FIRST, FIRST))] == [
            old
        ]
        [candidate] = candidates(connection, None, month_of(FIRST))
        assert (candidate.figures, candidate.reasons) == (1, ["results changed"])


def test_a_seal_is_recorded_in_the_operation_log(engine: Engine, seal: Command) -> None:
    month_computed(engine)

    seal(*SEAL, "--dry-run")
    seal(*SEAL)

    [operation] = operations(engine)
    arguments = {"report": "test", "month": MONTH, "who": "Jane Doe"}
    assert (operation.command, json.loads(operation.arguments)) == ("seal", arguments)


def test_only_the_newest_candidate_is_kept(engine: Engine, seal: Command, report: Profile) -> None:
    month_computed(engine, but=(FIRST,))
    sealed, _ = computed(engine, report, day_facts(FIRST), ok_s=80_000)
    seal(*SEAL)
    older, _ = computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=70_000)

    newer, _ = computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=60_000)
    computed(engine, report, day_facts(date(2025, 11, 1)))  # removes the older candidate

    assert states(engine, sealed, older, newer) == ["published", "superseded", "candidate"]
    run_ids = query(engine, "SELECT run_id FROM site_figure ORDER BY run_id")
    assert [row[0] for row in run_ids][:2] == [sealed, newer]


def test_a_run_with_the_sealed_figures_is_not_a_candidate(
    engine: Engine, seal: Command, report: Profile
) -> None:
    month_computed(engine, but=(FIRST,))
    computed(engine, report, day_facts(FIRST), ok_s=80_000)
    seal(*SEAL)

    computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=80_000)

    assert query(engine, "SELECT * FROM report_candidate") == []
    with acting_as("reader", engine) as reader, reading(reader) as connection:
        assert candidates(connection, None, month_of(FIRST)) == []


def test_a_candidate_counts_as_computed(engine: Engine, seal: Command, report: Profile) -> None:
    month_computed(engine, but=(FIRST,))
    computed(engine, report, day_facts(FIRST))
    seal(*SEAL)
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO changed_day VALUES (:day, NULL)"), {"day": str(FIRST)})

    def due() -> list[date]:
        with acting_as("reporter", engine) as reporter, reading(reporter) as connection:
            return due_days(connection, "test", FIRST + timedelta(days=5))

    before = due()
    computed(engine, report, day_facts(FIRST, **CHANGED))
    after = due()
    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = NULL"))

    assert (before, after, due()) == ([FIRST], [], [FIRST])


def test_another_seal_publishes_the_candidates_at_once(
    engine: Engine, seal: Command, report: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    old = [computed(engine, report, day_facts(day), ok_s=1)[0] for day in (FIRST, SECOND)]
    seal(*SEAL)
    new = [computed(engine, report, day_facts(day), ok_s=2)[0] for day in (FIRST, SECOND)]
    capsys.readouterr()

    assert seal("--month", MONTH, "--who", "Joe") == OK

    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith(f"test {MONTH}: sealed by Joe, revision 2")
    assert re.findall(r"\d+ \w+s", line) == ["2 days", "2 figures"]
    assert states(engine, *old, *new) == ["superseded"] * 2 + ["published"] * 2
    published = query(engine, "SELECT ok_s FROM site_availability ORDER BY day")
    assert published == [(2,), (2,)]
    assert query(engine, "SELECT * FROM report_candidate") == []
    history = query(engine, "SELECT revision, who FROM report_seal ORDER BY revision")
    assert history == [(1, "Jane Doe"), (2, "Joe")]
    newest, result = computed(engine, report, day_facts(FIRST), ok_s=3)
    assert result == Published(sealed_days=1, candidates=1)
    assert states(engine, newest) == ["candidate"]


def test_other_months_and_reports_are_not_sealed(
    engine: Engine, seal: Command, report: Profile, tmp_path: Path
) -> None:
    month_computed(engine)
    (tmp_path / "other").mkdir()
    other = profile(tmp_path / "other", ('name = "test"', 'name = "other"'))
    seal(*SEAL, "--report", "test")

    november, _ = computed(engine, report, day_facts(date(2025, 11, 1)))
    september, _ = computed(engine, report, day_facts(date(2025, 9, 30)))
    of_other_report, _ = computed(engine, other, day_facts(FIRST))

    assert states(engine, november, september, of_other_report) == ["published"] * 3


def test_the_list_of_seals_shows_the_waiting_candidates(
    engine: Engine, seal: Command, report: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    for day in (FIRST, SECOND):
        computed(engine, report, day_facts(day), ok_s=1)
    seal(*SEAL)
    computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=2)
    computed(engine, report, day_facts(SECOND, topology_digest="other"), ok_s=1)
    capsys.readouterr()

    assert seal("--list") == OK
    header, _, line = capsys.readouterr().out.splitlines()
    assert seal("--list", "--json") == OK
    [listed] = json.loads(capsys.readouterr().out)
    assert sam_pipeline.spark_jobs.cli.main(["show", "--month", MONTH]) == OK
    shown = capsys.readouterr()

    assert "candidate days" in header
    assert "figures changed" in header
    assert line.split()[:5] == ["test", MONTH, "1", "Jane", "Doe"]
    assert line.split()[-4:] == ["1", "1", "results", "changed"]
    sealed_at = listed.pop("sealed_at")
    assert sealed_at <= datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # The second day has a new run too, but with the sealed figures.
    assert listed == {
        "report": "test",
        "month": MONTH,
        "revision": 1,
        "who": "Jane Doe",
        "revisions": [{"revision": 1, "who": "Jane Doe", "sealed_at": sealed_at}],
        "candidates": [{"day": str(FIRST), "figures_changed": 1, "reasons": ["results changed"]}],
    }
    [warning] = [line for line in shown.err.splitlines() if "test: sealed" in line]
    assert re.findall(r"(\d+) (?:figure|day)", warning) == ["1", "1"]
    assert "A" in shown.out


def test_the_days_that_keep_a_month_from_being_sealed_are_listed_as_ranges(
    engine: Engine, seal: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    days = list(month_of(FIRST).days())
    month_computed(engine, but=(*days[:20], days[24]))

    assert seal(*SEAL) == USAGE
    assert f"test: {days[0]} to {days[19]}, {days[24]} never" in capsys.readouterr().err


def test_sealing_again_keeps_who_sealed_each_revision_and_when(
    engine: Engine, seal: Command, report: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine)
    for who in ("Jane Doe", "Joe", "Ann"):
        assert seal("--month", MONTH, "--who", who) == OK
    capsys.readouterr()

    seal("--list", "--json")
    [listed] = json.loads(capsys.readouterr().out)
    seal("--list")
    *_, line = capsys.readouterr().out.splitlines()

    assert [(entry["revision"], entry["who"]) for entry in listed["revisions"]] == [
        (1, "Jane Doe"),
        (2, "Joe"),
        (3, "Ann"),
    ]
    assert line.split()[:4] == ["test", MONTH, "3", "Ann"]


def test_a_dry_run_shows_what_the_candidates_would_change_in_the_month(
    engine: Engine, seal: Command, report: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    for day in (FIRST, SECOND):
        computed(engine, report, day_facts(day), ok_s=86_400)
    seal(*SEAL)
    computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=43_200)
    before = months_figures(engine), query(engine, "SELECT * FROM report_seal")
    capsys.readouterr()

    assert seal("--month", MONTH, "--dry-run", "--json") == OK
    [document] = json.loads(capsys.readouterr().out)
    assert seal("--month", MONTH, "--dry-run") == OK
    lines = capsys.readouterr().out.splitlines()

    numbers = [document[name] for name in ("revision", "candidate_days", "figures_changed")]
    assert numbers == [2, 1, 1]
    [site] = document["sites"]
    figures = [float(site[name]) for name in ("availability", "availability_after")]
    assert (site["site"], figures) == ("A", [100, 75])
    assert lines[0].startswith(f"test {MONTH}: would be revision 2, 1 figure of 1 day")
    assert lines[3].split()[:3] == ["A", "100.00000", "75.00000"]
    assert (months_figures(engine), query(engine, "SELECT * FROM report_seal")) == before


@only_on("postgresql")
def test_the_error_of_a_login_without_the_role_names_the_role_that_the_command_needs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine)
    url = as_role(engine.url.render_as_string(hide_password=False), "reader")
    monkeypatch.setenv("SAM_DATABASE_URL", url)

    refused = sam_pipeline.spark_jobs.cli.main(["seal", *SEAL])

    assert refused == NO_PERMISSION
    assert "sam_reporter" in capsys.readouterr().err


def test_a_month_in_which_results_began_is_sealed_from_its_first_result_on(
    engine: Engine, seal: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    days = list(month_of(FIRST).days())
    month_computed(engine, but=(*days[:23], days[25]))
    insert(engine, "metricOutput", metric_result(timestamp=f"{days[23]}T10:00:00Z"))
    fold_all(engine)

    refused, error = seal(*SEAL), capsys.readouterr().err
    month_computed(engine, but=(*days[:25], *days[26:]))
    sealed, out = seal(*SEAL), capsys.readouterr().out

    assert (refused, sealed) == (USAGE, OK)
    assert f"test: {days[25]} never computed" in error
    assert "8 of 31 days" in out


def test_days_that_several_reports_lack_are_named_once(
    engine: Engine, seal: Command, report: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cms", "atlas"):
        computed(engine, replace(report, name=name), day_facts(FIRST))

    assert seal(*SEAL) == USAGE

    error = capsys.readouterr().err
    last = list(month_of(FIRST).days())[-1]
    assert error.count(f"{SECOND} to {last} never computed") == 1
    assert "atlas, cms: " in error


def test_a_month_with_holes_is_not_sealed(
    engine: Engine, seal: Command, report: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine, but=(FIRST, SECOND))
    noon = day_start(SECOND) + 43_200
    computed(engine, report, day_facts(SECOND, until=noon), now=noon)

    refused = seal(*SEAL)

    error = capsys.readouterr().err
    assert refused == USAGE
    assert f"test: {FIRST} never computed" in error
    assert f"test: {SECOND} computed while" in error
    assert query(engine, "SELECT * FROM report_seal") == []


def test_a_month_must_be_over_and_known(
    engine: Engine, seal: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    month_computed(engine)
    this_month = f"{datetime.now(UTC):%Y-%m}"
    for arguments, problem in (
        (("--month", this_month, "--who", "J"), f"{this_month} is not over"),
        (("--month", "2024-02", "--who", "J"), "nothing is published for 2024-02-01"),
        (("--month", MONTH, "--who", "J", "--report", "x"), "no report x"),
        (("--month", MONTH), "--who NAME"),
        (("--month", MONTH, "--who", " "), "--who"),
        (("--month", "10-2025", "--who", "J"), "is not a month"),
        (("--list", "--who", "J"), "--who goes with --month"),
        ((), "--month --list is required"),
    ):
        assert seal(*arguments) == USAGE, arguments
        assert problem in capsys.readouterr().err
    assert query(engine, "SELECT * FROM report_seal") == []


@only_on("postgresql")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE published_run SET run_id = {other} WHERE day = '{day}'",
        "UPDATE published_run SET day = '2020-01-01' WHERE day = '{day}'",
        (
            "INSERT INTO published_run VALUES ('test', '{day}', {other})"
            " ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id"
        ),
        "UPDATE run SET state = 'failed' WHERE run_id = {run}",
        "UPDATE run SET state = 'running'",
        "DELETE FROM site_figure WHERE run_id = {run}",
        "INSERT INTO site_figure VALUES ({run}, 'B', 100, 100, 86400, 0, 0, 0, 0, 0, 0)",
        "UPDATE site_figure SET availability = 100 WHERE run_id = {run}",
        "DELETE FROM run WHERE run_id = {run}",
        "DELETE FROM published_run WHERE run_id = {run}",
        "TRUNCATE site_figure",
        (
            "INSERT INTO timeline_segment VALUES"
            " ({run}, 'site', 'A', '', '', '', '', '{day}', '{day}T12:00Z', 'OK')"
        ),
        (
            "INSERT INTO report_change_row (run_id, level, names, reason)"
            " VALUES ({run}, 'site', '{{}}', 'results changed')"
        ),
        "UPDATE seal SET who = 'somebody else'",
        "DELETE FROM seal",
    ],
)
def test_a_seal_binds_the_role_that_writes_reports(
    engine: Engine, seal: Command, report: Profile, statement: str
) -> None:
    month_computed(engine, but=(FIRST,))
    run, _ = computed(engine, report, day_facts(FIRST), ok_s=80_000)
    assert seal(*SEAL) == OK
    other, _ = computed(engine, report, day_facts(FIRST, **CHANGED), ok_s=70_000)
    before = months_figures(engine), query(engine, "SELECT * FROM report_seal")
    assert len(before[0]) == 1

    change = text(statement.format(day=FIRST, run=run, other=other))
    with acting_as("reporter", engine) as reporter:
        with pytest.raises(DatabaseRefused), writing(reporter) as connection:
            connection.execute(change)
        with writing(reporter) as connection:
            connection.execute(text("SELECT sweep_runs()"))

    assert (months_figures(engine), query(engine, "SELECT * FROM report_seal")) == before
    assert states(engine, run, other) == ["published", "candidate"]
