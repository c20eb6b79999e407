"""Spark that does not start, or finds no worker: exit code 69 and one line with the cause."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

import pytest

from sam_pipeline.spark_jobs.compute.cluster.watcher import Watcher
from sam_pipeline.spark_jobs.config import find_java
from tests.services import missing
from tests.services.process import HOST, free_ports
from tests.services.spark_cluster import running_cluster
from tests.support.commands import PROGRAMS, Answer, Workplace, embedded
from tests.support.reports.database import DAY, PROFILE, Grid
from tests.support.small_disk import small_disk

RUN = ("sam-report", "run", "-q", "--profile", "test.toml", "--day", str(DAY))
CTRL_C = b"\x03"


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    workplace = embedded(tmp_path)
    workplace.write("test.toml", PROFILE)
    grid = Grid(workplace.database)
    grid.endpoint("A", "SRM", "se.A")
    grid.result("SRM se.A put", "12:00", "OK")
    grid.dispose()
    return workplace


def error_of(answer: Answer, code: int) -> str:
    """The only line of an answer."""
    assert answer.code == code, str(answer)
    assert answer.out == ""
    [line] = answer.err.splitlines()
    assert line.startswith("sam-report: error: "), line
    return line


def test_a_master_that_is_away_is_an_error_at_once(workplace: Workplace) -> None:
    [port] = free_ports(1)

    away = workplace.run(*RUN, "--master", f"spark://{HOST}:{port}")

    assert f"{HOST}:{port}: connection refused" in error_of(away, 69)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (("--master", "local[x]"), "Could not parse Master URL: 'local[x]'"),
        (("--master", "locl"), "Master must"),
        (("--conf", "spark.driver.memory=100m"), "INVALID_DRIVER_MEMORY"),
        (("--conf", "spark.driver.memory=1m"), "Too small maximum heap"),
        (("--conf", "spark.driver.memory=abc"), "Invalid maximum heap size"),
    ],
)
def test_wrong_settings_of_spark_are_one_line_with_the_innermost_cause(
    workplace: Workplace, wrong: tuple[str, str], cause: str
) -> None:
    assert cause in error_of(workplace.run(*RUN, *wrong), 69)


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": "/nowhere/java"}
    workplace = Workplace(
        tmp_path, "spool:///q", f"sqlite:///{tmp_path}/sam.db", environment=environment
    )

    warm_up = workplace.run("sam-report", "warm-up")

    line = error_of(warm_up, 69)
    assert "JAVA_HOME" in line
    assert environment["JAVA_HOME"] in line


def test_a_run_without_a_free_worker_warns_and_ends_after_the_timeout(workplace: Workplace) -> None:
    section = "[report]\nstart_timeout_s = 25\n"
    workplace.write("sam.toml", f'[database]\nurl = "{workplace.database}"\n{section}')
    run = [argument for argument in RUN if argument != "-q"]
    with running_cluster(workers=0) as cluster:
        gave_up = workplace.run(
            *run, "--master", cluster.url, "--conf", f"spark.driver.host={HOST}"
        )

    assert gave_up.code == 69, str(gave_up)
    *_, warning, error = gave_up.err.splitlines()
    assert f"WARNING {Watcher.__module__}: {cluster.url}" in warning
    assert error.startswith("sam-report: error: ")
    assert "start_timeout_s" in error
    assert gave_up.err.count("start_timeout_s") == 2


def test_a_full_disk_of_spark_is_named(workplace: Workplace) -> None:
    with small_disk(workplace.directory / "disk", "nr_inodes=10") as disk:
        full = workplace.run(*RUN, "--master", "local[2]", "--conf", f"spark.local.dir={disk}")

    assert str(disk) in error_of(full, 74)


def test_ctrl_c_on_a_terminal_during_the_start_ends_it_with_one_line(workplace: Workplace) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workplace.directory)
        os.execve(PROGRAMS / RUN[0], RUN, workplace.clean_environment())
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
