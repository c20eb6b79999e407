"""Wherever messages enter, nobody speaks for others: forged senders, forged and missing signatures.

At each entrance everything is published once. The user `sam` sends unsigned results of its own
hosts; `sam-other` must sign those of its hosts.
"""

from __future__ import annotations

import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.identity import IDENTITY, broker_identity
from sam_pipeline.schema.identity.keys import Signer, make_key
from sam_pipeline.schema.identity.signature import load_signer, sign
from sam_pipeline.schema.messages.message import (
    CLASS,
    MESSAGE_ID,
    SIGNATURE,
    Message,
    new_message_id,
)
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.integration.consumer.sources.test_bad_frames import is_confirmed
from tests.services.broker import OTHER_USER, USER, StompServer
from tests.services.brokers import BROKERS
from tests.services.postgres import fresh_database
from tests.services.rabbitmq import RabbitMQServer
from tests.support.conservation import key_of, numbered
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.drawn_messages import DrawnMessage, draw_message, good_message
from tests.support.consumer.memory import peak_mb
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import WAIT_S, Site, eventually, subscribe
from tests.support.reports.stored import query

OWN, FOREIGN = "ce01.own.example.org", "ce01.foreign.example.org"
POLICY = """
mode = "enforce"
[[publisher]]
name = "own"
is = ["{own}"]
classes = ["metricOutput"]
hosts = ["*.own.example.org"]
[[publisher]]
name = "foreign"
is = ["{foreign}", "key:{signer.name}"]
keys = ["{key}"]
signed = true
classes = ["metricOutput"]
hosts = ["*.foreign.example.org"]
"""


@dataclass(frozen=True)
class Entrance:
    """A broker or a spool, and the identities of the two users there."""

    url: str
    database: str
    identities: Mapping[str, str]
    send: Callable[[str, str, Sequence[Message]], None]
    """Publishes messages as a user, to a destination."""
    vouched: Callable[[str], dict[str, str]] = lambda user: {}
    """The headers that an honest user adds."""


@dataclass(frozen=True)
class Outcome:
    """The site whose consumer has loaded everything."""

    entrance: Entrance
    site: Site

    def publishers(self, prefix: str) -> set[str]:
        """The senders of the rows of these records."""
        where = f"summaryData LIKE '{prefix}-%'"
        return {*self.site.column(f"SELECT publisher FROM metricOutput WHERE {where}")}

    def letters(self, *prefixes: str) -> list[tuple[str, str, str]]:
        """Key, reason and error of the dead letters of these records."""
        rows = query(self.site.database, "SELECT reason, error, body FROM dead_letter")
        letters = [(key_of(bytes(row["body"])), row["reason"], row["error"]) for row in rows]
        return [letter for letter in letters if letter[0].rpartition("-")[0] in prefixes]


@pytest.fixture(scope="module", params=BROKERS)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcome_of(_broker(request), tmp_path_factory.mktemp("entrance"))


def outcome_of(entrance: Entrance, directory: Path) -> Outcome:
    """Publish everything at this entrance, and load it."""
    make_key(directory / "nagios.pem")
    signer = load_signer(directory / "nagios.pem")
    own, foreign = entrance.identities[USER], entrance.identities[OTHER_USER]
    policy = directory / "publishers.toml"
    key = signer.public_key()
    policy.write_text(POLICY.format(own=own, foreign=foreign, signer=signer, key=key))
    destinations = [f"/topic/grid.{uuid.uuid4().hex}" for _ in range(2)]
    site = site_of(
        directory,
        [entrance.url],
        *map(Subscription, destinations),
        database=entrance.database,
        policy_file=policy,
        trusted_brokers=[url for url in [entrance.url] if url.startswith("stomp")],
    )
    if entrance.url.startswith("stomp"):
        site.drain()
    sent = _publish_everything(entrance, signer, *destinations)
    drained = site.drain()
    assert drained.summary["messages"] == sent, drained.log
    return Outcome(entrance, site)


def _publish_everything(entrance: Entrance, signer: Signer, here: str, elsewhere: str) -> int:
    """Returns the number of messages."""
    sent = 0

    def send(user: str, messages: Sequence[Message], to: str = here) -> None:
        nonlocal sent
        headers = entrance.vouched(user)
        entrance.send(user, to, [_with(message, **headers) for message in messages])
        sent += len(messages)

    now = datetime.now(UTC)

    def signed(prefix: str, count: int, at: datetime = now) -> list[Message]:
        messages = numbered(prefix, range(count), hostName=FOREIGN)
        return [sign(_with(message, destination=here), signer, at) for message in messages]

    # A user who claims to be the other one.
    claims = {IDENTITY: entrance.identities[OTHER_USER], "JMSXUserID": OTHER_USER}
    for prefix, host in (("claimed", FOREIGN), ("allowed", OWN)):
        send(USER, [_with(m, **claims) for m in numbered(prefix, range(2), hostName=host)])

    # Signatures that are right, missing, wrong, expired, or of another message.
    right = signed("signed", 4)
    send(OTHER_USER, right)
    send(OTHER_USER, right[:2])  # a redelivery
    send(USER, right[2:3])  # and one by another user
    send(OTHER_USER, numbered("unsigned", range(2), hostName=FOREIGN))
    [changed, unknown] = signed("wrong", 2)
    send(OTHER_USER, [Message(changed.headers, changed.body.replace(b"OK", b"CRITICAL"))])
    send(OTHER_USER, [_with(unknown, **{SIGNATURE: "AAAA"})])
    send(OTHER_USER, signed("expired", 2, now - timedelta(days=31)))
    [moved, other_class, other_id] = signed("moved", 3)
    send(OTHER_USER, [moved], to=elsewhere)
    send(OTHER_USER, [_with(other_class, **{CLASS: "siteGroup"})])
    send(OTHER_USER, [_with(other_id, **{MESSAGE_ID: new_message_id()})])
    return sent


