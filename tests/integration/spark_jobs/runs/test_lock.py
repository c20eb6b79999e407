"""Of two concurrent runs of a report, or a run and a seal, the second waits, and logs for whom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.runs.lock import run_lock
from sam_pipeline.sql.database.engine import make_engine
from tests.services.postgres import as_role
from tests.support.reports.database import DAY, PROFILE, profile, url_of
from tests.support.reports.published_days import publish

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


def test_a_lock_ends_with_its_block(engine: Engine) -> None:
    messages: list[str] = []
    for _ in range(2):
        with run_lock(engine, ["b", "a", "b"], messages.append):
            pass
    with pytest.raises(KeyError), run_lock(engine, ["a"], messages.append):
        raise KeyError
    with run_lock(engine, ["a"], messages.append):
        pass

    assert messages == []
