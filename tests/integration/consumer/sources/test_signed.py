"""Signed messages through real brokers and relays: the signature stays good on the whole way."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.identity import identity_of, key_identity
from sam_pipeline.schema.identity.keys import Signer, load_signer, make_key
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.broker import PASSWORD, USER, StompServer
from tests.support.builders import metric_message
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site

KEY = key_identity("nagios1")


@dataclass(frozen=True)
class Host:
    """A directory with a policy that knows the key of the signer."""

    directory: Path
    signer: Signer

    def signed(self, destination: str, **headers: str) -> Message:
        message = metric_message(destination=destination, **headers)
        return sign(message, self.signer, datetime.now(UTC))

    def relay(self, name: str, broker: str, settings: str = "", subscription: str = "") -> Site:
        config = self.directory / f"{name}.toml"
        config.write_text(
            f'[consumer]\nname = "{name}"\nbrokers = ["{broker}"]\n'
            f'publishers = "publishers.toml"\n{settings}\n{subscription}\n'
        )
        return Site(config, "", name)

    def relayed(self, relay: Site) -> list[Message]:
        out = self.directory / f"from-{relay.name}"
        done = relay.run("run", "--drain", "--to", f"spool://{out}")
        assert done.returncode == 0, done.stderr
        queue = DirectoryQueue(out)
        return [queue.read(name) for name in queue.names()]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    make_key(tmp_path / "nagios1.pem")
    signer = load_signer(tmp_path / "nagios1.pem")
    (tmp_path / "publishers.toml").write_text(
        f'mode = "enforce"\n[[publisher]]\nname = "nagios-cern"\nis = ["{KEY}"]\n'
        f'keys = ["{signer.public_key()}"]\nclasses = ["metricOutput"]\nsites = ["*"]\n'
    )
    return Host(tmp_path, signer)


@pytest.mark.parametrize(
    ("sent_to", "shared"),
    [
        ("/topic/grid.probe.{name}", False),
        ("/queue/grid.probe.{name}", False),
        ("/topic/VirtualTopic.{name}", True),
    ],
)
def test_a_signature_is_good_however_the_broker_delivers_the_message(
    host: Host, broker: StompServer, sent_to: str, shared: bool
) -> None:
    destination = sent_to.format(name=uuid.uuid4().hex)
    subscription = (
        f"[[consumer.subscription]]\ndestination = {json.dumps(destination)}\n"
        f'shared = {str(shared).lower()}\nclass = "downtime"\nformat = "nstream"\n'
    )
    relay = host.relay(f"relay-{uuid.uuid4().hex[:8]}", broker.url, subscription=subscription)
    host.relayed(relay)  # subscribe
    message = host.signed(destination)
    forged = Message(message.headers, message.body.replace(b"OK", b"CRITICAL"))

    publish(broker.host, broker.port, destination, [message, forged], user=USER, password=PASSWORD)
    good, bad = host.relayed(relay)

    refusal = refusal_of(bad)
    assert (identity_of(good), refusal_of(good)) == (KEY, None)
    assert refusal
    assert refusal.reason == "bad-signature"


def test_a_signature_survives_two_relays_and_says_who_sent_the_message(host: Host) -> None:
    destination = "/topic/grid.probe.metricOutput"
    DirectoryQueue(host.directory / "in").add(host.signed(destination))
    first = host.relay("first", f"spool://{host.directory}/in")
    second = host.relay("second", f"spool://{host.directory}/from-first")

    (once,), (twice,) = host.relayed(first), host.relayed(second)

    assert identity_of(once) == KEY
    assert twice == once


def test_a_key_that_is_withdrawn_at_the_second_relay_proves_nothing_there(host: Host) -> None:
    DirectoryQueue(host.directory / "in").add(host.signed("/topic/grid.probe.metricOutput"))
    host.relayed(host.relay("first", f"spool://{host.directory}/in"))
    make_key(host.directory / "new.pem")
    policy = host.directory / "publishers.toml"
    new = load_signer(host.directory / "new.pem").public_key()
    policy.write_text(policy.read_text().replace(str(host.signer.public_key()), str(new)))

    (message,) = host.relayed(host.relay("second", f"spool://{host.directory}/from-first"))

    refusal = refusal_of(message)
    assert refusal
    assert refusal.reason == "bad-signature"
