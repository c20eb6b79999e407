"""Wherever messages enter, nobody speaks for others: forged senders, forged and missing signatures.

At each entrance everything is published once. The user `sam` sends unsigned results of its own
hosts; `sam-other` must sign those of its hosts.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from sam_pipeline.schema.identity.identity import IDENTITY, broker_identity
from sam_pipeline.schema.identity.keys import Signer, load_signer, make_key
from sam_pipeline.schema.identity.signature import SIGNATURE, sign
from sam_pipeline.schema.messages.message import CLASS, MESSAGE_ID, Message, new_message_id
from tests.services.broker import OTHER_USER, USER, StompServer
from tests.services.brokers import BROKERS
from tests.services.postgres import fresh_database
from tests.services.rabbitmq import RabbitMQServer
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site
from tests.support.reports.stored import query

OWN, FOREIGN = "ce01.own.example.org", "ce01.foreign.example.org"
KEY = "nagios"
POLICY = """
mode = "enforce"
[[publisher]]
name = "own"
is = ["{own}"]
classes = ["metricOutput"]
hosts = ["*.own.example.org"]
[[publisher]]
name = "foreign"
is = ["{foreign}", "key:{key}"]
keys = ["{public_key}"]
signed = true
classes = ["metricOutput"]
hosts = ["*.foreign.example.org"]
"""
USER_HEADERS = ("JMSXUserID", "user-id")

Send = Callable[[str, str, Sequence[Message]], None]
"""Publishes messages as a user, to a destination."""


@dataclass(frozen=True)
class Entrance:
    """A broker or a spool, and the identities of the two users there."""

    url: str
    database: str
    identities: Mapping[str, str]
    send: Send
    vouched: Callable[[str], dict[str, str]] = lambda user: {}
    """The headers that an honest user adds."""


class Letter(NamedTuple):
    key: str
    reason: str
    error: str


@dataclass(frozen=True)
class Outcome:
    """What the consumer made of everything."""

    entrance: Entrance
    site: Site

    def publishers(self, prefix: str) -> set[str]:
        """Who the rows of these records say that they are from."""
        where = f"summaryData LIKE '{prefix}-%'"
        return {*self.site.column(f"SELECT publisher FROM metricOutput WHERE {where}")}

    def letters(self, *prefixes: str) -> list[Letter]:
        rows = query(self.site.database, "SELECT reason, error, body FROM dead_letter")
        letters = [Letter(key_of(bytes(row["body"])), row["reason"], row["error"]) for row in rows]
        return [letter for letter in letters if letter.key.rpartition("-")[0] in prefixes]


@pytest.fixture(scope="module", params=BROKERS)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcome_of(_broker(request), tmp_path_factory.mktemp("entrance"))


def outcome_of(entrance: Entrance, directory: Path) -> Outcome:
    """Publish everything at this entrance, and load it."""
    make_key(directory / f"{KEY}.pem")
    signer = load_signer(directory / f"{KEY}.pem")
    own, foreign = entrance.identities[USER], entrance.identities[OTHER_USER]
    policy = directory / "publishers.toml"
    policy.write_text(
        POLICY.format(own=own, foreign=foreign, key=KEY, public_key=signer.public_key())
    )
    destinations = [f"/topic/grid.{uuid.uuid4().hex}" for _ in range(2)]
    site = site_of(
        directory,
        [entrance.url],
        *map(Subscription, destinations),
        database=entrance.database,
        publishers=policy,
        vouches=[url for url in [entrance.url] if url.startswith("stomp")],
    )
    if entrance.url.startswith("stomp"):
        site.drain()
    sent = _publish_everything(entrance, signer, *destinations)
    drained = site.drain()
    assert drained.summary["messages"] == sent, drained.log
    return Outcome(entrance, site)


def _publish_everything(
    entrance: Entrance, signer: Signer, destination: str, elsewhere: str
) -> int:
    """Returns the number of messages."""
    sent = 0

    def send(user: str, messages: Sequence[Message], to: str = destination) -> None:
        nonlocal sent
        headers = entrance.vouched(user)
        entrance.send(user, to, [_with(message, **headers) for message in messages])
        sent += len(messages)

    now = datetime.now(UTC)

    def signed(prefix: str, count: int, at: datetime = now) -> list[Message]:
        messages = numbered(prefix, range(count), hostName=FOREIGN)
        return [sign(_with(message, destination=destination), signer, at) for message in messages]

    # F1: a user for hosts of its own, for another's, and for both in one message.
    send(USER, numbered("own", range(4), hostName=OWN))
    send(USER, numbered("foreign", range(3), hostName=FOREIGN))
    [good, bad] = [numbered("both", [n], hostName=host)[0] for n, host in enumerate((OWN, FOREIGN))]
    send(USER, [Message({**good.headers, "recordCount": "2"}, good.body + bad.body)])

    # F2: a user who claims to be the other one.
    claims = {IDENTITY: entrance.identities[OTHER_USER], "JMSXUserID": OTHER_USER}
    for prefix, host in (("claimed", FOREIGN), ("allowed", OWN)):
        send(USER, [_with(m, **claims) for m in numbered(prefix, range(2), hostName=host)])

    # F3: signatures that are right, missing, wrong, expired, or of another message.
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


def test_a_result_of_a_foreign_host_is_a_dead_letter_and_those_beside_it_are_loaded(
    outcome: Outcome,
) -> None:
    identity = outcome.entrance.identities[USER]

    letters = outcome.letters("foreign", "both")
    assert {letter.key for letter in letters} == {"foreign-0", "foreign-1", "foreign-2", "both-1"}
    assert {letter.reason for letter in letters} == {"not-authorised"}
    assert all(identity in letter.error and FOREIGN in letter.error for letter in letters)
    assert outcome.publishers("own") == outcome.publishers("both") == {identity}


def test_a_claimed_sender_does_not_replace_the_one_that_the_entrance_has_established(
    outcome: Outcome,
) -> None:
    identity = outcome.entrance.identities[USER]

    letters = outcome.letters("claimed")
    assert {letter.key for letter in letters} == {"claimed-0", "claimed-1"}
    assert all(identity in letter.error for letter in letters)
    assert outcome.publishers("allowed") == {identity}


def test_rabbitmq_refuses_a_forged_user_id(rabbitmq: RabbitMQServer) -> None:
    forged = _with(numbered("forged", [0])[0], **{"user-id": OTHER_USER})
    address = (rabbitmq.host, rabbitmq.port, "/topic/grid.forged")

    with pytest.raises(OSError, match="ERROR"):
        publish(*address, [forged], user=USER, password=rabbitmq.password)


def test_a_signed_message_is_from_its_key_and_wrong_signatures_are_dead_letters(
    outcome: Outcome,
) -> None:
    letters = outcome.letters("unsigned", "wrong", "expired", "moved")
    reasons = Counter((letter.key.rpartition("-")[0], letter.reason) for letter in letters)

    assert outcome.publishers("signed") == {f"key:{KEY}"}  # whoever sends it
    assert outcome.letters("signed") == []
    assert outcome.site.scalar("SELECT sum(duplicates) FROM load_audit") == 3  # replays
    assert reasons == {
        ("unsigned", "unsigned"): 2,
        ("wrong", "bad-signature"): 2,
        ("expired", "signature-expired"): 2,
        ("moved", "bad-signature"): 3,
    }


def test_every_record_is_a_row_or_a_dead_letter_and_counted_by_its_identity(
    outcome: Outcome,
) -> None:
    counts = {"own": 4, "foreign": 3, "both": 2, "claimed": 2, "allowed": 2, "signed": 4}
    counts |= {"unsigned": 2, "wrong": 2, "expired": 2, "moved": 3}
    sent = [f"{prefix}-{number}" for prefix, count in counts.items() for number in range(count)]
    consumed(sent, row_keys(outcome.site), [letter.key for letter in outcome.letters(*counts)])

    audited: Counter[tuple[str, str]] = Counter()
    for of_batch in outcome.site.column("SELECT publishers FROM load_audit"):
        items = json.loads(of_batch) if isinstance(of_batch, str) else of_batch
        for identity, [accepted, refused] in items.items():
            audited.update({(identity, "accepted"): accepted, (identity, "refused"): refused})
    own, key = outcome.entrance.identities[USER], f"key:{KEY}"
    assert (audited[own, "accepted"], audited[own, "refused"]) == (7, 6)
    assert (audited[key, "accepted"], audited[key, "refused"]) == (7, 0)


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
