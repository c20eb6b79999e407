"""Parts A and B: how quickly a backlog gets into the views."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time, time
from typing import NamedTuple

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import load
from tests.benchmarks.consume_java import JavaConsumer, java_consumer
from tests.benchmarks.consume_road import BROKERS, DESTINATION, TIMEOUT_S, Road, fifty, single
from tests.benchmarks.consume_watch import DISK, IDLE, MACHINE, Watch
from tests.benchmarks.load import make_plain_table, tell, tell_ratio
from tests.services.postgres import as_role

BARE_BOUND = 0.8
JAVA_BOUND = 1.0
MEMORY_BOUND = 0.8
RECORDS = 50
BARE_CLIENT = Path(__file__).with_name("bare_consumer.py")
BARE_BOUND_ON = ("activemq", "rabbitmq")
JAVA_ON = ("activemq", "artemis")

OURS, BARE, JAVA, MEMORY = "sam-consume", "bare client", "Java", "bulk door from memory"
KNOWN = ("consumer", "broker", "PostgreSQL")
PARTS = (*KNOWN, "others", DISK, IDLE)
FREE = "at most/s"
"""If the three had all processors for themselves, and never waited for one another."""


class Turn(NamedTuple):
    """Of one message or row: seconds by the clock, and of processors by who used them."""

    wall_s: float
    used_s: Mapping[str, float]


Turns = dict[str, list[Turn]]


def one_record_a_message(road: Road, messages: int, rounds: int) -> bool:
    """Part A: each contestant has a subscription, and so a copy of each message, of its own."""
    with ExitStack() as stack:
        contestants: dict[str, Callable[[str], Turn]] = {
            OURS: lambda after: ours(road, after, messages),
            BARE: lambda after: bare_client(road, messages),
        }
        bare_client(road, 0)
        if road.kind in JAVA_ON:
            with writing(road.engine) as connection:
                make_plain_table(connection)
            consumer = stack.enter_context(java_consumer(road.kind, road.broker, road.database))
            consumer.drain()
            contestants[JAVA] = lambda after: by_java(road, consumer, messages)
        turns: Turns = defaultdict(list)
        for turn in range(rounds + 1):
            after = road.publish(messages, single)
            for name in rotated(list(contestants), turn):
                result = contestants[name](after)
                if turn:  # the first one warms broker, database and the Java machine up
                    turns[name].append(result)
    print(f"one record a message; bare client: {BROKERS[road.kind].bare_way} per 1000")
    tell_turns(turns, "messages/s")
    seconds = {name: [turn.wall_s for turn in each] for name, each in turns.items()}
    bound = BARE_BOUND if road.kind in BARE_BOUND_ON else None
    good = [tell_ratio(f"{OURS} / {BARE}", seconds[BARE], seconds[OURS], bound)]
    if JAVA in seconds:
        good.append(tell_ratio(f"{OURS} / {JAVA}", seconds[JAVA], seconds[OURS], JAVA_BOUND))
    return all(good)


def fifty_records_a_message(road: Road, messages: int, rounds: int) -> bool:
    """Part B: beside the bulk door, fed with messages and batches of the same size."""
    turns: Turns = defaultdict(list)
    sizes = []
    for turn in range(rounds + 1):
        after = road.publish(messages, fifty)
        drained = ours(road, after, messages, RECORDS)
        size = max(1, round(messages / road.commits(after).transactions))
        others = [fifty(road.results) for _ in range(messages)]
        loaded = from_memory(road, others, size)
        if turn:
            sizes.append(size)
            turns[OURS].append(drained)
            turns[MEMORY].append(loaded)
    print(f"{RECORDS} records a message, {median(sizes):g} messages a transaction")
    tell_turns(turns, "rows/s")
    seconds = {name: [turn.wall_s for turn in each] for name, each in turns.items()}
    return tell_ratio(f"{OURS} / {MEMORY}", seconds[MEMORY], seconds[OURS], MEMORY_BOUND)


# Contestants ----------------------------------------------------------------------------------


def ours(road: Road, after: str, messages: int, records: int = 1) -> Turn:
    """From the first commit to the last; that all was acked shows in the next turn.

    Before the first one it still starts: it asks the database for its version and its classes.
    """
    with road.consumer("--drain") as consumer, watch(road, consumer.pid) as seen:
        consumer.wait_until_subscribed()
        said = consumer.wait()
    commits = road.commits(after)
    check("messages of sam-consume", said["messages"], messages)
    check("its rows", commits.rows, messages * records)
    if commits.transactions < 2:
        raise SystemExit("one transaction took all: more messages are needed")
    return turn_of(seen, commits.first, commits.last, commits.rows - commits.first_rows)


def bare_client(road: Road, messages: int) -> Turn:
    kind = BROKERS[road.kind]
    command = [sys.executable, str(BARE_CLIENT), str(road.broker.port), kind.bare_way]
    process = subprocess.Popen(
        [*command, str(messages), "bare", f"destination:{DESTINATION}", *kind.bare_headers],
        stdout=subprocess.PIPE,
        text=True,
    )
    with watch(road, process.pid) as seen:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    check("exit code of the bare client", process.returncode, 0)
    began, ended = map(float, output.split())
    return turn_of(seen, began, ended, messages or 1)


def by_java(road: Road, consumer: JavaConsumer, messages: int) -> Turn:
    with watch(road, consumer.pid) as seen:
        drained = consumer.drain()
    check("messages of Java", drained.messages, messages)
    return turn_of(seen, drained.began, drained.ended, messages)


def from_memory(road: Road, messages: list[Message], size: int) -> Turn:
    engine = make_engine(as_role(road.database, "loader"))
    catalogue = Catalogue(engine)
    with watch(road, 0) as seen:
        began, began_own = time(), process_time()
        rows = 0
        for at in range(0, len(messages), size):
            rows += load(engine, catalogue, messages[at : at + size], datetime.now(UTC)).rows
        ended, own = time(), (process_time() - began_own) / rows
    fold_all(engine)  # or the next turn of sam-consume would do it for us
    engine.dispose()
    check("rows of the bulk door", rows, len(messages) * RECORDS)
    turn = turn_of(seen, began, ended, rows)
    used = {**turn.used_s, "consumer": own, "others": max(0.0, turn.used_s["others"] - own)}
    return Turn(turn.wall_s, used)


def watch(road: Road, pid: int) -> Watch:
    return Watch(consumer=pid, broker=road.broker.process.pid, PostgreSQL=road.postgres.process.pid)


def turn_of(seen: Watch, began: float, ended: float, count: int) -> Turn:
    used = {name: seen.used_s(name, began, ended) for name in (*KNOWN, MACHINE, DISK, IDLE)}
    used["others"] = max(0.0, used.pop(MACHINE) - sum(used[name] for name in KNOWN))
    return Turn((ended - began) / count, {name: each / count for name, each in used.items()})


def check(what: str, found: int, expected: int) -> None:
    """Nobody is quick by leaving something out."""
    if found != expected:
        raise SystemExit(f"{what}: {found}, not {expected}")


def rotated(names: list[str], turn: int) -> list[str]:
    """Each is first, and last, as often as the others."""
    at = turn % len(names)
    return names[at:] + names[:at]


# Figures --------------------------------------------------------------------------------------


def tell_turns(turns: Turns, unit: str) -> None:
    for name, each in turns.items():
        tell(f"{name}, {unit}", f"{1 / median(turn.wall_s for turn in each):.0f}")
    one = unit.removesuffix("s/s")
    print(f"  {f'µs of processors a {one}':24}" + "".join(f"{part:>11}" for part in (*PARTS, FREE)))
    for name, each in turns.items():
        used = [median(turn.used_s[part] for turn in each) for part in PARTS]
        free = (os.cpu_count() or 1) / sum(used[: len(KNOWN)])
        figures = "".join(f"{seconds * 1e6:11.1f}" for seconds in used)
        print(f"    {name:22}{figures}{free:11.0f}", flush=True)
