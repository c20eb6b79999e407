"""The private servers themselves: what other tests lean on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest

from tests.services import ServiceMissing, missing
from tests.services.activemq import ActiveMQServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import ServerProcess, alive, stomp_answers, wait_until
from tests.services.rabbitmq import RabbitMQServer

TESTS = Path(__file__).parents[1]


def test_each_database_is_new_and_empty(postgres: PostgresServer) -> None:
    first, second = fresh_database(postgres), fresh_database(postgres)

    assert first != second


def test_committed_rows_survive_a_killed_postgres(postgres: PostgresServer) -> None:
    database = fresh_database(postgres).rpartition("/")[2]
    postgres.execute("CREATE TABLE kept AS SELECT 1 AS number", database)

    postgres.kill()
    with pytest.raises(psycopg2.OperationalError):
        postgres.execute("SELECT 1", database)
    postgres.restart()

    postgres.execute("DROP TABLE kept", database)  # would raise without the table


def test_activemq_comes_back_on_its_port_after_a_kill(activemq: ActiveMQServer) -> None:
    activemq.kill()
    dead = stomp_answers(activemq.port)
    activemq.restart()

    assert not dead
    assert stomp_answers(activemq.port)


def test_rabbitmq_comes_back_on_its_port_after_a_kill(rabbitmq: RabbitMQServer) -> None:
    rabbitmq.kill()
    dead = stomp_answers(rabbitmq.port)
    rabbitmq.restart()

    assert not dead
    assert stomp_answers(rabbitmq.port)


@pytest.mark.parametrize("program", ["OWNER", "OWNER_OF_A_GROUP"])
def test_a_process_ends_when_its_owner_is_killed(tmp_path: Path, program: str) -> None:
    """Ctrl-C, a crash or SIGKILL of the test run leaves nothing behind."""
    command = [sys.executable, "-c", globals()[program], str(tmp_path / "log")]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    server_pid = int(owner.stdout.readline())

    owner.kill()
    owner.communicate()

    wait_until(lambda: not alive(server_pid), timeout_s=10)


OWNER = """
import sys, time
from pathlib import Path
from tests.services.process import ServerProcess
server = ServerProcess(command=["sleep", "600"], log=Path(sys.argv[1]), ready=lambda: True)
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""
OWNER_OF_A_GROUP = """
import subprocess, time
from tests.services.process import guarded_group
with guarded_group() as group:
    process = subprocess.Popen(["sleep", "600"], process_group=group)
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_a_server_that_dies_at_once_shows_its_log(tmp_path: Path) -> None:
    server = ServerProcess(
        command=["sh", "-c", "echo no such setting; exit 3"],
        log=tmp_path / "log",
        ready=lambda: False,
    )

    with pytest.raises(Exception, match="no such setting"):
        server.start()


def test_a_missing_service_skips_on_a_laptop_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason = ServiceMissing("Broker", "apt-get install broker")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install broker"):
        missing(reason.name, reason.how_to_get_it)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install broker"):
        missing(reason.name, reason.how_to_get_it)


def test_no_test_skips_in_another_way() -> None:
    call = re.compile(r"\b(skip|skipif|importorskip)\(")

    skipping = {path for path in TESTS.rglob("*.py") if call.search(path.read_text())}

    assert skipping == {TESTS / "services" / "__init__.py"}
