"""Publishers whose clocks are wrong share a spool: ids stay unique, everything is delivered."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.services.process import free_ports
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.commands import Workplace
from tests.support.faketime import under
from tests.support.reports.stored import query

CLOCKS = ("+0s", "-1h", "-2d", "+1h")
"""The last one to fail remembers, an hour ahead, until when the broker rests."""
ROUNDS = 2
TIMESTAMP = "2026-11-20T12:00:00Z"


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def workplace(tmp_path: Path, port: int) -> Workplace:
    """A workplace whose broker is away until something listens on the port."""
    workplace = Workplace(
        tmp_path,
        broker=f"stomp://127.0.0.1:{port}",
        database=f"sqlite:///{tmp_path / 'sam.db'}",
        destination_prefix=f"/queue/clocks-{uuid.uuid4().hex}",
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    return workplace


def publish(workplace: Workplace, clock: str, number: int) -> tuple[str, str]:
    """Publish a result of a host of its own under this clock; the message id and the outcome."""
    answer = under(clock, workplace).succeed(
        *("sam-publish", "result", "--json", "--host", f"ce{number:02}.example.org"),
        *("--metric", "org.example.Ping", "--status", "OK", "--flavour", "CE"),
        *("--destination", f"{workplace.destination_prefix}.metricOutput"),
        *("--timestamp", TIMESTAMP),
    )
    [message] = answer.json["messages"]
    return message["message_id"], message["outcome"]


def test_publishers_with_wrong_clocks_fill_a_spool_that_another_one_drains(
    workplace: Workplace, rabbitmq: RabbitMQServer, port: int
) -> None:
    ids: dict[str, list[str]] = {clock: [] for clock in CLOCKS}
    for number in range(ROUNDS * len(CLOCKS)):
        clock = CLOCKS[number % len(CLOCKS)]
        identifier, outcome = publish(workplace, clock, number)
        ids[clock].append(identifier)
        assert outcome == "spooled"
    spooled = [
        element["message_id"]
        for element in workplace.succeed("sam-publish", "spool", "list", "--json").json
    ]

    with FaultProxy(rabbitmq.port, port=port):
        direct = dict(publish(workplace, clock, 90 + n) for n, clock in enumerate(CLOCKS))
        under("-2d", workplace).succeed("sam-publish", "spool", "drain")
        drained = workplace.run("sam-consume", "run", "--drain")

    every = [identifier for of_clock in ids.values() for identifier in of_clock]
    assert len({*every, *direct}) == (ROUNDS + 1) * len(CLOCKS)
    assert set(direct.values()) == {"published"}
    assert sorted(spooled) == sorted(every)
    for of_clock in ids.values():
        assert [identifier for identifier in spooled if identifier in of_clock] == of_clock
    assert workplace.spooled("outbox") == 0
    assert drained.code == 0, str(drained)
    [row] = query(workplace.database, "SELECT count(DISTINCT hostName) AS n FROM metricOutput")
    assert row["n"] == (ROUNDS + 1) * len(CLOCKS)
