"""`sam-consume find` as an operator runs it, on a host with a consumer and a publisher."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.consumer.commands.look.find import time_of_id
from sam_pipeline.schema.messages.message import Message, new_message_id
from sam_pipeline.schema.net.stomp.headers import REJECTED
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.brokers.fake_broker import closed_port
from tests.support.builders import metric_message, metric_result
from tests.support.commands import Workplace, embedded

NO_INPUT = 66
RESULT = ["result", "--metric", "org.example.Ping", "--status", "OK", "--host", "a.example.org"]


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(tmp_path: Path, request: pytest.FixtureRequest) -> Workplace:
    if request.param == "sqlite":
        return embedded(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path}/spool", database=fresh_database(server)
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    return workplace


def test_several_messages_are_found_wherever_they_are(workplace: Workplace) -> None:
    queue = DirectoryQueue(workplace.directory / "spool")
    both = metric_message(metric_result(), metric_result(metricStatus="FINE"))
    queue.add(both)
    assert workplace.run("sam-consume", "run", "--drain").code == 65
    waiting = metric_message()
    queue.add(waiting)
    down = ["--broker", f"stomp://127.0.0.1:{closed_port()}", "--flavour", "CE", "--json"]
    spooled = workplace.succeed("sam-publish", *RESULT, *down).json["messages"][0]["message_id"]
    unknown = new_message_id()

    ids = [both.message_id, waiting.message_id, spooled]
    answer = workplace.run("sam-consume", "find", "--days", "3653", "--json", *ids, unknown)

    assert answer.code == NO_INPUT
    first, second, third, last = answer.json
    assert first["rows"][0]["key"]["hostName"] == "ce01.example.org"
    assert [letter["reason"] for letter in first["dead_letters"]] == ["bad-status"]
    assert [element["state"] for element in second["spool"]] == ["waiting"]
    [element] = third["spool"]
    assert Path(element["file"]).is_file()
    assert element["headers"]["samProgram"].endswith(" result")
    assert (last["message_id"], last["found"]) == (unknown, False)
    assert str(queue.path) in last["searched"]["spools"]
    assert workplace.run("sam-consume", "find", *ids).code == 0
    assert queue.count() == 1


def test_a_host_without_a_database_has_only_spools(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path, broker="", database="sqlite://")
    workplace.write("sam.toml", f'[consumer]\nname = "r"\nbrokers = ["spool://{tmp_path}/in"]\n')
    message = metric_message()
    rejected = tmp_path / "state" / "sam" / "consume-r.rejected"
    rejected.parent.mkdir(parents=True)
    DirectoryQueue(rejected).add(
        Message({**message.headers, REJECTED: "no such address"}, message.body)
    )

    answer = workplace.run("sam-consume", "find", message.message_id)
    missing = workplace.run("sam-consume", "find", new_message_id())

    assert (answer.code, missing.code) == (0, NO_INPUT)
    assert "rejected: no such address" in answer.out
    assert "no database is configured" in missing.out


def test_only_ids_of_ours_have_a_time() -> None:
    made = time_of_id(new_message_id())

    assert made is not None
    assert made.year >= 2024
    assert time_of_id("sha256:0660f557bd1ea3") is None
    assert time_of_id("ffffffffffffff-3da37507d44158f917") is None
