"""Part G: several processes of one shared name, and several brokers.

A cell of the grid is the drain of a backlog by a number of processes from a number of brokers of
the same kind, all on this machine. Rates say how far this machine gets; the processor time for one
message, of the consumers, the brokers and PostgreSQL, says where another machine would get to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path
from resource import RUSAGE_THREAD, getrusage
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import text

from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import load
from tests.benchmarks.bare_consumer import STEP
from tests.benchmarks.consume_drain import BARE_CLIENT, check, watch_many
from tests.benchmarks.consume_lag import commit_lags, p99, send_evenly
from tests.benchmarks.consume_road import (
    BROKERS,
    COMMITS,
    DESTINATION,
    NAME,
    POSTGRES,
    Consumer,
    Road,
    new_results,
    single,
)
from tests.benchmarks.consume_watch import IDLE, MACHINE, TICKS_S, processor_s, run_s
from tests.services.postgres import as_role, fresh_database, running_postgres
from tests.services.process import wait_until

CONSUMERS: Sequence[int] = (1, 2, 4)
BROKER_COUNTS: Sequence[int] = (1, 2, 3)
LAG_RATES: Sequence[int] = (15, 1000)
"""Messages per second, as in part C."""

BARE = "/topic/bare"
SHARED = "/topic/VirtualTopic.grid.probe.metricOutput"
"""A topic that every kind of broker can share."""
PREFETCH = 1000
FLOOD = 50_000
"""Messages per second to send: more than any of the brokers accepts here."""

WARM_UPS = 2
"""Drains before those that count. A broker on Java takes two or three times the processor time for
its first hundred thousand messages; each gets a whole backlog."""

FIRST, LAST = 0.25, 0.75
"""A drain is measured between the commits that reach these shares of its messages: before, brokers
also fill the windows of the consumers; afterwards they have nothing left to deliver."""
QUIET_S = 0.5
PATIENCE_S = 120.0
BATCHES = 102
GROUPS = 50


POSITIONS = text("""
    SELECT (SELECT count(*) FROM metric_result), pg_current_wal_lsn() - '0/0'::pg_lsn,
        pg_database_size(current_database())
""")


class Cell(NamedTuple):
    """The drain of a backlog; processor time is in µs for one message."""

    brokers: int
    consumers: int
    messages: int
    rate: float
    """Messages per second."""
    consumer_us: float
    broker_us: float
    postgresql_us: float
    others_us: float
    idle_us: float
    publish_us: float
    """Of the broker, for a message that it stores and confirms."""
    main_share: float
    """Of the consumer's processor time: the thread that decodes and loads; others read."""
    rows_per_transaction: float


class Pace(NamedTuple):
    """A running daemon with messages at an even pace; times are in s, processor time in µs."""

    rate: int
    messages: int
    median_s: float
    p99_s: float
    max_s: float
    receipt_median_s: float
    receipt_p99_s: float
    consumer_us: float
    broker_us: float
    postgresql_us: float
    others_us: float
    """Of all other programs, the sender of the messages among them."""
    rows_per_transaction: float


@dataclass(frozen=True)
class Fleet:
    """Running brokers of one kind, and one road for each; all roads lead to the same database."""

    roads: Sequence[Road]

    @property
    def first(self) -> Road:
        return self.roads[0]

    def configure(self, brokers: int, shared: bool) -> None:
        """Let the consumer read that many brokers, in one process or in several."""
        urls = json.dumps([road.broker.url for road in self.roads[:brokers]])
        options = f"prefetch = {PREFETCH}\n" if shared else ""
        config = self.first.directory / "sam.toml"
        config.write_text(
            f"""\
[database]
url = {json.dumps(as_role(self.first.database, "loader"))}
[consumer]
name = "{NAME}"
brokers = {urls}
{options}[[consumer.subscription]]
destination = "{SHARED if shared else DESTINATION}"
shared = {str(shared).lower()}
"""
        )
        config.chmod(0o600)


