"""What readers see when `sam-report run` has little to report, is killed or fails."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.commands import Workplace, embedded, embedded_workplace
from tests.support.consumer.faults import fill_up
from tests.support.reports.database import Grid, profile
from tests.support.reports.published_days import publish
from tests.support.reports.stored import query
from tests.support.small_disk import small_disk

# Fixed once, because midnight may pass while the tests run.
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
NOTHING_EXPECTED, ONE_RESULT, ALL_UNKNOWN, NO_RESULTS = (
    YESTERDAY - timedelta(days=age) for age in (3, 2, 1, 0)
)
TIMEOUT_S = 180
RUN = ("sam-report", "run", "--profile", "profile.toml", "--due")
NO_SPARK = "import sys\nsys.modules['pyspark'] = None\n"


def fill(workplace: Workplace) -> None:
    """Fill a database with four days of few results, and an old report of the second day."""
    report = profile(workplace.directory, ('validity_s = "off"', "validity_s = 7200"))
    grid = Grid(workplace.database)
    grid.endpoint("A", "CE", "h1", validFrom=f"{ONE_RESULT}T00:00:00Z")
    for metric in ("ping", "submit"):
        for day in (NOTHING_EXPECTED, ONE_RESULT):
            grid.result(f"CE h1 {metric}", "12:00", "OK", day=day)
        for hour in range(24):
            grid.result(f"CE h1 {metric}", f"{hour:02}:00", "UNKNOWN", day=ALL_UNKNOWN)
    publish(grid.engine, report, ONE_RESULT, {"A CE h1": {"00:00": "CRITICAL"}})
    grid.dispose()


def shown(workplace: Workplace) -> dict[date, dict[str, Any]]:
    """The figures of the site as readers see them, by day."""
    days = {}
    for day in (NOTHING_EXPECTED, ONE_RESULT, ALL_UNKNOWN, NO_RESULTS):
        for figure in workplace.succeed("sam-report", "show", "--day", str(day), "--json").json:
            days[day] = {
                name: figure[name] for name in ("availability", "reliability", "unknown", "missed")
            }
    return days


@contextmanager
def blocking_the_run(workplace: Workplace, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Wait until the run has begun to compute, and block its writes until the block ends."""
    file = workplace.database.removeprefix("sqlite:///")
    with closing(sqlite3.connect(file, isolation_level=None, timeout=30)) as connection:
        deadline = time.monotonic() + TIMEOUT_S
        begun = "SELECT count(*) FROM run WHERE state = 'running'"
        connection.execute("BEGIN IMMEDIATE")
        while connection.execute(begun).fetchone() == (0,):
            connection.execute("ROLLBACK")
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
            connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_a_killed_run_changes_nothing_and_the_next_one_completes(tmp_path: Path) -> None:
    workplace = embedded_workplace(tmp_path)
    fill(workplace)
    before = shown(workplace)

    with workplace.running(*RUN) as process, blocking_the_run(workplace, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    after_the_kill = shown(workplace)
    completed = workplace.succeed(*RUN)

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
    states = query(workplace.database, "SELECT day, state FROM report_run ORDER BY run_id")
    assert [row["state"] for row in states] == ["superseded"] + ["failed"] * 4 + ["published"] * 4
    changed = query(workplace.database, "SELECT day, level FROM report_change WHERE level = 'site'")
    assert [row["day"] for row in changed] == [str(ONE_RESULT)]
    assert workplace.succeed(*RUN).out == "test: nothing is due\n"


def test_a_full_disk_exits_74_and_leaves_the_old_report_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=8m") as disk:
        workplace = replace(embedded_workplace(tmp_path), database=f"sqlite:///{disk}/sam.db")
        workplace.write_configuration()
        fill(workplace)
        before = shown(workplace)
        with workplace.running(*RUN) as process:
            with blocking_the_run(workplace, process):
                fill_up(disk / "ballast")
            code = process.wait(TIMEOUT_S)
        log = (tmp_path / "running.log").read_text()
        (disk / "ballast").unlink()

        assert code == 74, log
        error = log.splitlines()[-1]
        assert error.startswith(f"sam-report: error: {workplace.database}: ")
        assert "disk is full" in error
        assert shown(workplace) == before


def test_without_spark_a_run_exits_69_and_readers_still_work(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    profile(tmp_path)
    hook = workplace.write("hook/sitecustomize.py", NO_SPARK).parent
    path = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
    workplace = replace(workplace, environment={"PYTHONPATH": path})
    options = ("--profile", "profile.toml", "--day", str(YESTERDAY))

    refused = workplace.run("sam-report", "run", *options)

    assert (refused.code, refused.out) == (69, ""), str(refused)
    assert "pyspark is not installed" in refused.err
    assert "pip install '.[reports]'" in refused.err
    workplace.succeed("sam-report", "show", "--day", str(YESTERDAY))


def test_a_downtime_that_ends_before_its_start_never_reaches_a_report(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    times = f"startTime: {YESTERDAY}T16:00:00Z\nendTime: {YESTERDAY}T14:00:00Z\n"
    record = f"siteName: A\n{times}classification: SCHEDULED\nseverity: OUTAGE\nEOT\n"

    refused = workplace.run("sam-publish", "send", "--class", "downtime", stdin=record)
    workplace.succeed("sam-publish", "send", "--raw", "--class", "downtime", stdin=record)
    loaded = workplace.run("sam-consume", "run", "--drain")

    assert refused.code == loaded.code == 65, str(refused)
    assert "before startTime" in refused.err
    [letter] = workplace.succeed("sam-consume", "dead-letter", "list", "--json").json
    assert letter["reason"] == "bad-time"
    assert "before startTime" in letter["error"]
    assert query(workplace.database, "SELECT * FROM report_downtime") == []
