"""The days that are due for a report, and the requests that are refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.due import (
    DueReport,
    due_days,
    horizon,
    requested_reports,
)
from sam_pipeline.spark_jobs.runs.lock import run_lock
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.services.postgres import as_role
from tests.support.reports.database import DAY, PROFILE, Grid, profile, url_of
from tests.support.reports.published_days import publish

TODAY = date(2026, 11, 20)


def november(*numbers: int) -> list[date]:
    return [date(2026, 11, number) for number in numbers]


def changed(engine: Engine, number: int, change_no: int | None = None) -> None:
    """Mark a day as loaders do (without a number) or as runs do (with one)."""
    _write(engine, "changed_day", day=f"2026-11-{number:02}", change_no=change_no)


def published(
    engine: Engine,
    number: int,
    change_no: int | None = 1,
    report: str = "test",
    state: str = "published",
    was_open: bool = False,
) -> None:
    second = 0 if engine.dialect.name == "sqlite" else "1970-01-01T00:00:00Z"
    more = {"state": state, "change_no": change_no, "until": second if was_open else None}
    day = f"2026-11-{number:02}"
    _write(engine, "run", report=report, day=day, started_at=second, **more)


def frozen_before(engine: Engine, number: int) -> None:
    _write(engine, "horizon", day=f"2026-11-{number:02}")


def _write(engine: Engine, table: str, **values: object) -> None:
    names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    with writing(engine) as connection:
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def taken(engine: Engine) -> int:
    with writing(engine) as connection:
        return take_changes(connection)


def due(engine: Engine, report: str = "test") -> list[date]:
    with reading(engine) as connection:
        return due_days(connection, report, TODAY)


def test_every_closed_day_since_the_first_result_is_due_once(engine: Engine) -> None:
    assert due(engine) == []
    changed(engine, 20)  # still open
    changed(engine, 21)
    assert due(engine) == []
    changed(engine, 16, change_no=1)
    published(engine, 18)
    assert due(engine) == november(16, 17, 19)
    frozen_before(engine, 17)
    assert due(engine) == november(17, 19)


def test_a_day_that_changed_after_its_run_had_read_it_is_due(engine: Engine) -> None:
    for number, change_no in ((16, 1), (17, 2), (18, 3), (19, None)):
        changed(engine, number, change_no)
        published(engine, number, change_no=2)

    assert due(engine) == november(18, 19)


def test_only_a_published_run_of_the_report_and_of_the_whole_day_counts(engine: Engine) -> None:
    changed(engine, 16, change_no=1)
    published(engine, 16, was_open=True)
    published(engine, 17, state="failed")
    published(engine, 18, state="superseded")
    published(engine, 19)
    for number in (16, 17, 18):
        published(engine, number, report="other")

    assert (due(engine), due(engine, "other")) == (november(16, 17, 18), november(19))


def test_a_day_that_changes_again_while_or_after_a_run_reads_it_is_due_again(
    engine: Engine,
) -> None:
    changed(engine, 18)
    published(engine, 19, change_no=0)
    number = taken(engine)
    published(engine, 18, change_no=number)
    at_rest = due(engine)

    with writing(engine) as connection:
        connection.execute(text("UPDATE changed_day SET change_no = NULL"))
    before = due(engine)
    taken(engine)  # no row has the last number any more: it must not be used twice

    assert (at_rest, before, due(engine)) == ([], november(18), november(18))


def test_days_before_the_horizon_are_refused_without_force(engine: Engine, tmp_path: Path) -> None:
    frozen_before(engine, 10)
    report = profile(tmp_path)
    frozen, others = Period(*november(8, 12)), Period(*november(10, 12))

    with reading(engine) as connection:
        assert horizon(connection) == date(2026, 11, 10)
        with pytest.raises(ReportUsage, match=r"^2026-11-08 to 2026-11-09: .*--force"):
            requested_reports(connection, [report], frozen, force=False)
        for period, force in ((frozen, True), (others, False)):
            requested = requested_reports(connection, [report], period, force=force)
            assert requested == [DueReport(report, period)]


def test_a_late_result_makes_its_day_and_the_next_due_once_its_endpoint_is_known(
    grid: Grid,
) -> None:
    day = november(14)[0]
    grid.endpoint("A", "CE", "ce.A", validFrom="2026-11-13T00:00:00Z")
    grid.result("CE ce.A ping", "12:00", "OK", day=day)
    change_no = taken(grid.engine)
    for number in range(14, 20):
        published(grid.engine, number, change_no=change_no)

    def due_after() -> list[date]:
        """After changes are numbered as a run does, which folds new results first."""
        taken(grid.engine)
        return due(grid.engine)

    grid.result("CE ce.new ping", "13:00", "CRITICAL", day=day)
    assert due_after() == []
    grid.result("CE ce.A ping", "13:00", "CRITICAL", day=day)
    assert due_after() == november(14, 15)
    grid.endpoint("B", "CE", "ce.new", validFrom="2026-11-15T00:00:00Z")
    assert set(november(15, 16)) <= set(due_after())


# Of two concurrent commands for a report the second waits, and logs for whom ----------------------


TIMEOUT_S = 60
HOLD = """
import sys
from sam_pipeline.spark_jobs.runs.lock import run_lock
from sam_pipeline.sql.database.engine import make_engine

with run_lock(make_engine(sys.argv[1]), sys.argv[2:], print):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def started(engine: Engine, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process of the reporter; killed if it still runs when the block ends."""
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "SAM_DATABASE_URL": as_role(url_of(engine), "reporter")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


@contextmanager
def holding(engine: Engine, *reports: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of the reports while the block runs."""
    url = as_role(url_of(engine), "reporter")
    with started(engine, "-c", HOLD, url, *reports) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@pytest.mark.parametrize("command", ["run", "seal"])
def test_a_second_command_waits_until_the_first_ends_or_is_killed(
    engine: Engine, tmp_path: Path, command: str
) -> None:
    """Both end without Spark: no day is due, and the month is not complete."""
    (tmp_path / "test.toml").write_text(PROFILE)
    arguments = ["--due", "--profile", str(tmp_path / "test.toml")]
    if command == "seal":
        publish(engine, profile(tmp_path), DAY.replace(year=2025), {"A CE h1": {"00:00": "OK"}})
        arguments = ["--month", "2025-11", "--who", "Jane"]
    program = ("-m", "sam_pipeline.spark_jobs", command, *arguments)
    with holding(engine, "test") as first, started(engine, *program) as second:
        assert second.stderr is not None
        message = second.stderr.readline()
        waits = second.poll() is None
        if command == "run":
            first.communicate("", timeout=TIMEOUT_S)
        else:
            first.kill()
        out, more = second.communicate(timeout=TIMEOUT_S)

    assert waits
    assert re.search(r"report test: another run .*process \d+ .*, since 20", message)
    if command == "run":
        assert (second.returncode, out, more) == (0, "test: nothing is due\n", "")
    else:
        assert (second.returncode, out) == (64, "") and "never computed" in more


def test_on_postgresql_other_reports_do_not_wait(shared_postgres_url: str) -> None:
    messages: list[str] = []
    engine = make_engine(shared_postgres_url)
    with run_lock(engine, ["one", "two"], messages.append):
        with run_lock(engine, ["three"], messages.append), run_lock(engine, [], messages.append):
            pass
        with holding(engine, "four"):
            pass
    engine.dispose()

    assert messages == []
