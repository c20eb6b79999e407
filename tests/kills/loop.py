"""A continuous load while the consumer, its broker and its database are killed repeatedly.

    figures = kill_again_and_again(directory, broker, postgres, take(chosen_kills(SEED), 5))

At the end each message that the broker confirmed is one row or dead letter, and the broker has
none left.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from sam_pipeline.schema.messages.message import Message
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.conservation import consumed, numbered
from tests.support.consumer.daemon import (
    Daemon,
    Subscription,
    dead_letter_keys,
    row_keys,
    running,
    site_of,
)
from tests.support.consumer.load import Load, offering
from tests.support.consumer.site import Site

CONSUMER, BROKER, DATABASE = VICTIMS = ("consumer", "broker", "database")
ALL = "all three"
WEIGHTS = {CONSUMER: 4, BROKER: 1, DATABASE: 1, ALL: 1}
"""The consumer dies most often: it starts soonest."""

LATEST_S = 0.6
"""The longest time from a commit to the next kill."""
BACK_S = 90.0
STOP_S = 10.0
POLL_S = 0.02
BATCH_SIZE = 10
"""Small enough that many kills hit a batch, or the time between two."""
BAD_EVERY = 40
"""Every n-th record has a status that does not exist."""
PAUSE_S = 0.03
"""Between chunks of ten: about 200 messages a second."""

QUIET_S = 30.0

_LOADED = "SELECT (SELECT count(*) FROM metric_result) + (SELECT count(*) FROM dead_letter)"
_COMMITTED = "SELECT coalesce(sum(messages), 0) FROM loaded_batch"


class Kill(NamedTuple):
    """SIGKILL to `victims` `after_s` after a commit; they are restarted in this order."""

    victims: tuple[str, ...]
    after_s: float

    @property
    def name(self) -> str:
        return ALL if len(self.victims) == len(VICTIMS) else " and ".join(self.victims)


@dataclass
class Figures:
    """The results of a loop; each message has one record."""

    offered: int = 0
    rows: int = 0
    dead_letters: int = 0
    refused: int = 0
    """Duplicates: redelivered messages that had been loaded before."""
    kills: Counter[str] = field(default_factory=Counter)
    first_row_s: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from the moment all ports were open again to the next commit, by victim."""

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {n}" for name, n in self.kills.items())
        became = f"rows {self.rows}, dead letters {self.dead_letters}"
        lines = [
            f"  offered {self.offered}, {became}, duplicates refused {self.refused}",
            f"  killed: {kills}; lost 0, twice 0",
        ]
        for name, took_s in self.first_row_s.items():
            middle = sorted(took_s)[len(took_s) // 2]
            lines.append(
                f"  {name} killed, ports open to first commit: "
                f"median {middle:.1f} s, at most {max(took_s):.1f} s"
            )
        return "\n".join(lines)


def chosen_kills(seed: int) -> Iterator[Kill]:
    """An endless sequence, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        [name] = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        victims = chance.sample(VICTIMS, len(VICTIMS)) if name == ALL else [name]
        yield Kill(tuple(victims), chance.uniform(0, LATEST_S))


def few_kills(seed: int) -> list[Kill]:
    """The consumer, the database and all three at once, in random order and at random moments."""
    chance = random.Random(seed)
    chosen = [(CONSUMER,), (DATABASE,), tuple(chance.sample(VICTIMS, len(VICTIMS)))]
    chance.shuffle(chosen)
    return [Kill(victims, chance.uniform(0, LATEST_S)) for victims in chosen]


def kill_again_and_again(
    directory: Path, broker: StompServer, postgres: PostgresServer, kills: Iterable[Kill]
) -> Figures:
    """Fail if a message is lost or duplicated, or the consumer does not recover or stop in time."""
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    database = fresh_database(postgres)
    site = site_of(
        directory, [broker.url], Subscription(destination), database=database, batch_size=BATCH_SIZE
    )
    figures = Figures()
    with Scene(site, broker, postgres) as scene:
        scene.daemon.wait_until_subscribed(broker.url)
        with offering(broker, destination, records=with_bad_ones, pause_s=PAUSE_S) as load:
            for kill in kills:
                took_s = scene.kill(kill)
                figures.kills[kill.name] += 1
                figures.first_row_s.setdefault(kill.name, []).append(took_s)
        scene.catch_up(len(load.accepted))
        scene.stop()
    _check_broker_is_empty(site)
    return _with_totals(site, load, figures)


def with_bad_ones(prefix: str, numbers: Iterable[int]) -> list[Message]:
    """Records with unique keys, some of which can never become rows."""
    return [
        message
        for number in numbers
        for message in numbered(prefix, [number], metricStatus=_status(number))
    ]


def is_bad(key: str) -> bool:
    return _status(int(key.rpartition("-")[2])) != "OK"


class Scene:
    """A running consumer with one broker and one database, each of which can be killed."""

    def __init__(self, site: Site, broker: StompServer, postgres: PostgresServer) -> None:
        self._site = site
        self._broker = broker
        self._postgres = postgres
        self._lives = count(1)
        self._consumer = ExitStack()

    def __enter__(self) -> Scene:
        self._start_consumer()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def kill(self, kill: Kill) -> float:
        """Kill under load and restart; the seconds until the next commit."""
        self._wait_for_commit()
        time.sleep(kill.after_s)
        self._check_alive()
        for victim in kill.victims:
            self._kill(victim)
        for victim in kill.victims:
            self._start(victim)
        return self._wait_for_commit()

    def catch_up(self, count: int) -> None:
        """Wait for this many rows and dead letters, or until nothing was committed for QUIET_S."""
        committed, since = -1, time.monotonic()
        while int(self._site.scalar(_LOADED)) < count and time.monotonic() - since < QUIET_S:
            if committed != (committed := self._committed()):
                since = time.monotonic()
            time.sleep(POLL_S)

    def stop(self) -> None:
        began = time.monotonic()
        stopped = self.daemon.stop()
        assert stopped.code == 0, self.daemon.log
        assert time.monotonic() - began < STOP_S

    def _wait_for_commit(self) -> float:
        """Wait for the next commit; the seconds it took."""
        began, before = time.monotonic(), self._committed()
        while self._committed() == before:
            self._check_alive()
            assert time.monotonic() - began < BACK_S, f"nothing was loaded:\n{self.daemon.log}"
            time.sleep(POLL_S)
        return time.monotonic() - began

    def _committed(self) -> int:
        return int(self._site.scalar(_COMMITTED))

    def _check_alive(self) -> None:
        assert self.daemon.alive, f"the consumer ended by itself:\n{self.daemon.log}"

    def _kill(self, victim: str) -> None:
        if victim == CONSUMER:
            self._consumer.close()  # a SIGKILL
        else:
            (self._broker if victim == BROKER else self._postgres).kill()

    def _start(self, victim: str) -> None:
        if victim == CONSUMER:
            self._start_consumer()
        else:
            (self._broker if victim == BROKER else self._postgres).restart()

    def _start_consumer(self) -> None:
        log = f"life-{next(self._lives)}.log"
        self.daemon: Daemon = self._consumer.enter_context(running(self._site, log=log))


def _status(number: int) -> str:
    return "SPLENDID" if number % BAD_EVERY == BAD_EVERY - 1 else "OK"


def _check_broker_is_empty(site: Site) -> None:
    """Check that the broker has no messages left."""
    drained = site.drain()
    assert (drained.code, drained.summary["messages"]) == (0, 0), drained.log


def _with_totals(site: Site, load: Load, figures: Figures) -> Figures:
    rows, dead_letters = row_keys(site), dead_letter_keys(site)
    consumed(load.accepted, rows, dead_letters)
    assert set(dead_letters) == {key for key in load.accepted if is_bad(key)}
    figures.offered = len(load.accepted)
    figures.rows, figures.dead_letters = len(rows), len(dead_letters)
    figures.refused = int(site.scalar(_COMMITTED)) - len(load.accepted)
    return figures