def test_a_result_of_a_foreign_host_is_a_dead_letter_whoever_its_sender_claims_to_be(
    outcome: Outcome,
) -> None:
    identity = outcome.entrance.identities[USER]

    letters = outcome.letters("claimed")
    assert sorted((key, reason) for key, reason, _ in letters) == [
        (f"claimed-{number}", "not-authorised") for number in range(2)
    ]
    assert all(identity in error and FOREIGN in error for _, _, error in letters)
    assert outcome.publishers("allowed") == {identity}


def test_a_signed_message_is_from_its_key_and_wrong_signatures_are_dead_letters(
    outcome: Outcome,
) -> None:
    letters = outcome.letters("unsigned", "wrong", "expired", "moved")
    reasons = Counter((key.rpartition("-")[0], reason) for key, reason, _ in letters)

    assert outcome.publishers("signed") == {"key:nagios"}  # whoever sends it
    assert outcome.letters("signed") == []
    assert outcome.site.scalar("SELECT sum(duplicates) FROM load_audit") == 3  # replays
    assert reasons == {
        ("unsigned", "unsigned"): 2,
        ("wrong", "bad-signature"): 2,
        ("expired", "signature-expired"): 2,
        ("moved", "bad-signature"): 3,
    }


def _with(message: Message, **headers: str) -> Message:
    return Message({**message.headers, **headers}, message.body)


def _broker(request: pytest.FixtureRequest) -> Entrance:
    server: StompServer = request.getfixturevalue(request.param)
    is_rabbitmq = isinstance(server, RabbitMQServer)
    if isinstance(server, RabbitMQServer):
        server.add_user(OTHER_USER, server.password, topics_read=".*", topics_written=".*")

    def send(user: str, destination: str, messages: Sequence[Message]) -> None:
        address = (server.host, server.port, destination)
        publish(*address, messages, user=user, password=server.password)

    return Entrance(
        server.url,
        fresh_database(request.getfixturevalue("postgres")),
        {user: broker_identity(server.url, user) for user in (USER, OTHER_USER)},
        send,
        # RabbitMQ verifies this header, and does not set it.
        vouched=lambda user: {"user-id": user} if is_rabbitmq else {},
    )


MESSAGES = 25
"""Drawn for each road, each followed by a good one."""
MAX_RSS_MB = 150
ANSWER_S = 5.0


def sends(broker: StompServer, destination: str, message: DrawnMessage) -> bool:
    """Whether the broker confirmed the message."""
    own = [
        (b"destination", destination.encode()),
        *[(b"persistent", b"true"), (b"receipt", b"done")],
        (b"content-length", str(len(message.body)).encode()),
    ]
    lines = [b"SEND", *map(b":".join, [*own, *message.headers]), b"", b""]
    return is_confirmed(broker, b"\n".join(lines) + message.body + b"\0", ANSWER_S)


def test_any_accepted_message_is_accounted_for_and_the_next_one_is_loaded(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> None:
    chance, accepted, good = random.Random(10), list[str](), list[str]()
    brokers: list[StompServer] = [request.getfixturevalue(name) for name in BROKERS]
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    urls = [*(broker.url for broker in brokers), f"spool://{tmp_path}/spool"]
    site = site_of(tmp_path, urls, Subscription(destination), database=postgres_url)
    for broker in brokers:
        subscribe(broker, site.name, destination)

    with running(site) as daemon:
        for broker in brokers:
            for message, following in drawn(chance, broker.url.rpartition(":")[2]):
                if sends(broker, destination, message):
                    accepted.append(message.mark)
                assert sends(broker, destination, following)
                good.append(following.mark)
        queue = DirectoryQueue(tmp_path / "spool")
        for message, following in drawn(chance, "spool"):
            queue.add(as_spooled(message))
            queue.add(as_spooled(following))
            accepted.append(message.mark)
            good.append(following.mark)

        with suppress(TimeoutError):
            eventually(lambda: not missing(site, [*accepted, *good]), WAIT_S)
        assert missing(site, [*accepted, *good]) == set(), daemon.log[-5000:]
        assert peak_mb(daemon.process.pid) <= MAX_RSS_MB
        assert daemon.stop().code == 0, daemon.log

    assert set(good) <= {*site.column("SELECT summaryData FROM metricOutput")}
    assert site.drain().summary["messages"] == 0, "acked and taken from every road"


def drawn(chance: random.Random, road: str) -> Iterator[tuple[DrawnMessage, DrawnMessage]]:
    """Messages, each with the good one that follows."""
    for number in range(MESSAGES):
        mark = f"m{road}x{number:03}"
        yield draw_message(chance, mark), good_message(f"{mark}-good")


def as_spooled(message: DrawnMessage) -> Message:
    """The message as a foreign writer of the spool might store it."""
    headers = {
        name.decode(errors="surrogateescape"): value.decode(errors="surrogateescape")
        for name, value in message.headers
    }
    return Message(headers, message.body)


def missing(site: Site, marks: Sequence[str]) -> set[str]:
    """The messages that are neither rows nor dead letters."""
    stored = [
        *site.column("SELECT summaryData || ' ' || coalesce(messageId, '') FROM metricOutput"),
        *site.column("SELECT message_id || ' ' || error || ' ' || headers FROM dead_letter"),
        *(body.decode(errors="replace") for body in site.letter_bodies()),
    ]
    return set(marks) - set(re.findall(r"m\w+x\d\d\d(?:-good)?", "\n".join(stored)))
