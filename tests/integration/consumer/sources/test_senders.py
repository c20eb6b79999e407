"""Who sent a message, according to real brokers and signatures, whatever the message claims."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    IDENTITY,
    broker_identity,
    identity_of,
    key_identity,
)
from sam_pipeline.schema.identity.keys import load_signer, make_key
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.broker import PASSWORD, USER, StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.builders import metric_message
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, subscribe

FORGED = {"JMSXUserID": "root", IDENTITY: key_identity("root")}
KEY = key_identity("nagios1")


class Relay:
    """A relay from a topic of a broker to a spool."""

    def __init__(self, directory: Path, broker: StompServer, vouches: bool = True) -> None:
        self.broker = broker
        self.topic = f"/topic/grid.probe.{uuid.uuid4().hex}"
        self.out = directory / "out"
        name = f"relay-{uuid.uuid4().hex[:8]}"
        config = directory / "sam.toml"
        config.write_text(
            f'[consumer]\nname = "{name}"\nbrokers = ["{broker.url}"]\n'
            f"vouches = {json.dumps([broker.url] * vouches)}\n"
            f'[[consumer.subscription]]\ndestination = "{self.topic}"\n'
        )
        self.site = Site(config, "", name)
        subscribe(broker, name, self.topic)

    def publish(self, message: Message, user: str = USER) -> None:
        host, port = self.broker.host, self.broker.port
        publish(host, port, self.topic, [message], user=user, password=PASSWORD)

    def relayed(self) -> list[Message]:
        return relayed(self.site, self.out)

    def identity(self, user: str) -> str:
        return broker_identity(str(parse_broker(self.broker.url)), user)


def relayed(relay: Site, out: Path) -> list[Message]:
    done = relay.run("run", "--drain", "--to", f"spool://{out}")
    assert done.returncode == 0, done.stderr
    queue = DirectoryQueue(out)
    return [queue.read(name) for name in queue.names()]


def test_a_broker_vouches_for_the_user_of_a_message(tmp_path: Path, broker: StompServer) -> None:
    relay = Relay(tmp_path, broker)
    # RabbitMQ verifies the name that a publisher gives; the others replace it.
    relay.publish(metric_message(**FORGED, **{"user-id": USER}))
    with suppress(ConnectionError):
        relay.publish(metric_message(**FORGED, **{"user-id": "root"}))

    identities = {identity_of(message) for message in relay.relayed()}
    checked = relay.site.run("check", "--connect", "--to", f"spool://{relay.out}")

    assert identities == {relay.identity(USER)}
    assert checked.returncode == 0, checked.stderr  # it has sent a forged name, too


@on_brokers("activemq5", "rabbitmq")
def test_without_a_vouched_user_there_is_no_identity(tmp_path: Path, broker: StompServer) -> None:
    (tmp_path / "trusting").mkdir()
    relay, trusting = Relay(tmp_path, broker, vouches=False), Relay(tmp_path / "trusting", broker)
    relay.publish(metric_message(**FORGED, **{"user-id": USER}))
    trusting.publish(metric_message(**FORGED))
    trusting.publish(metric_message(**FORGED), user="")

    (unvouched,), (named, nameless) = relay.relayed(), trusting.relayed()

    # RabbitMQ knows no sender unless the publisher names itself.
    knows_user = not isinstance(broker, RabbitMQServer)
    assert identity_of(unvouched) == identity_of(nameless) == ANONYMOUS
    assert identity_of(named) == (trusting.identity(USER) if knows_user else ANONYMOUS)


def test_a_signature_is_good_however_a_broker_delivers_the_message(
    tmp_path: Path, broker: StompServer
) -> None:
    make_key(tmp_path / "nagios1.pem")
    signer = load_signer(tmp_path / "nagios1.pem")
    (tmp_path / "publishers.toml").write_text(
        f'mode = "enforce"\n[[publisher]]\nname = "nagios-cern"\nis = ["{KEY}"]\n'
        f'keys = ["{signer.public_key()}"]\nclasses = ["metricOutput"]\nsites = ["*"]\n'
    )
    prefixes = ("/topic/grid.probe.", "/queue/grid.probe.", "/topic/VirtualTopic.")
    destinations = [f"{prefix}{uuid.uuid4().hex}" for prefix in prefixes]
    first, second = (Site(tmp_path / f"{name}.toml", "", name) for name in ("first", "second"))
    head = '[consumer]\nname = "relay-{}"\nbrokers = ["{}"]\npublishers = "publishers.toml"\n'
    first.config.write_text(
        head.format(uuid.uuid4().hex, broker.url)
        + "".join(
            f'[[consumer.subscription]]\ndestination = "{name}"\nclass = "downtime"\n'
            f'format = "nstream"\nshared = {str("Virtual" in name).lower()}\n'
            for name in destinations
        )
    )
    second.config.write_text(head.format("second", f"spool://{tmp_path}/one"))
    relayed(first, tmp_path / "one")  # subscribe
    for name in destinations:
        message = sign(metric_message(destination=name), signer, datetime.now(UTC))
        forged = Message(message.headers, message.body.replace(b"OK", b"CRITICAL"))
        both = [message, forged]
        publish(broker.host, broker.port, name, both, user=USER, password=PASSWORD)

    once = relayed(first, tmp_path / "one")
    twice = relayed(second, tmp_path / "two")

    good = [message for message in once if not refusal_of(message)]
    refusals = [refusal_of(message) for message in once]
    assert [*map(identity_of, good)] == [KEY] * 3
    assert [refusal.reason for refusal in refusals if refusal] == ["bad-signature"] * 3
    assert sorted(map(str, twice)) == sorted(map(str, once))
