"""Nights on which `sam-report run` finds little, or is stopped: what readers see then."""

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

# One moment for all: midnight may pass while the tests run.
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
NOTHING_EXPECTED, ONE_RESULT, ALL_UNKNOWN, NO_RESULTS = (
    YESTERDAY - timedelta(days=age) for age in (3, 2, 1, 0)
)
TIMEOUT_S = 180
RUN = ("sam-report", "run", "--profile", "profile.toml", "--due")
NO_SPARK = "import sys\nsys.modules['pyspark'] = None\n"


def fill(place: Workplace) -> None:
    """Four days on which there is little to report, and an old report of the second."""
    report = profile(place.directory, ('validity_s = "off"', "validity_s = 7200"))
    grid = Grid(place.database)
    grid.endpoint("A", "CE", "h1", validFrom=f"{ONE_RESULT}T00:00:00Z")
    for metric in ("ping", "submit"):
        for day in (NOTHING_EXPECTED, ONE_RESULT):
            grid.result(f"CE h1 {metric}", "12:00", "OK", day=day)
        for hour in range(24):
            grid.result(f"CE h1 {metric}", f"{hour:02}:00", "UNKNOWN", day=ALL_UNKNOWN)
    publish(grid.engine, report, ONE_RESULT, {"A CE h1": {"00:00": "CRITICAL"}})
    grid.dispose()


def shown(place: Workplace) -> dict[date, dict[str, Any]]:
    """What readers see of the site, day by day."""
    days = {}
    for day in (NOTHING_EXPECTED, ONE_RESULT, ALL_UNKNOWN, NO_RESULTS):
        for figure in place.succeed("sam-report", "show", "--day", str(day), "--json").json:
            days[day] = {
                name: figure[name] for name in ("availability", "reliability", "unknown", "missed")
            }
    return days


@contextmanager
def writer_waiting(place: Workplace, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Amid a run: it has begun to compute, and nothing is written before the block ends."""
    file = place.database.removeprefix("sqlite:///")
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


def test_a_night_with_little_to_report_is_killed_and_mended_by_the_next(tmp_path: Path) -> None:
    place = embedded_workplace(tmp_path)
    fill(place)
    before = shown(place)

    with place.running(*RUN) as process, writer_waiting(place, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    after_the_kill = shown(place)
    mended = place.succeed(*RUN)

    assert after_the_kill == before
    assert list(before) == [ONE_RESULT]
    assert mended.err.rstrip().endswith("test: never seen, so MISSING: put of SRM")
    assert mended.out.startswith(f"test {NOTHING_EXPECTED} to {NO_RESULTS}: 52 results")
    assert "(2 not-in-topology ignored)" in mended.out
    assert f"no data on {NOTHING_EXPECTED}, {NO_RESULTS}" in mended.out
    nothing = {"availability": None, "reliability": None, "unknown": 100, "missed": ["unknown"]}
    assert shown(place) == {
        ONE_RESULT: {**nothing, "availability": 100, "reliability": 100, "unknown": 91.66667},
        ALL_UNKNOWN: nothing,
        NO_RESULTS: nothing,
    }
    states = query(place.database, "SELECT day, state FROM report_run ORDER BY run_id")
    assert [row["state"] for row in states] == ["superseded"] + ["failed"] * 4 + ["published"] * 4
    changed = query(place.database, "SELECT day, level FROM report_change WHERE level = 'site'")
    assert [row["day"] for row in changed] == [str(ONE_RESULT)]
    assert place.succeed(*RUN).out == "test: nothing is due\n"


def test_a_full_disk_exits_74_and_leaves_the_old_report_whole(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=8m") as disk:
        place = replace(embedded_workplace(tmp_path), database=f"sqlite:///{disk}/sam.db")
        place.write_configuration()
        fill(place)
        before = shown(place)
        with place.running(*RUN) as process:
            with writer_waiting(place, process):
                fill_up(disk / "ballast")
            code = process.wait(TIMEOUT_S)
        said = (tmp_path / "running.log").read_text()
        (disk / "ballast").unlink()

        assert code == 74, said
        assert said.splitlines()[-1] == (
            f"sam-report: error: {place.database}: database or disk is full;"
            " make room, then try again"
        )
        assert shown(place) == before


def test_without_spark_a_run_exits_69_and_readers_read(tmp_path: Path) -> None:
    place = embedded(tmp_path)
    profile(tmp_path)
    hook = place.write("hook/sitecustomize.py", NO_SPARK).parent
    path = os.pathsep.join([str(hook), *filter(None, [os.environ.get("PYTHONPATH")])])
    place = replace(place, environment={"PYTHONPATH": path})
    words = ("--profile", "profile.toml", "--day", str(YESTERDAY))

    refused = place.run("sam-report", "run", *words)

    assert (refused.code, refused.out) == (69, ""), str(refused)
    assert "error: Spark is missing (pyspark" in refused.err
    assert "pip install 'sam-pipeline[reports]'" in refused.err
    place.succeed("sam-report", "show", "--day", str(YESTERDAY))


def test_a_downtime_that_ends_before_it_begins_never_reaches_a_report(tmp_path: Path) -> None:
    place = embedded(tmp_path)
    times = f"startTime: {YESTERDAY}T16:00:00Z\nendTime: {YESTERDAY}T14:00:00Z\n"
    record = f"siteName: A\n{times}classification: SCHEDULED\nseverity: OUTAGE\nEOT\n"
    place.succeed("sam-publish", "send", "--class", "downtime", stdin=record)

    loaded = place.run("sam-consume", "run", "--drain")

    assert loaded.code == 65, str(loaded)
    [letter] = place.succeed("sam-consume", "dead-letter", "list", "--json").json
    assert letter["reason"] == "refused-by-database"
    assert "endTime: is before startTime" in letter["error"]
    assert query(place.database, "SELECT * FROM report_downtime") == []
