"""Who sent a message, according to real brokers and signatures, whatever the message claims."""

from __future__ import annotations

import json
import os
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
    uid_identity,
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
from tests.support.consumer.site import Site, fill_spool, subscribe

FORGED = {"JMSXUserID": "root", IDENTITY: key_identity("root")}
KEY = key_identity("nagios1")


class Relay:
    """A relay from a topic of a broker to a spool."""

    def __init__(
        self, directory: Path, broker: StompServer, vouches: bool = True, trusts: str = ""
    ) -> None:
        """`trusts`: the user of another relay, which sends to the broker."""
        self.broker = broker
        self.topic = f"/topic/grid.probe.{uuid.uuid4().hex}"
        self.out = directory / "out"
        name = f"relay-{uuid.uuid4().hex[:8]}"
        config = directory / "sam.toml"
        config.write_text(
            f'[consumer]\nname = "{name}"\nbrokers = ["{broker.url}"]\n'
            f"vouches = {json.dumps([broker.url] * vouches)}\n"
            f"relays = {json.dumps([self.identity(trusts)] if trusts else [])}\n"
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


def test_a_trusted_relay_says_who_sent_a_message(tmp_path: Path, broker: StompServer) -> None:
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD)
    password_file.chmod(0o600)
    config = tmp_path / "in.toml"
    config.write_text(
        f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n'
        f'[[consumer.broker]]\nurl = "{broker.url}"\nuser = "{USER}"\n'
        f'password_file = "{password_file}"\n'
    )
    second = Relay(tmp_path, broker, trusts=USER)
    fill_spool(tmp_path / "in", [metric_message(destination=second.topic)])

    moved = Site(config, "", "").run("run", "--drain", "--to", broker.url)
    second.publish(metric_message(**FORGED), user="")
    identities = {identity_of(message) for message in second.relayed()}

    assert moved.returncode == 0, moved.stderr
    assert uid_identity(os.getuid()) in identities
    assert FORGED[IDENTITY] not in identities
    assert len(identities) == 2


def test_a_signature_is_good_until_its_key_is_withdrawn(
    tmp_path: Path, broker: StompServer
) -> None:
    make_key(tmp_path / "nagios1.pem")
    make_key(tmp_path / "new.pem")
    signer = load_signer(tmp_path / "nagios1.pem")
    policy = (
        f'mode = "enforce"\n[[publisher]]\nname = "nagios-cern"\nis = ["{KEY}"]\n'
        f'keys = ["{signer.public_key()}"]\nclasses = ["metricOutput"]\nsites = ["*"]\n'
    )
    (tmp_path / "publishers.toml").write_text(policy)
    prefixes = ("/topic/grid.probe.", "/queue/grid.probe.", "/topic/VirtualTopic.")
    destinations = [f"{prefix}{uuid.uuid4().hex}" for prefix in prefixes]

    def relay(name: str, url: str, subscriptions: str = "") -> Site:
        config = tmp_path / f"{name}.toml"
        head = f'[consumer]\nname = "relay-{uuid.uuid4().hex}"\nbrokers = ["{url}"]\n'
        config.write_text(f'{head}publishers = "publishers.toml"\n{subscriptions}')
        return Site(config, "", name)

    subscriptions = "".join(
        f'[[consumer.subscription]]\ndestination = "{name}"\nclass = "downtime"\n'
        f'format = "nstream"\nshared = {str("Virtual" in name).lower()}\n'
        for name in destinations
    )
    first = relay("first", broker.url, subscriptions)
    second = relay("second", f"spool://{tmp_path}/one")
    third = relay("third", f"spool://{tmp_path}/two")
    relayed(first, tmp_path / "one")  # subscribe
    for name in destinations:
        message = sign(metric_message(destination=name), signer, datetime.now(UTC))
        forged = Message(message.headers, message.body.replace(b"OK", b"CRITICAL"))
        both = [message, forged]
        publish(broker.host, broker.port, name, both, user=USER, password=PASSWORD)

    once = relayed(first, tmp_path / "one")
    twice = relayed(second, tmp_path / "two")
    new_key = str(load_signer(tmp_path / "new.pem").public_key())
    (tmp_path / "publishers.toml").write_text(policy.replace(str(signer.public_key()), new_key))
    thrice = relayed(third, tmp_path / "three")

    good = [message for message in once if not refusal_of(message)]
    refusals = [refusal_of(message) for message in (*once, *thrice)]
    assert [*map(identity_of, good)] == [KEY] * 3
    assert sorted(map(str, twice)) == sorted(map(str, once))
    assert [refusal.reason for refusal in refusals if refusal] == ["bad-signature"] * (3 + 6)
