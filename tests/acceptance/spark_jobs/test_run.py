"""`sam-report run` as a process: it ends without a trace, is killed, or cannot start Spark.

More ways to end are in tests/extended/spark_jobs/test_ends.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.config import find_java
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.services import missing
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import alive
from tests.support.commands import Workplace, embedded
from tests.support.reports.database import DAY, PROFILE, Grid, profile
from tests.support.reports.published_days import publish
from tests.support.reports.stored import execute, query
from tests.support.waiting import eventually

RUN = ("sam-report", "run", "-q", "--profile", "test.toml", "--day", str(DAY))
HERE = (*RUN, "--master", "local[2]")
TIMEOUT_S = 180
TRIGGER = """
CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN {}; RETURN NEW; END $$;
CREATE TRIGGER on_insert BEFORE INSERT ON timeline_segment FOR EACH ROW EXECUTE FUNCTION on_insert()
"""


@pytest.fixture
def workplace(tmp_path: Path, postgres: PostgresServer) -> Workplace:
    """A workplace with an empty directory for temporary files, and an empty database."""
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    (tmp_path / "temporary files").mkdir()
    workplace = Workplace(
        tmp_path,
        f"spool://{tmp_path}/queue",
        fresh_database(postgres),
        environment={"TMPDIR": str(tmp_path / "temporary files")},
    )
    workplace.write_configuration()
    workplace.write("test.toml", PROFILE.replace('vo = "ops"\n', ""))
    Grid(workplace.database).dispose()
    return workplace


def add_result(workplace: Workplace) -> None:
    grid = Grid(workplace.database)
    grid.endpoint("A", "SRM", "se.A")
    grid.result("SRM se.A put", "12:00", "OK")
    grid.dispose()


def processes(workplace: Workplace) -> dict[int, str]:
    """The processes that the last command started, itself included, with their names."""
    name = f"TMPDIR={workplace.environment['TMPDIR']}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if name in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "comm").read_text().strip()
        except OSError:  # it has just ended
            continue
    return {pid: name for pid, name in found.items() if alive(pid)}


def assert_nothing_is_left(workplace: Workplace) -> None:
    eventually(lambda: not processes(workplace), TIMEOUT_S)
    assert os.listdir(workplace.environment["TMPDIR"]) == []


def on_insert(workplace: Workplace, statement: str) -> None:
    """Let the tasks that write timelines execute a statement of PL/pgSQL first."""
    engine = make_engine(workplace.database)
    with writing(engine) as connection:
        connection.execute(text(TRIGGER.format(statement)))
    engine.dispose()


@contextmanager
def blocked(workplace: Workplace, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Until the end of the block, the tasks that write timelines wait."""
    on_insert(workplace, "PERFORM pg_advisory_lock(1)")
    engine = make_engine(workplace.database)
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(1)"))

        def waits() -> bool:
            assert process.poll() is None
            return bool(query(workplace.database, waiting)[0]["count"])

        eventually(waits, TIMEOUT_S)
        yield
    engine.dispose()


def test_a_run_whose_task_fails_leaves_no_file_or_process_behind(workplace: Workplace) -> None:
    add_result(workplace)
    on_insert(workplace, "RAISE 'this disk is broken'")

    failed = workplace.process(*HERE)

    assert failed.code == 69, str(failed)
    assert failed.err == "sam-report: error: Spark failed: P0001: this disk is broken\n"
    assert_nothing_is_left(workplace)


def test_a_terminated_run_fails_and_leaves_no_file_or_process_behind(
    workplace: Workplace,
) -> None:
    add_result(workplace)
    with workplace.running(*HERE) as process, blocked(workplace, process):
        process.terminate()
        assert process.wait(TIMEOUT_S) == 143

    assert_nothing_is_left(workplace)
    assert (workplace.directory / "running.log").read_text() == ""
    states = query(workplace.database, "SELECT state FROM report_run")
    assert states == [{"state": "failed"}]


def test_wrong_settings_of_spark_are_one_line_with_the_innermost_cause(
    workplace: Workplace,
) -> None:
    refused = workplace.process(*RUN, "--conf", "spark.driver.memory=1m")

    assert (refused.code, refused.out) == (69, ""), str(refused)
    [line] = refused.err.splitlines()
    assert line.startswith("sam-report: error: ") and "Too small maximum heap" in line
    assert_nothing_is_left(workplace)


