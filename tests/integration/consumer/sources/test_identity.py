"""Who sent a message, according to real brokers, whatever the message claims."""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path

from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    IDENTITY,
    broker_identity,
    identity_of,
    key_identity,
    uid_identity,
)
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.broker import PASSWORD, USER, StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.builders import metric_message
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, fill_spool, subscribe

FORGED = {"JMSXUserID": "root", IDENTITY: key_identity("root")}


class Relay:
    """A relay from a topic of a broker to a spool."""

    def __init__(
        self, directory: Path, broker: StompServer, vouches: bool = True, trusts: str = ""
    ) -> None:
        """`trusts`: the user of another relay, which sends to the broker."""
        self.broker = broker
        self.topic = f"/topic/grid.probe.{uuid.uuid4().hex}"
        self.name = f"relay-{uuid.uuid4().hex[:8]}"
        self.out = directory / "out"
        vouching = json.dumps([broker.url] * vouches)
        config = directory / "sam.toml"
        config.write_text(
            f'[consumer]\nname = "{self.name}"\n'
            f'brokers = ["{broker.url}"]\nvouches = {vouching}\n'
            f"relays = {json.dumps([self.identity(trusts)] if trusts else [])}\n"
            f'[[consumer.subscription]]\ndestination = "{self.topic}"\n'
        )
        self.site = Site(config, "", self.name)
        subscribe(broker, self.name, self.topic)

    def publish(self, *messages: Message, user: str = USER) -> None:
        host, port = self.broker.host, self.broker.port
        publish(host, port, self.topic, messages, user=user, password=PASSWORD)

    def relayed(self) -> list[Message]:
        done = self.site.run("run", "--drain", "--to", f"spool://{self.out}")
        assert done.returncode == 0, done.stderr
        queue = DirectoryQueue(self.out)
        return [queue.read(name) for name in queue.names()]

    def identity(self, user: str) -> str:
        return broker_identity(str(parse_broker(self.broker.url)), user)


def test_a_broker_vouches_for_the_user_whatever_the_message_claims(
    tmp_path: Path, broker: StompServer
) -> None:
    relay = Relay(tmp_path, broker)
    # RabbitMQ verifies the name that a publisher gives; the others replace it.
    relay.publish(metric_message(**FORGED, **{"user-id": USER}))
    with suppress(ConnectionError):
        relay.publish(metric_message(**FORGED, **{"user-id": "root"}))

    identities = {identity_of(message) for message in relay.relayed()}
    checked = relay.site.run("check", "--connect", "--to", f"spool://{relay.out}")

    assert identities == {relay.identity(USER)}
    assert checked.returncode == 0, checked.stderr  # it has sent a forged name, too


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


def test_a_broker_that_does_not_vouch_is_not_believed(tmp_path: Path, broker: StompServer) -> None:
    relay = Relay(tmp_path, broker, vouches=False)
    relay.publish(metric_message(**FORGED, **{"user-id": USER}))

    (message,) = relay.relayed()

    assert message.headers[IDENTITY] == ANONYMOUS


def test_rabbitmq_knows_no_sender_unless_the_publisher_names_itself(
    tmp_path: Path, rabbitmq: RabbitMQServer
) -> None:
    relay = Relay(tmp_path, rabbitmq)
    relay.publish(metric_message(**FORGED))

    (message,) = relay.relayed()

    assert identity_of(message) == ANONYMOUS


def test_activemq_5_knows_the_user_and_nothing_of_others(
    tmp_path: Path, activemq5: ActiveMQ5Server
) -> None:
    relay = Relay(tmp_path, activemq5)
    relay.publish(metric_message(**FORGED))
    relay.publish(metric_message(**FORGED), user="")

    named, nameless = relay.relayed()

    assert identity_of(named) == relay.identity(USER)
    assert identity_of(nameless) == ANONYMOUS


def test_an_identity_survives_another_relay(tmp_path: Path, rabbitmq: RabbitMQServer) -> None:
    relay = Relay(tmp_path, rabbitmq)
    relay.publish(metric_message(**{"user-id": USER}))
    relay.publish(metric_message())
    first = relay.relayed()
    config = tmp_path / "second.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{relay.out}"]\n')

    done = Site(config, "", "").run("run", "--drain", "--to", f"spool://{tmp_path}/second")

    second = DirectoryQueue(tmp_path / "second")
    assert done.returncode == 0, done.stderr
    assert [*map(identity_of, first)] == [relay.identity(USER), ANONYMOUS]
    assert [second.read(name) for name in second.names()] == first