@contextmanager
def fleet(kind: str, brokers: int) -> Iterator[Fleet]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        postgres = stack.enter_context(running_postgres(POSTGRES))
        database = fresh_database(postgres)
        engine = make_engine(database)
        upgrade(engine)
        started = [stack.enter_context(BROKERS[kind].start()) for _ in range(brokers)]
        road = Road(kind, started[0], postgres, database, engine, directory)
        yield Fleet([replace(road, broker=broker) for broker in started])
        engine.dispose()


def grid(
    new_fleet: Fleet,
    messages: int,
    rounds: int,
    consumers: Sequence[int] = CONSUMERS,
    brokers: Sequence[int] = BROKER_COUNTS,
) -> list[Cell]:
    """Every number of consumers with every number of brokers, on brokers that are warm."""
    subscribe(new_fleet, max(brokers))
    print_heads()
    for _ in range(WARM_UPS):
        print_cell(drained(new_fleet, max(brokers), max(consumers), messages * max(brokers)))
    print("  the brokers are warm")
    cells = []
    for _ in range(rounds):
        for broker_count in brokers:
            for consumer_count in consumers:
                cells.append(drained(new_fleet, broker_count, consumer_count, messages))
                print_cell(cells[-1])
    return cells


def subscribe(new_fleet: Fleet, brokers: int) -> None:
    """Let all brokers store messages for the consumer, however it is configured later."""
    for shared in (False, True):
        new_fleet.configure(brokers, shared)
        new_fleet.first.drain()


def drained(new_fleet: Fleet, brokers: int, consumers: int, messages: int) -> Cell:
    """Publish a backlog evenly to the brokers, and let the consumers drain it.

    They are frozen until the last one has subscribed, so that all begin at the same time.
    """
    roads = new_fleet.roads[:brokers]
    new_fleet.configure(brokers, shared=True)
    processes = [road.broker.process.pid for road in roads]
    used_before = sum(map(processor_s, processes))
    share = messages // brokers
    after = min([send_evenly(road, FLOOD, share / FLOOD, SHARED)[0] for road in roads])
    publish_s = (sum(map(processor_s, processes)) - used_before) / (share * brokers)

    with ExitStack() as stack:
        members = []
        for number in range(1, consumers + 1):
            member = stack.enter_context(new_fleet.first.consumer("--instance", str(number)))
            member.wait_until_subscribed()
            os.kill(member.pid, signal.SIGSTOP)
            members.append(member)
        with watch_many(new_fleet.roads, members) as usage:
            main_before = sum(main_thread_s(member.pid) for member in members)
            all_before = sum(processor_s(member.pid) for member in members)
            released = time.time()
            for member in members:
                os.kill(member.pid, signal.SIGCONT)
            expected = share * brokers
            wait_until(
                lambda: is_quiet(members) and stored(new_fleet.first, after) >= expected, PATIENCE_S
            )
            main_s = sum(main_thread_s(member.pid) for member in members) - main_before
            all_s = sum(processor_s(member.pid) for member in members) - all_before
        for member in members:
            member.stop()

    commits = commits_since(new_fleet.first, after)
    check("rows", sum(rows for _, rows in commits), expected)
    began, ended, rows, transactions = window(commits, released)
    used_us = {
        name: 1e6 * usage.used_s(name, began, ended) / rows
        for name in ("PostgreSQL", MACHINE, IDLE)
    }
    for group in ("consumer", "broker"):
        names = [name for name in usage.peak_mb if name.startswith(group)]
        used_us[group] = sum(1e6 * usage.used_s(name, began, ended) / rows for name in names)
    known = used_us["consumer"] + used_us["broker"] + used_us["PostgreSQL"]
    return Cell(
        brokers=brokers,
        consumers=consumers,
        messages=messages,
        rate=rows / (ended - began),
        consumer_us=used_us["consumer"],
        broker_us=used_us["broker"],
        postgresql_us=used_us["PostgreSQL"],
        others_us=max(used_us[MACHINE] - known, 0.0),
        idle_us=used_us[IDLE],
        publish_us=1e6 * publish_s,
        main_share=main_s / all_s,
        rows_per_transaction=rows / transactions,
    )


