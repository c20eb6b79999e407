"""Parts A and B: how fast a backlog gets into the views."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
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
from tests.benchmarks.consume_road import (
    BROKERS,
    DESTINATION,
    TIMEOUT_S,
    Consumer,
    Road,
    fifty,
    single,
)
from tests.benchmarks.consume_watch import DISK, IDLE, MACHINE, Watch
from tests.benchmarks.load import make_plain_table, print_figure, print_ratio
from tests.services.postgres import as_role

BARE_BOUNDS = {"rabbitmq": 0.7}
JAVA_BOUND = 0.8
PROCESSOR_BOUNDS_US = {"rabbitmq": 40}
"""Processor time of the consumer for one message."""
MEMORY_BOUND = 0.8
RECORDS = 50
BARE_CLIENT = Path(__file__).with_name("bare_consumer.py")
JAVA_ON = ("activemq", "artemis")

OURS, BARE, JAVA, MEMORY = "sam-consume", "bare client", "Java", "bulk door from memory"
KNOWN = ("consumer", "broker", "PostgreSQL")
PARTS = (*KNOWN, "others", DISK, IDLE)
FREE = "at most/s"
"""The rate if the three had all processors for themselves and never waited for one another."""


class Turn(NamedTuple):
    """For one message or row: wall-clock seconds, and processor seconds by their user."""

    wall_s: float
    used_s: Mapping[str, float]


Turns = dict[str, list[Turn]]


def one_record_a_message(road: Road, messages: int, rounds: int) -> bool:
    """Part A: every contestant has its own subscription, and so its own copy of each message."""
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
    print_turns(turns, "messages/s")
    seconds = {name: [turn.wall_s for turn in own] for name, own in turns.items()}
    bare_bound = BARE_BOUNDS.get(road.kind)
    good = [print_ratio(f"{OURS} / {BARE}", seconds[BARE], seconds[OURS], bare_bound)]
    if JAVA in seconds:
        good.append(print_ratio(f"{OURS} / {JAVA}", seconds[JAVA], seconds[OURS], JAVA_BOUND))
    used_us = median(turn.used_s["consumer"] for turn in turns[OURS]) * 1e6
    used_bound = PROCESSOR_BOUNDS_US.get(road.kind)
    print_figure(f"{OURS}, processor µs", f"{used_us:.1f}", used_bound, "<=")
    good.append(used_bound is None or used_us <= used_bound)
    return all(good)


def fifty_records_a_message(road: Road, messages: int, rounds: int) -> bool:
    """Part B: compare with the bulk door, fed with messages and batches of the same size."""
    turns: Turns = defaultdict(list)
    sizes = []
    for turn in range(rounds + 1):
        after = road.publish(messages, fifty)
        drained = ours(road, after, messages, RECORDS)
        size = max(1, round(messages / road.commits(after).transactions))
        from_memory_messages = [fifty(road.results) for _ in range(messages)]
        loaded = by_bulk_door(road, from_memory_messages, size)
        if turn:
            sizes.append(size)
            turns[OURS].append(drained)
            turns[MEMORY].append(loaded)
    print(f"{RECORDS} records a message, {median(sizes):g} messages a transaction")
    print_turns(turns, "rows/s")
    seconds = {name: [turn.wall_s for turn in own] for name, own in turns.items()}
    return print_ratio(f"{OURS} / {MEMORY}", seconds[MEMORY], seconds[OURS], MEMORY_BOUND)


# Contestants ----------------------------------------------------------------------------------


def ours(road: Road, after: str, messages: int, records: int = 1) -> Turn:
    """A drain by sam-consume, from its first commit to the last.

    Before the first commit it still reads the schema version and the classes of the database. If
    messages were not acked, the next turn counts too many.
    """
    with road.consumer("--drain") as consumer, watch(road, consumer.pid) as usage:
        consumer.wait_until_subscribed()
        summary = consumer.wait()
    commits = road.commits(after)
    check("messages of sam-consume", summary["messages"], messages)
    check("rows of sam-consume", commits.rows, messages * records)
    if commits.transactions < 2:
        raise SystemExit("there was only one transaction: more messages are needed")
    return turn_of(usage, commits.first, commits.last, commits.rows - commits.first_rows)


def bare_client(road: Road, messages: int) -> Turn:
    kind = BROKERS[road.kind]
    command = [sys.executable, str(BARE_CLIENT), str(road.broker.port), kind.bare_way]
    process = subprocess.Popen(
        [*command, str(messages), "bare", f"destination:{DESTINATION}", *kind.bare_headers],
        stdout=subprocess.PIPE,
        text=True,
    )
    with watch(road, process.pid) as usage:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    check("exit code of the bare client", process.returncode, 0)
    began, ended = map(float, output.splitlines()[0].split())
    return turn_of(usage, began, ended, messages or 1)


def by_java(road: Road, consumer: JavaConsumer, messages: int) -> Turn:
    with watch(road, consumer.pid) as usage:
        drained = consumer.drain()
    check("messages of Java", drained.messages, messages)
    return turn_of(usage, drained.began, drained.ended, messages)


def by_bulk_door(road: Road, messages: list[Message], size: int) -> Turn:
    engine = make_engine(as_role(road.database, "loader"))
    catalogue = Catalogue(engine)
    with watch(road, 0) as usage:
        began, began_cpu = time(), process_time()
        rows = 0
        for at in range(0, len(messages), size):
            rows += load(engine, catalogue, messages[at : at + size], datetime.now(UTC)).rows
        ended, own = time(), (process_time() - began_cpu) / rows
    fold_all(engine)  # or the next turn of sam-consume would have to do it
    engine.dispose()
    check("rows of the bulk door", rows, len(messages) * RECORDS)
    turn = turn_of(usage, began, ended, rows)
    used = {**turn.used_s, "consumer": own, "others": max(0.0, turn.used_s["others"] - own)}
    return Turn(turn.wall_s, used)


def watch(road: Road, pid: int) -> Watch:
    return Watch(consumer=pid, broker=road.broker.process.pid, PostgreSQL=road.postgres.process.pid)


def watch_many(roads: Sequence[Road], consumers: Sequence[Consumer]) -> Watch:
    """Watch `broker1`, `broker2` …, `consumer1` …, and their PostgreSQL."""
    brokers = {f"broker{number}": road.broker.process.pid for number, road in enumerate(roads, 1)}
    members = {f"consumer{number}": member.pid for number, member in enumerate(consumers, 1)}
    return Watch(**brokers, **members, PostgreSQL=roads[0].postgres.process.pid)


def turn_of(usage: Watch, began: float, ended: float, count: int) -> Turn:
    used = {name: usage.used_s(name, began, ended) for name in (*KNOWN, MACHINE, DISK, IDLE)}
    used["others"] = max(0.0, used.pop(MACHINE) - sum(used[name] for name in KNOWN))
    per_message = {name: used_s / count for name, used_s in used.items()}
    return Turn((ended - began) / count, per_message)


def check(title: str, count: int, expected: int) -> None:
    """Stop unless the count is as expected: a contestant must not be fast by leaving work out."""
    if count != expected:
        raise SystemExit(f"{title}: {count}, not {expected}")


def rotated(names: list[str], turn: int) -> list[str]:
    """The names in an order in which each is first, and last, equally often."""
    at = turn % len(names)
    return names[at:] + names[:at]


# Figures --------------------------------------------------------------------------------------


def print_turns(turns: Turns, unit: str) -> None:
    for name, own in turns.items():
        print_figure(f"{name}, {unit}", f"{1 / median(turn.wall_s for turn in own):.0f}")
    title = f"processor µs a {unit.removesuffix('s/s')}"
    print(f"  {title:24}" + "".join(f"{part:>11}" for part in (*PARTS, FREE)))
    for name, own in turns.items():
        used = [median(turn.used_s[part] for turn in own) for part in PARTS]
        free = (os.cpu_count() or 1) / sum(used[: len(KNOWN)])
        figures = "".join(f"{seconds * 1e6:11.1f}" for seconds in used)
        print(f"    {name:22}{figures}{free:11.0f}", flush=True)
