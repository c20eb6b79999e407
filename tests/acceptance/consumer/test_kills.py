"""Killed at any instant, a consumer or its database repeats work, but loses and doubles nothing.

The oracle: each record that was confirmed is one row or one dead letter, and none is left anywhere.
tests/extended and `make soak` do the same for longer, and kill and freeze brokers as well.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, fresh_database, running_postgres
from tests.soak.posters import Poster
from tests.soak.senders import Ledger, sending
from tests.support.conservation import account, consumed, key_of, keys_of, numbered
from tests.support.consumer.daemon import Subscription, dead_letter_keys, row_keys, running, site_of
from tests.support.consumer.door import listening, new_door
from tests.support.consumer.load import BAD_EVERY, Load, offering, with_bad_ones
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, subscribe

KILLS = 3
COUNT = 50
SETTINGS = {"batch_size": 20, "dead_letters_per_hour": 10**6}
"""Most kills hit a batch, and all dead letters are kept."""


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


def kill_while_it_loads(target: Site, number: int, *options: str, consumer: Site) -> int:
    """Kill the consumer shortly after the next commit; the number of stored records."""

    def stored() -> int:
        return target.rows() + target.letters()

    with running(consumer, *options):  # killed at the end of the block
        before = stored()
        eventually(lambda: stored() > before)
        time.sleep(random.Random(number).random() * 0.05)
    return stored()


def require_balance(site: Site, load: Load) -> None:
    """Every accepted record is a row, or a dead letter if it is bad."""
    letters = dead_letter_keys(site)
    consumed(load.accepted, row_keys(site), letters)
    assert {*letters} == {key for key in load.accepted if key.startswith("bad-")}
    assert len(letters) >= len(load.accepted) // BAD_EVERY > 0


@pytest.mark.parametrize("road", ["activemq", "spool"])
def test_kills_of_a_consumer_under_load_lose_nothing_and_store_nothing_twice(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, destination: str, road: str
) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    broker: ActiveMQServer = request.getfixturevalue("activemq")
    url = broker.url if road == "activemq" else f"spool://{queue.path}"
    topic = Subscription(destination)
    site = site_of(tmp_path, [url], topic, database=postgres_url, **SETTINGS)
    subscribe(broker, site.name, destination)
    into = None if road == "activemq" else queue.add
    with offering(broker, destination, records=with_bad_ones, pause_s=0.02, into=into) as load:
        stored = {kill_while_it_loads(site, number, consumer=site) for number in range(KILLS)}
    drained = site.drain()

    assert drained.code in (0, 65), drained.log
    assert len(stored) > KILLS // 2, "most kills hit a consumer that was loading"
    require_balance(site, load)
    assert site.drain().summary["messages"] == 0


def test_kills_of_a_bridge_under_load_lose_nothing(
    tmp_path: Path, activemq: ActiveMQServer, artemis: ArtemisServer
) -> None:
    queue = Subscription(f"/queue/{uuid.uuid4().hex}")
    places = tmp_path / "bridge", tmp_path / "loader"
    for place in places:
        place.mkdir()
    bridge = site_of(places[0], [activemq.url], queue, **SETTINGS)
    loader = site_of(places[1], [artemis.url], queue)
    to = ("--to", artemis.url)
    with running(loader) as daemon:
        with offering(activemq, queue.destination, records=with_bad_ones, pause_s=0.02) as load:
            for number in range(KILLS):
                kill_while_it_loads(loader, number, *to, consumer=bridge)
        moved = bridge.run("run", "--drain", *to)
        eventually(lambda: loader.rows() + loader.letters() >= len(load.accepted))
        assert daemon.stop().code == 0

    assert moved.returncode == 0, moved.stderr
    require_balance(loader, load)


def test_kills_of_a_door_under_load_keep_what_it_answered(
    tmp_path: Path, postgres_url: str, destination: str
) -> None:
    door, ledger = new_door(), Ledger()
    topic = Subscription(destination)
    site = site_of(tmp_path, [door.listen_url], topic, database=postgres_url, **SETTINGS)
    poster = Poster(door, destination, ledger)
    with ExitStack() as stack:
        with sending(poster.kinds, ledger, seed=1):
            for number in range(KILLS):
                kill_while_it_loads(site, number, consumer=site)
            last = stack.enter_context(listening(site, door))
        assert last.stop().code == 0

    letters = [key for body in site.letter_bodies() for key in keys_of(body)]
    balance = account(
        ledger.accepted, ledger.uncertain, stored=[*row_keys(site), *letters], waiting=[]
    )
    assert balance.is_balanced, balance
    assert {*letters} <= ledger.bad
    assert ledger.failures == []
    assert ledger.accepted and ledger.answers["door, no answer"] > 0


KILLED_BEFORE_THE_ACK = """
import os, signal, sys
from sam_pipeline.consumer.sources.stomp import session as stomp_session
encode = stomp_session.encode
def deadly(command, *rest):
    if command == "ACK":
        os.kill(os.getpid(), signal.SIGKILL)
    return encode(command, *rest)
stomp_session.encode = deadly
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""Killed when the ACK frame is encoded, just before it is sent."""


def test_a_batch_committed_but_not_acked_is_redelivered_and_stored_once(
    tmp_path: Path, postgres_url: str, broker: StompServer, destination: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination), database=postgres_url)
    subscribe(broker, site.name, destination)
    messages = numbered("acked", range(COUNT))
    publish(broker.host, broker.port, destination, messages)
    command = site.command("run", program=KILLED_BEFORE_THE_ACK)

    killed = subprocess.run(command, capture_output=True, timeout=60)
    committed = site.rows()
    drained = site.drain()

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert committed > 0
    assert (drained.code, drained.summary["messages"]) == (0, COUNT), "all of them are redelivered"
    assert drained.summary["duplicates"] == committed
    consumed([key_of(message.body) for message in messages], row_keys(site))


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    """A database server that tests may kill."""
    with needed(running_postgres()) as server:
        yield server


def test_kills_of_the_database_under_load_lose_nothing_and_store_nothing_twice(
    tmp_path: Path, mortal: PostgresServer, activemq: ActiveMQServer, destination: str
) -> None:
    moments = random.Random(11)
    database, topic = fresh_database(mortal), Subscription(destination)
    site = site_of(tmp_path, [activemq.url], topic, database=database, **SETTINGS)
    with running(site) as daemon:
        daemon.wait_until_subscribed(activemq.url)
        with offering(activemq, destination, records=with_bad_ones, pause_s=0.05) as load:
            for _ in range(2):
                site.wait_for_rows(site.rows() + moments.randint(1, 40))
                mortal.restart()
        eventually(lambda: site.rows() + site.letters() >= len(load.accepted), 60)
        assert daemon.stop().code == 0

    require_balance(site, load)
    assert site.drain().summary["messages"] == 0