def window(commits: Sequence[tuple[float, int]], released: float) -> tuple[float, float, int, int]:
    """When the measured part of a drain began and ended, its rows and its transactions."""
    reached = list(accumulate(rows for _, rows in commits))
    inside = [
        number
        for number, (moment, _) in enumerate(commits)
        if moment > released and FIRST <= reached[number] / reached[-1] <= LAST
    ]
    if len(inside) < 5:
        raise SystemExit(f"only {len(inside)} transactions were measured: more messages are needed")
    first, last = inside[0], inside[-1]
    return commits[first][0], commits[last][0], reached[last] - reached[first], last - first


def paced(new_fleet: Fleet, a_second: int, duration_s: float) -> Pace:
    """Part C on the first broker, with the processor time that its parts used."""
    road = new_fleet.first
    new_fleet.configure(1, shared=False)
    with road.consumer() as consumer, watch_many([road], [consumer]) as usage:
        consumer.wait_until_subscribed()
        send_evenly(road, a_second, 3.0)
        began = time.time()
        after, receipts = send_evenly(road, a_second, duration_s)
        ended = time.time()
        count = round(a_second * duration_s)
        lags = commit_lags(road, after, count)
        consumer.stop()
    consumer_s, broker_s, postgresql_s, all_s = (
        usage.used_s(name, began, ended) / count
        for name in ("consumer1", "broker1", "PostgreSQL", MACHINE)
    )
    pace = Pace(
        rate=a_second,
        messages=count,
        median_s=sorted(lags)[count // 2],
        p99_s=p99(lags),
        max_s=max(lags),
        receipt_median_s=sorted(receipts)[len(receipts) // 2],
        receipt_p99_s=p99(receipts),
        consumer_us=1e6 * consumer_s,
        broker_us=1e6 * broker_s,
        postgresql_us=1e6 * postgresql_s,
        others_us=1e6 * max(all_s - consumer_s - broker_s - postgresql_s, 0.0),
        rows_per_transaction=count / road.commits(after).transactions,
    )
    print(
        f"  {a_second} messages/s: median {pace.median_s:.3f} s, 99 of 100 within"
        f" {pace.p99_s:.3f} s, all within {pace.max_s:.3f} s",
        flush=True,
    )
    return pace


def delivery_s(new_fleet: Fleet, messages: int) -> list[float]:
    """The times (s) in which a bare client receives STEP messages.

    No broker delivers a subscription faster here, whoever reads.
    """
    road = new_fleet.first
    kind = BROKERS[road.kind]
    command = [sys.executable, str(BARE_CLIENT), str(road.broker.port), kind.bare_way]
    headers = ["bare", f"destination:{BARE}", *kind.bare_headers]
    subprocess.run([*command, "0", *headers], check=True, stdout=subprocess.DEVNULL)
    send_evenly(road, FLOOD, messages / FLOOD, BARE)
    drained = subprocess.run(
        [*command, str(messages), *headers], check=True, stdout=subprocess.PIPE, text=True
    )
    moments = list(map(float, drained.stdout.splitlines()[1].split()))
    times = [after - before for before, after in pairwise(moments)]
    rate = STEP * len(times) / sum(times)
    longest = f"{STEP} of them in {1000 * max(times):.0f} ms at most"
    print(f"  a bare client reads {rate:.0f} messages/s, {longest}", flush=True)
    return grouped(times)


def measured_grid(new_fleet: Fleet, messages: int, rounds: int) -> dict[str, Any]:
    """The cells, and what a row takes in PostgreSQL's log and on its disk."""
    before = positions(new_fleet.first)
    cells = grid(new_fleet, messages, rounds)
    after = positions(new_fleet.first)
    rows = after[0] - before[0]
    return {
        "cells": [cell._asdict() for cell in cells],
        "log_bytes_per_row": round((after[1] - before[1]) / rows),
        "disk_bytes_per_row": round((after[2] - before[2]) / rows),
    }


def positions(road: Road) -> tuple[int, int, int]:
    """The number of results, the bytes written to the log, and the bytes of the database."""
    with reading(road.engine) as connection:
        rows, log, disk = connection.execute(POSITIONS).one()
    return int(rows), int(log), int(disk)


def commits_since(road: Road, after: str) -> list[tuple[float, int]]:
    """The time of each commit, and its rows."""
    with reading(road.engine) as connection:
        rows = connection.execute(COMMITS, {"after": after})
        return [(float(moment), int(count)) for moment, count in rows]


def is_quiet(members: Sequence[Consumer]) -> bool:
    """Whether the processes use no processor time for a while; so their work is not disturbed."""
    before = sum(processor_s(member.pid) for member in members)
    time.sleep(QUIET_S)
    return sum(processor_s(member.pid) for member in members) - before < 3 * TICKS_S


def stored(road: Road, after: str) -> int:
    return sum(rows for _, rows in commits_since(road, after))


def main_thread_s(pid: int) -> float:
    """The processor seconds of the main thread of a process."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat").read_text(errors="replace")
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) * TICKS_S


def batches(road: Road) -> dict[str, Any]:
    """Loads batches without a broker.

    `round_trips` is how often the loading thread sleeps in one of them. `batch_waits_s` are the
    times (s) less the processor time of that thread and of PostgreSQL: the flush of the log, minus
    what both computed at the same time.
    """
    engine = make_engine(as_role(road.database, "loader"))
    catalogue, results = Catalogue(engine), new_results()
    waits, round_trips = [], []
    for _ in range(BATCHES):
        messages = [single(results) for _ in range(PREFETCH // 2)]
        used_s = run_s(road.postgres.process.pid) + time.thread_time()
        slept = getrusage(RUSAGE_THREAD).ru_nvcsw
        began = time.perf_counter()
        load(engine, catalogue, messages, datetime.now(UTC))
        took_s = time.perf_counter() - began
        round_trips.append(getrusage(RUSAGE_THREAD).ru_nvcsw - slept)
        used_s = run_s(road.postgres.process.pid) + time.thread_time() - used_s
        waits.append(max(took_s - used_s, 0.0))
    fold_all(engine)  # or the next drain would have to do it
    engine.dispose()
    del waits[:WARM_UPS]
    beyond = f"{1000 * median(waits):.1f} ms beyond the processor time"
    print(f"  the median batch: {median(round_trips):.0f} round trips, {beyond}", flush=True)
    return {"round_trips": round(median(round_trips)), "batch_waits_s": grouped(waits)}


def grouped(times: Sequence[float]) -> list[float]:
    """A shorter list with the same mean: sorted, then the mean of each of GROUPS equal parts."""
    ordered = sorted(times)
    limits = [len(ordered) * number // GROUPS for number in range(GROUPS + 1)]
    return [mean(ordered[first:last]) for first, last in pairwise(limits)]


def print_heads() -> None:
    heads = ("messages/s", "consumer", "broker", "PostgreSQL", "others", "idle", "at most/s")
    print("  brokers consumers" + "".join(f"{head:>12}" for head in heads) + "   processor µs")


def print_cell(cell: Cell) -> None:
    used = (cell.consumer_us, cell.broker_us, cell.postgresql_us)
    figures = "".join(f"{value:12.1f}" for value in (*used, cell.others_us, cell.idle_us))
    most = 1e6 * (os.cpu_count() or 1) / sum(used)
    head = f"  {cell.brokers:7} {cell.consumers:9}{cell.rate:12.0f}"
    print(f"{head}{figures}{most:12.0f}", flush=True)
