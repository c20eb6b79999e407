"""A broker whose store is full: `sam-publish` goes on to the next one, or spools, in time."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.activemq import ActiveMQRules, running_activemq
from tests.services.artemis import SMALL, ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer, running_rabbitmq
from tests.support.brokers.queue_reader import received_ids
from tests.support.commands import Answer, Workplace
from tests.support.conservation import conserved, numbered
from tests.support.waiting import eventually

TIMEOUT_S, SLACK_S = 4.0, 8.0
CHUNK, FEW = 200, 20
DETAILS = "x" * 20_000


@dataclass
class Full:
    """A broker whose store is full, and what `sam-publish` reported until then."""

    broker: StompServer
    destination: str
    workplace: Workplace
    room: ExitStack
    """Closing it makes room, unless reading the destination does."""
    places: dict[str, str] = field(default_factory=dict)
    """By message id: where it was stored."""

    def stored_at(self, broker: StompServer) -> list[str]:
        return [identifier for identifier, place in self.places.items() if broker.url in place]

    @property
    def spool(self) -> DirectoryQueue:
        return DirectoryQueue(self.workplace.directory / "outbox")

    def send(self, numbers: range, *options: str) -> Answer:
        """Publish records of 20 kB each, and check that they are stored in time."""
        records = numbered("full", numbers, detailsData=DETAILS)
        answer = self.workplace.succeed(
            *("sam-publish", "send", "--one-per-message", "--json", "--timeout", f"{TIMEOUT_S}"),
            *("--destination", self.destination, *options),
            stdin="".join(message.body.decode() for message in records),
        )
        assert answer.json["elapsed_s"] < TIMEOUT_S + SLACK_S
        self.places |= {item["message_id"]: item["place"] for item in answer.json["messages"]}
        return answer


@pytest.fixture(params=["activemq blocks", "activemq fails", "artemis", "rabbitmq"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Full]:
    name, _, mode = request.param.partition(" ")
    with ExitStack() as stack:
        room = stack.enter_context(ExitStack())
        if name == "activemq":
            rules = ActiveMQRules(when_full=cast(Literal["blocks", "fails"], mode))
            broker: StompServer = stack.enter_context(needed(running_activemq(rules)))
        elif name == "rabbitmq":
            broker = stack.enter_context(needed(running_rabbitmq()))
        else:
            broker = request.getfixturevalue(name)
        destination = f"/queue/{SMALL if name == 'artemis' else ''}{uuid.uuid4().hex}"
        workplace = Workplace(tmp_path, broker.url, "sqlite:///unused").write_configuration()
        full = Full(broker, destination, workplace, room)
        for start in itertools.count(step=CHUNK):
            full.send(range(start, start + CHUNK))
            if full.spool.count():
                break
            if isinstance(broker, RabbitMQServer):
                room.enter_context(broker.full())
        yield full


def test_what_a_full_broker_does_not_take_goes_to_the_next_one_or_waits_in_the_spool_for_room(
    full: Full, artemis: ArtemisServer, rabbitmq: RabbitMQServer
) -> None:
    other: StompServer = artemis if isinstance(full.broker, RabbitMQServer) else rabbitmq
    answer = full.send(range(10**6, 10**6 + FEW))
    assert full.broker.url in answer.err
    spooled = [full.spool.read(name).message_id for name in full.spool.names()]
    assert len(spooled) >= FEW

    full.send(range(2 * 10**6, 2 * 10**6 + FEW), "--broker", full.broker.url, "--broker", other.url)
    confirmed = full.stored_at(other)
    delivered = received_ids(other, full.destination, confirmed)
    assert len(confirmed) > FEW // 2

    full.room.close()
    delivered += received_ids(full.broker, full.destination, full.stored_at(full.broker))
    with full.workplace.running("sam-publish", "spool", "drain", "--loop"):
        delivered += received_ids(full.broker, full.destination, {*spooled} - {*delivered})
        eventually(lambda: not full.spool.count())
    conserved(full.places, delivered, full.spool)
