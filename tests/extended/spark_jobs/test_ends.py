"""More ways in which `sam-report run` ends: signals, full disks, a terminal, own directories.

Most are in tests/acceptance/spark_jobs/test_run.py.
"""

from __future__ import annotations

import os
import pty
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.acceptance.spark_jobs.test_run import (
    HERE,
    RUN,
    TIMEOUT_S,
    add_result,
    assert_nothing_is_left,
    processes,
)
from tests.acceptance.spark_jobs.test_run import workplace as workplace  # a fixture
from tests.services.process import descendants
from tests.support.commands import PROGRAMS, Workplace, embedded_workplace
from tests.support.consumer.faults import fill_up
from tests.support.reports.database import DAY, Grid, profile
from tests.support.reports.published_days import publish
from tests.support.small_disk import small_disk
from tests.support.waiting import eventually

CTRL_C = b"\x03"
BAD = {"00:00": "CRITICAL"}


def test_a_run_terminated_while_spark_starts_removes_its_files_and_processes(
    workplace: Workplace,
) -> None:
    with workplace.running(*HERE) as process:
        eventually(lambda: "java" in processes(workplace).values(), TIMEOUT_S)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 143

    assert_nothing_is_left(workplace)
    assert (workplace.directory / "running.log").read_text() == ""


def test_ctrl_c_on_a_terminal_during_the_start_ends_it_with_one_line(workplace: Workplace) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workplace.directory)
        os.execve(PROGRAMS / RUN[0], RUN, workplace.clean_environment(RUN))
    with open(terminal, "rb", buffering=0) as screen:
        shown = screen.read(100)  # of the stage that begins
        time.sleep(0.2)
        os.write(terminal, CTRL_C)
        while part := rest_of(screen):
            shown += part
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 130
    assert shown.decode().splitlines()[1:] == ["sam-report: error: interrupted"]


def rest_of(screen: object) -> bytes:
    try:
        return screen.read(4096)  # type: ignore[attr-defined, no-any-return]
    except OSError:  # the terminal is closed
        return b""


# The archive of classes that `sam-report warm-up` writes ------------------------------------------


def test_a_run_uses_the_archive_of_warm_up_and_ignores_one_that_does_not_fit(
    workplace: Workplace,
) -> None:
    add_result(workplace)
    own_cache = {"XDG_CACHE_HOME": str(workplace.directory / "cache")}
    workplace = replace(workplace, environment={**workplace.environment, **own_cache})
    archive = workplace.directory / "cache" / "sam" / "spark.jsa"

    made = workplace.process("sam-report", "warm-up")
    with workplace.running(*HERE) as process:
        eventually(lambda: is_mapped(archive, descendants(process.pid)), TIMEOUT_S)
        code = process.wait(TIMEOUT_S)
    archive.write_bytes(b"of another Java" * 1000)
    ran = workplace.process(*HERE)

    assert made.out.startswith(f"{archive}: ") and made.err == ""
    assert [path.name for path in archive.parent.iterdir()] == ["spark.jsa"]
    assert (code, (workplace.directory / "running.log").read_text()) == (0, "")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def is_mapped(file: Path, pids: list[int]) -> bool:
    for pid in pids:
        try:
            if str(file) in Path(f"/proc/{pid}/maps").read_text():
                return True
        except OSError:  # it has just ended
            continue
    return False


# Full disks ---------------------------------------------------------------------------------------


def test_a_full_disk_of_the_database_exits_74_and_leaves_the_old_report_whole(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "small", "size=8m") as disk:
        workplace = replace(embedded_workplace(tmp_path), database=f"sqlite:///{disk}/sam.db")
        workplace.write_configuration()
        grid = Grid(workplace.database)
        grid.endpoint("A", "CE", "h1")
        for hour in range(24):
            grid.result("CE h1 ping", f"{hour:02}:00", "UNKNOWN")
        publish(grid.engine, profile(tmp_path), DAY, {"A CE h1": BAD})
        grid.dispose()
        show = ("sam-report", "show", "--day", str(DAY), "--json")
        before = workplace.process(*show).json
        with (
            workplace.running(*RUN[:-3], "profile.toml", *RUN[-2:]) as process,
            closing(sqlite3.connect(disk / "sam.db", isolation_level=None)) as connection,
        ):

            def has_begun() -> bool:
                """If so, its writes are blocked."""
                connection.execute("BEGIN IMMEDIATE")
                running = "SELECT count(*) FROM run WHERE state = 'running'"
                [begun] = connection.execute(running).fetchone()
                if not begun:
                    connection.execute("ROLLBACK")
                return bool(begun)

            eventually(has_begun, TIMEOUT_S)
            fill_up(disk / "ballast")
            connection.execute("ROLLBACK")
            code = process.wait(TIMEOUT_S)

        (disk / "ballast").unlink()
        log = (tmp_path / "running.log").read_text()
        assert code == 74, log
        error = log.splitlines()[-1]
        assert error.startswith(f"sam-report: error: {workplace.database}: ")
        assert "disk is full" in error
        assert workplace.process(*show).json == before
