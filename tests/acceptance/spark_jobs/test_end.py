"""However `sam-report run` ends, none of its files and processes stay behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.sql.database.engine import make_engine, writing
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import alive, wait_until
from tests.support.commands import Workplace
from tests.support.reports.database import DAY, PROFILE, Grid
from tests.support.reports.stored import query

RUN = (
    "sam-report",
    "run",
    "-q",
    "--profile",
    "test.toml",
    "--day",
    str(DAY),
    "--master",
    "local[2]",
)
TIMEOUT_S = 180
TRIGGER = """
CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN {}; RETURN NEW; END $$;
CREATE TRIGGER on_insert BEFORE INSERT ON timeline_segment FOR EACH ROW EXECUTE FUNCTION on_insert()
"""


@pytest.fixture
def workplace(tmp_path: Path, postgres: PostgresServer) -> Workplace:
    """A workplace with an empty directory for temporary files, and results of one VO."""
    (tmp_path / "temporary files").mkdir()
    workplace = Workplace(
        tmp_path,
        f"spool://{tmp_path}/queue",
        fresh_database(postgres),
        environment={"TMPDIR": str(tmp_path / "temporary files")},
    )
    workplace.write_configuration()
    workplace.write("test.toml", PROFILE.replace('vo = "ops"\n', ""))
    grid = Grid(workplace.database)
    grid.endpoint("A", "SRM", "se.A")
    grid.result("SRM se.A put", "12:00", "OK")
    grid.dispose()
    return workplace


def temporary_files(workplace: Workplace) -> list[str]:
    return os.listdir(workplace.environment["TMPDIR"])


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


def wait_for_the_end(workplace: Workplace) -> None:
    wait_until(lambda: not processes(workplace), TIMEOUT_S)


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

        wait_until(waits, TIMEOUT_S)
        yield
    engine.dispose()


def test_a_run_removes_its_files_and_processes(workplace: Workplace) -> None:
    workplace.succeed(*RUN)

    assert temporary_files(workplace) == []
    wait_for_the_end(workplace)


def test_a_run_with_directories_of_its_own_removes_its_files(workplace: Workplace) -> None:
    local = workplace.directory / "local"
    local.mkdir()

    workplace.succeed(*RUN, "--conf", f"spark.local.dir={local}")

    assert temporary_files(workplace) == os.listdir(local) == []
    wait_for_the_end(workplace)


def test_a_refused_run_removes_its_files_and_processes(workplace: Workplace) -> None:
    grid = Grid(workplace.database)
    grid.result("SRM se.A put", "13:00", "OK", vo="other")
    grid.dispose()

    refused = workplace.run(*RUN)

    assert refused.code == 78, str(refused)
    assert temporary_files(workplace) == []
    wait_for_the_end(workplace)


def test_a_run_with_a_failed_task_removes_its_files_and_processes(workplace: Workplace) -> None:
    on_insert(workplace, "RAISE 'this disk is broken'")

    failed = workplace.run(*RUN)

    assert failed.code == 69, str(failed)
    assert failed.err == "sam-report: error: Spark failed: P0001: this disk is broken\n"
    assert temporary_files(workplace) == []
    wait_for_the_end(workplace)


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "sam-report: error: interrupted\n")],
)
def test_an_interrupted_run_fails_and_removes_its_files_and_processes(
    workplace: Workplace, number: signal.Signals, code: int, message: str
) -> None:
    with workplace.running(*RUN) as process:
        with blocked(workplace, process):
            process.send_signal(number)
            assert process.wait(TIMEOUT_S) == code
        wait_for_the_end(workplace)

    assert temporary_files(workplace) == []
    assert (workplace.directory / "running.log").read_text() == message
    states = query(workplace.database, "SELECT state FROM report_run")
    assert states == [{"state": "failed"}]


def test_a_run_interrupted_while_spark_starts_removes_its_files_and_processes(
    workplace: Workplace,
) -> None:
    with workplace.running(*RUN) as process:
        wait_until(lambda: "java" in processes(workplace).values(), TIMEOUT_S)
        process.terminate()
        assert process.wait(TIMEOUT_S) == 143
        wait_for_the_end(workplace)

    assert temporary_files(workplace) == []
    assert (workplace.directory / "running.log").read_text() == ""


def test_java_removes_the_files_of_a_killed_run(workplace: Workplace) -> None:
    with workplace.running(*RUN) as process:
        with blocked(workplace, process):
            process.kill()
        wait_for_the_end(workplace)

    assert temporary_files(workplace) == []


def test_a_run_without_enough_memory_for_java_removes_its_files(workplace: Workplace) -> None:
    refused = workplace.run(*RUN, "--conf", "spark.driver.memory=1m")

    assert refused.code == 69, str(refused)
    assert temporary_files(workplace) == []
    wait_for_the_end(workplace)
