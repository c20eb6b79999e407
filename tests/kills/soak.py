"""`sam-publish` processes and HTTP clients send while everything is killed and frozen under load.

    figures = soak(directory, brokers, postgres, faults, seed=7)
    assert not figures.problems

They send to two brokers, to the consumer that reads these, by HTTP, and to the servlet, another
consumer that sends what it gets by HTTP to the brokers. At the end each record that a publisher or
a door confirmed is a row, a dead letter, in the spool, or still at a broker, and none became two
rows or dead letters.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.kills.faults import Fault, strike
from tests.kills.posters import Poster
from tests.kills.scene import Scene
from tests.kills.senders import Ledger, Senders, sending
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import free_ports
from tests.support.brokers.subscriber import backlog
from tests.support.conservation import Account, account, keys_of
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.door import COMMITTED, KEPT, new_door, servlet_site
from tests.support.consumer.site import Site

SPOOL = "spool"
BATCH_SIZE = 10
"""Small enough that many faults hit a batch, or the time between two."""
HEART_BEAT_S = 5.0
QUIET_S = 5.0
LAST = 5
"""Records that are sent to the brokers, and into the spool, when the consumer has ended."""


@dataclass
class Figures:
    """The results of a soak, in records."""

    published: int
    rows: int
    dead_letters: int
    spool: int
    backlog: int
    account: Account
    problems: list[str] = field(default_factory=list)


def soak(
    directory: Path,
    brokers: Sequence[StompServer],
    postgres: PostgresServer,
    faults: Iterable[Fault],
    seed: int,
) -> Figures:
    """Run the faults under load.

    Raises:
        AssertionError: the consumer ended by itself, or did not recover or stop in time.
    """
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    urls = [broker.url for broker in brokers]
    door, servlet = new_door("door"), new_door("servlet")
    site = site_of(
        directory,
        [*urls, door.listen_url],
        Subscription(destination),
        database=fresh_database(postgres),
        batch_size=BATCH_SIZE,
        heart_beat_s=HEART_BEAT_S,
        dead_letters_per_hour=10**6,  # so that the letters have all keys
    )
    senders = _senders(site, [*urls, door.url, servlet.url], destination)
    posters = [Poster(item, destination, senders.ledger) for item in (door, servlet)]
    kinds = {**senders.kinds, **posters[0].kinds, **posters[1].kinds}
    with Scene(site, servlet_site(directory / "servlet", servlet), brokers, postgres) as scene:
        scene.daemon.wait_until_subscribed(*urls)
        with sending(kinds, senders.ledger, seed):
            for fault in faults:
                strike(scene, fault)
        senders.drain(random.Random(seed))
        scene.stop(scene.servlet)
        scene.wait_until_quiet(QUIET_S)
        scene.stop(scene.daemon)
    _send_last(replace(senders, urls=urls))
    return _figures(site, brokers, destination, senders.ledger)


def _senders(site: Site, urls: Sequence[str], destination: str) -> Senders:
    """Publishers in a directory of their own, with a spool."""
    directory = site.config.parent / "publisher"
    directory.mkdir()
    lines = ("[publisher]", f'destination = "{destination}"', f'spool = "{directory / SPOOL}"', "")
    (directory / "sam.toml").write_text("\n".join(lines))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    return Senders(directory, variables, urls)


def _send_last(senders: Senders) -> None:
    """Records that the consumer can't have loaded: the oracle must find them where they are."""
    unreachable = replace(senders, urls=[f"stomp://127.0.0.1:{free_ports(1)[0]}"], prefix="last")
    for sender in (senders, unreachable):
        for _ in islice(sender.one_shots(random.Random(0)), LAST):
            pass


def _figures(
    site: Site,
    brokers: Sequence[StompServer],
    destination: str,
    ledger: Ledger,
) -> Figures:
    """Read what exists where, and compare it with what was published."""
    rows = row_keys(site)
    letters = [key for body in site.letter_bodies() for key in keys_of(body)]
    queue = DirectoryQueue(site.config.parent / "publisher" / SPOOL)
    spool = [key for name in queue.names() for key in keys_of(queue.read(name).body)]
    bodies = [body for broker in brokers for body in backlog(broker, site.name, destination)]
    held = [key for body in bodies for key in keys_of(body)]
    figures = Figures(
        published=len(ledger.accepted),
        rows=len(rows),
        dead_letters=len(letters),
        spool=len(spool),
        backlog=len(held),
        account=account(
            ledger.accepted, ledger.uncertain, stored=[*rows, *letters], waiting=[*spool, *held]
        ),
    )
    checks = {
        "lost": figures.account.lost,
        "twice": figures.account.twice,
        "never published": figures.account.unknown,
        "good records among the dead letters": {*letters} - ledger.bad,
        "bad records among the rows": {*rows} & ledger.bad,
        "commands and clients that failed": ledger.failures,
    }
    for problem, found in checks.items():
        if found:
            figures.problems.append(f"{problem}: {len(found)}, such as {sorted(found)[:3]}")
    for place, number in (("spool", figures.spool), ("brokers", figures.backlog)):
        if number < LAST:
            figures.problems.append(f"the last records were not found in the {place}: {number}")
    for answer in (f"door, {COMMITTED}", f"servlet, {KEPT}"):
        if not ledger.answers[answer]:
            figures.problems.append(f"no message was posted with success: {answer}")
    return figures