def test_without_spark_a_run_exits_69_and_readers_still_work(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    workplace.write("test.toml", PROFILE)
    hook = workplace.write("hook/sitecustomize.py", "import sys\nsys.modules['pyspark'] = None\n")
    path = os.pathsep.join([f"{hook.parent}", *filter(None, [os.environ.get("PYTHONPATH")])])
    workplace = replace(workplace, environment={"PYTHONPATH": path})

    refused = workplace.process(*RUN)

    assert (refused.code, refused.out) == (69, ""), str(refused)
    assert "pyspark is not installed" in refused.err
    assert "pip install '.[reports]'" in refused.err
    assert workplace.process("sam-report", "show", "--day", str(DAY)).code == 0


# A killed run, and the one that follows it --------------------------------------------------------

# Fixed once, because midnight may pass while the tests run.
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
NOTHING_EXPECTED, ONE_RESULT, ALL_UNKNOWN, NO_RESULTS = FOUR_DAYS = [
    YESTERDAY - timedelta(days=age) for age in (3, 2, 1, 0)
]
DUE = ("sam-report", "run", "--profile", "profile.toml", "--due")


def shown(workplace: Workplace) -> dict[date, dict[str, Any]]:
    """The figures of the site as readers see them, by day."""
    names = ("availability", "reliability", "unknown", "missed")
    return {
        day: {name: figure[name] for name in names}
        for day in FOUR_DAYS
        for figure in workplace.succeed("sam-report", "show", "--day", str(day), "--json").json
    }


def test_a_killed_run_changes_nothing_and_the_next_one_completes(workplace: Workplace) -> None:
    """Four days of few results, and an old report of the second day."""
    database = workplace.database
    report = profile(workplace.directory, ('validity_s = "off"', "validity_s = 7200"))
    grid = Grid(database)
    grid.endpoint("A", "CE", "h1", validFrom=f"{ONE_RESULT}T00:00:00Z")
    for metric in ("ping", "submit"):
        for day in (NOTHING_EXPECTED, ONE_RESULT):
            grid.result(f"CE h1 {metric}", "12:00", "OK", day=day)
        for hour in range(24):
            grid.result(f"CE h1 {metric}", f"{hour:02}:00", "UNKNOWN", day=ALL_UNKNOWN)
    publish(grid.engine, report, ONE_RESULT, {"A CE h1": {"00:00": "CRITICAL"}})
    grid.dispose()
    before = shown(workplace)

    with workplace.running(*DUE) as process, blocked(workplace, process):
        process.kill()  # Java notices, and removes its files
        process.wait()
    after_the_kill = shown(workplace)
    assert_nothing_is_left(workplace)
    execute(database, "DROP TRIGGER on_insert ON timeline_segment")
    completed = workplace.succeed(*DUE)

    assert after_the_kill == before
    assert list(before) == [ONE_RESULT]
    assert completed.err.rstrip().endswith("MISSING: put of SRM")
    assert completed.out.startswith(f"test {NOTHING_EXPECTED} to {NO_RESULTS}: 52 results")
    assert "2 not-in-topology" in completed.out
    assert f"no data on {NOTHING_EXPECTED}, {NO_RESULTS}" in completed.out
    nothing = {"availability": None, "reliability": None, "unknown": 100, "missed": ["unknown"]}
    assert shown(workplace) == {
        ONE_RESULT: {**nothing, "availability": 100, "reliability": 100, "unknown": 91.66667},
        ALL_UNKNOWN: nothing,
        NO_RESULTS: nothing,
    }
    states = query(database, "SELECT day, state FROM report_run ORDER BY run_id")
    assert [row["state"] for row in states] == ["superseded"] + ["failed"] * 4 + ["published"] * 4
    changed = query(database, "SELECT day, level FROM report_change WHERE level = 'site'")
    assert [str(row["day"]) for row in changed] == [str(ONE_RESULT)]
    assert workplace.succeed(*DUE).out == "test: nothing is due\n"
