"""Whatever a sender writes into the headers of our programs, whichever way its message takes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.identity import IDENTITY, broker_identity, uid_identity
from sam_pipeline.schema.messages.headers import OURS, REJECTED, is_ours
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import MARKS
from sam_pipeline.sql.loading.batch import FILE
from tests.services.broker import PASSWORD, USER, StompServer
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, fill_spool
from tests.support.invoke import invoke

US = uid_identity(os.getuid())
SPELLINGS = ("samIdentity", "SAMIDENTITY", "samidentity", "Sam-Identity", "sam_identity")
CLAIMS = ("key:nagios", "token:nagios", "broker:x/nagios", "operator:root", "uid:4711", "cert:CN=x")
POLICY = """
mode = "enforce"
[[publisher]]
name = "us"
is = ["{us}", "{user}"]
classes = ["metricOutput"]
hosts = ["*"]
[[publisher]]
name = "nagios"
is = ["key:nagios"]
keys = ["ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="]
signed = true
classes = ["metricOutput"]
hosts = ["*"]
"""
Road = Callable[[Site, list[Message]], None]


def claiming() -> list[Message]:
    """A result for each spelling and claim."""
    return [
        Message({**message.headers, name: claim}, message.body)
        for name, claim in product(SPELLINGS, CLAIMS)
        for message in [metric_message(metric_result(metricName=f"{name}.{claim[:4]}"))]
    ]


def straight(site: Site, messages: list[Message]) -> None:
    site.fill(*messages)


def drained(site: Site, messages: list[Message]) -> None:
    """Another spool, which a publisher of our account drains into that of the consumer."""
    directory = site.config.parent
    fill_spool(directory / "theirs", messages)
    environment = {**os.environ, "SAM_PUBLISHER_SPOOL": f"{directory}/theirs"}
    target = ("--broker", f"spool://{directory}/spool")
    answer = invoke("sam-publish", "spool", "drain", *target, env=environment)
    assert answer.code == 0, str(answer)


def relayed(site: Site, messages: list[Message]) -> None:
    """Another spool, which a relay of our account moves into that of the consumer."""
    directory = site.config.parent
    fill_spool(directory / "theirs", messages)
    config = directory / "relay.toml"
    config.write_text(f'[consumer]\nname = "relay"\nbrokers = ["spool://{directory}/theirs"]\n')
    relay = Site(config, "", "relay", state="relay-state")
    relay.json("run", "--drain", "--to", f"spool://{directory}/spool")


@pytest.mark.parametrize("policy", [False, True])
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("road", [straight, drained, relayed])
def test_a_claimed_identity_is_believed_of_a_configured_relay_alone(
    tmp_path: Path, road: Road, trusted: bool, policy: bool
) -> None:
    site = site_of(tmp_path, [f"spool://{tmp_path}/spool"])
    if trusted:
        site.configure(f'trusted_relays = ["{os.getuid()}"]')
    if policy:
        (tmp_path / "policy.toml").write_text(POLICY.format(us=US, user="broker:x/nagios"))
        site.configure('policy_file = "policy.toml"')
    messages = claiming()
    road(site, messages)

    site.drain()

    publishers = set(site.column("SELECT publisher FROM metricOutput"))
    # What a relay of this account wrote itself is believed, but never a key or an operator.
    is_ours = trusted and road is straight
    believed = {"token:nagios", "broker:x/nagios", "uid:4711", "cert:CN=x"} if is_ours else set()
    assert publishers - believed == {US}
    assert len(site.column("SELECT metricName FROM metricOutput")) + site.letters() == len(messages)
    assert is_ours or site.letters() == 0


@pytest.mark.parametrize("vouches", [False, True])
def test_over_a_broker_nobody_claims_anything(
    tmp_path: Path, broker: StompServer, destination: str, vouches: bool
) -> None:
    more = {"trusted_brokers": [broker.url]} if vouches else {}
    site = site_of(tmp_path, [broker.url], Subscription(destination), **more)
    site.drain()
    named = {"user-id": USER} if type(broker).__name__.startswith("RabbitMQ") else {}
    messages = [Message({**message.headers, **named}, message.body) for message in claiming()]
    publish(broker.host, broker.port, destination, messages, user=USER, password=PASSWORD)

    site.drain()

    expected = broker_identity(broker.url, USER) if vouches else "anonymous"
    assert set(site.column("SELECT publisher FROM metricOutput")) == {expected}
    assert len(site.column("SELECT metricName FROM metricOutput")) == len(messages)


def test_the_names_are_those_of_the_headers_and_publish_refuses_them() -> None:
    assert {name.lower() for name in (IDENTITY, *MARKS, REJECTED, FILE)} == OURS
    assert all(map(is_ours, SPELLINGS))
    result = ("result", "--metric", "m", "--status", "OK", "--host", "ce01", "--flavour", "CE")
    for name in (*SPELLINGS, *MARKS, REJECTED, FILE):
        answer = invoke("sam-publish", *result, "--no-spool", "--header", f"{name}=key:nagios")
        assert (answer.code, name in answer.err) == (64, True)


def test_a_message_that_two_brokers_vouch_for_is_stored_once(
    request: pytest.FixtureRequest, tmp_path: Path, destination: str, postgres_url: str
) -> None:
    """Without a receipt a publisher sends it by the next broker too, under another identity."""
    brokers: list[StompServer] = [request.getfixturevalue(name) for name in ("activemq", "artemis")]
    urls = [broker.url for broker in brokers]
    where = Subscription(destination)
    site = site_of(tmp_path, urls, where, database=postgres_url, trusted_brokers=urls)
    site.drain()  # which subscribes
    messages = [metric_message(metric_result(summaryData=f"m{number}")) for number in range(50)]

    for broker in (*brokers, *brokers):
        login = {"user": USER, "password": PASSWORD}
        publish(broker.host, broker.port, destination, messages, **login)
    site.drain()

    rows = site.column("SELECT summaryData FROM metricOutput")
    assert sorted(rows) == sorted(f"m{number}" for number in range(50))
    senders = [
        *site.column("SELECT publisher FROM metricOutput"),
        *site.column(
            "SELECT p.identity FROM result_repeat JOIN result_source USING (source_id)"
            " JOIN publisher AS p USING (publisher_id)"
        ),
    ]
    assert Counter(senders) == {broker_identity(url, USER): 50 for url in urls}
