"""Of two concurrent runs of a report the second waits, and logs for which process."""

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
from tests.support.reports.database import PROFILE
from tests.support.reports.runs import url_of

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
        env={**os.environ, "SAM_DATABASE_URL": url_of(engine)},
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
    with started(engine, "-c", HOLD, url_of(engine), *reports) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


@contextmanager
def running(engine: Engine, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """`sam-report run`, which ends without Spark because no day is due."""
    path = directory / "test.toml"
    path.write_text(PROFILE)
    with started(
        engine, "-m", "sam_pipeline.spark_jobs", "run", "--due", "--profile", str(path)
    ) as process:
        yield process


def test_a_second_run_waits_for_the_first_and_reports_it_once(
    engine: Engine, tmp_path: Path
) -> None:
    with holding(engine, "test") as first, running(engine, tmp_path) as second:
        assert second.stderr is not None
        message = second.stderr.readline()
        waits = second.poll() is None
        first.communicate("", timeout=TIMEOUT_S)
        out, more = second.communicate(timeout=TIMEOUT_S)

    assert waits
    assert re.search(r"report test: another run .*process \d+ .*, since 20", message)
    assert (second.returncode, out, more) == (0, "test: nothing is due\n", "")


def test_the_lock_of_a_killed_run_is_released(engine: Engine, tmp_path: Path) -> None:
    with holding(engine, "test") as first, running(engine, tmp_path) as second:
        assert second.stderr is not None
        second.stderr.readline()
        first.kill()
        out, _ = second.communicate(timeout=TIMEOUT_S)

    assert (second.returncode, out) == (0, "test: nothing is due\n")


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
