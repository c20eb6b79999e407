"""A broker whose store is full: `sam-publish` goes on to the next one, or spools, in time."""

from __future__ import annotations

import itertools
import uuid
from contextlib import ExitStack
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


@pytest.mark.parametrize("kind", ["activemq blocks", "activemq fails", "artemis", "rabbitmq"])
def test_what_a_full_broker_does_not_take_goes_to_the_next_one_or_waits_in_the_spool_for_room(
    kind: str, artemis: ArtemisServer, rabbitmq: RabbitMQServer, tmp_path: Path
) -> None:
    name, _, mode = kind.partition(" ")
    places: dict[str, str] = {}
    with ExitStack() as stack, ExitStack() as room:
        broker: StompServer = artemis
        if name == "activemq":
            rules = ActiveMQRules(when_full=cast(Literal["blocks", "fails"], mode))
            broker = stack.enter_context(needed(running_activemq(rules)))
        elif name == "rabbitmq":
            broker = stack.enter_context(needed(running_rabbitmq()))
        other: StompServer = artemis if name == "rabbitmq" else rabbitmq
        destination = f"/queue/{SMALL if name == 'artemis' else ''}{uuid.uuid4().hex}"
        workplace = Workplace(tmp_path, broker.url, "sqlite:///unused").write_configuration()
        spool = DirectoryQueue(tmp_path / "outbox")

        def send(numbers: range, *options: str) -> Answer:
            """Publish records of 20 kB each, and check that they are stored in time."""
            records = numbered("full", numbers, detailsData=DETAILS)
            answer = workplace.succeed(
                *("sam-publish", "send", "--one-per-message", "--json"),
                *("--timeout", f"{TIMEOUT_S}", "--destination", destination, *options),
                stdin="".join(message.body.decode() for message in records),
            )
            assert answer.json["elapsed_s"] < TIMEOUT_S + SLACK_S
            places.update({item["message_id"]: item["place"] for item in answer.json["messages"]})
            return answer

        def stored_at(server: StompServer) -> list[str]:
            return [identifier for identifier, place in places.items() if server.url in place]

        for start in itertools.count(step=CHUNK):
            send(range(start, start + CHUNK))
            if spool.count():
                break
            if isinstance(broker, RabbitMQServer):
                room.enter_context(broker.full())
        assert broker.url in send(range(10**6, 10**6 + FEW)).err
        spooled = [spool.read(name).message_id for name in spool.names()]
        assert len(spooled) >= FEW

        send(range(2 * 10**6, 2 * 10**6 + FEW), "--broker", broker.url, "--broker", other.url)
        confirmed = stored_at(other)
        delivered = received_ids(other, destination, confirmed)
        assert len(confirmed) > FEW // 2

        room.close()  # makes room, unless reading the destination does
        delivered += received_ids(broker, destination, stored_at(broker))
        with workplace.running("sam-publish", "spool", "drain", "--loop"):
            delivered += received_ids(broker, destination, {*spooled} - {*delivered})
            eventually(lambda: not spool.count())
        conserved(places, delivered, spool)
