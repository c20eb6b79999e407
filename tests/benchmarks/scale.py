"""Everything that docs/scale.md knows of speed, measured in one run.

    python -m tests.benchmarks.scale [--broker NAME]... [--quick] [--rounds N] [--add]

For each kind of broker: drains of a backlog by 1, 2 and 4 processes of one shared name from 1, 2
and 3 brokers; how fast a broker delivers, and how long a batch waits; and the storm of one-shot
publishers. The results replace those of the same kind in measured.json, with the date, the machine
and the commit. With --add only drains are measured, and added to those of the file, which must be
of this machine: more of them, less noise.

Rates say how far this machine gets; the processor time for one message, of consumers, brokers and
PostgreSQL, says where another machine would get to.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

from sqlalchemy import text

from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import load
from tests.benchmarks import storm
from tests.benchmarks.bare import STEP
from tests.benchmarks.common import (
    IDLE,
    MACHINE,
    TICKS_S,
    Watch,
    arguments,
    check,
    print_load,
    processor_s,
    run_s,
    software,
)
from tests.benchmarks.lag import send_evenly
from tests.benchmarks.law import MEASURED, fitted, written
from tests.benchmarks.road import BARE, BARE_READS, DESTINATION, Road, new_results, roads, single
from tests.services.brokers import BROKERS
from tests.services.postgres import as_role
from tests.support.waiting import eventually

CONSUMERS: Sequence[int] = (1, 2, 4)
BROKER_COUNTS: Sequence[int] = (1, 2, 3)
MESSAGES, QUICK_MESSAGES = 48_000, 24_000
"""Of a backlog."""
ROUNDS = 3
BARE_TOPIC = "/topic/bare"
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
POSITIONS = text("""
    SELECT (SELECT count(*) FROM metric_result), pg_current_wal_lsn() - '0/0'::pg_lsn,
        pg_database_size(current_database())
""")


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, brokers=BROKERS, switches=["quick", "add"], rounds=0)
    rounds = args.rounds or (1 if args.quick else ROUNDS)
    messages = QUICK_MESSAGES if args.quick else MESSAGES
    document: dict[str, Any] = json.loads(MEASURED.read_text())
    if args.add:
        check("the machine of the file", document["machine"], machine())
        document["load_before"] = max(document["load_before"], load_average())
        document["measured_at"] = now()
    else:
        document = inputs(args.quick, messages) | {"brokers": document["brokers"]}
    for kind in args.broker:
        with roads(kind, max(BROKER_COUNTS)) as fleet:
            measured = document["brokers"][kind] if args.add else {"cells": []}
            measured |= {"software": software(fleet[0].broker), "measured_at": now()}
            before = positions(fleet[0])
            measured["cells"] += grid(fleet, document["backlog"], rounds)
            rows, log, disk = (b - a for a, b in zip(before, positions(fleet[0]), strict=True))
            if not args.add:
                measured["log_bytes_per_row"] = round(log / rows)
                measured["disk_bytes_per_row"] = round(disk / rows)
                measured["delivery_s"] = delivery_s(fleet[0], messages)
                document["batch_wait_s"] = batch_wait_s(fleet[0])
        if not args.add:
            measured["storm"] = storm.storm(kind, storm.QUICK if args.quick else storm.FULL)
        law = fitted([SimpleNamespace(**cell) for cell in measured["cells"]])
        for name, part in law.components().items():
            print(f"  {name}: {part.alone_us:.1f} µs, contention {part.contention:.3f}")
        document["brokers"][kind] = measured
        MEASURED.write_text(written(document) + "\n")
        print_load()
    return 0


# Drains ---------------------------------------------------------------------------------------


def grid(fleet: Sequence[Road], messages: int, rounds: int) -> list[dict[str, Any]]:
    """Every number of consumers with every number of brokers, on brokers that are warm."""
    for shared in (False, True):  # all store messages for the consumer, however it is configured
        configure(fleet, shared)
        fleet[0].drain()
    for _ in range(WARM_UPS):
        drained(fleet, max(CONSUMERS), messages * len(fleet))
    print("  the brokers are warm")
    return [
        drained(fleet[:brokers], consumers, messages)
        for _ in range(rounds)
        for brokers in BROKER_COUNTS
        for consumers in CONSUMERS
    ]


def configure(fleet: Sequence[Road], shared: bool) -> None:
    """Let the consumer read these brokers, in one process or in several."""
    subscription = (
        f'[[consumer.subscription]]\ndestination = "{SHARED if shared else DESTINATION}"\n'
        f"shared = {str(shared).lower()}\n"
    )
    options = f"prefetch = {PREFETCH}\n" if shared else ""
    fleet[0].configure([road.broker.url for road in fleet], subscription, options)


def drained(fleet: Sequence[Road], consumers: int, messages: int) -> dict[str, Any]:
    """Publish a backlog evenly to the brokers, and let the consumers drain it.

    They are frozen until the last one has subscribed, so that all begin at the same time. Processor
    time is in µs for one message.
    """
    first, expected = fleet[0], messages // len(fleet) * len(fleet)
    configure(fleet, shared=True)
    pids = {f"broker{number}": road.broker.process.pid for number, road in enumerate(fleet)}
    used_before = sum(map(processor_s, pids.values()))
    flood_s = messages // len(fleet) / FLOOD
    after = min([send_evenly(road, FLOOD, flood_s, SHARED)[0] for road in fleet])
    publish_s = (sum(map(processor_s, pids.values())) - used_before) / expected
    with ExitStack() as stack:
        members = []
        for number in range(consumers):
            member = stack.enter_context(first.consumer("--instance", str(number + 1)))
            member.wait_until_subscribed()
            os.kill(member.pid, signal.SIGSTOP)
            members.append(member)
        pids |= {f"consumer{number}": member.pid for number, member in enumerate(members)}

        def used_s() -> float:
            return sum(processor_s(member.pid) for member in members)

        def is_done() -> bool:
            """Without any work for a while; so it is not disturbed by our counting."""
            before = used_s()
            time.sleep(QUIET_S)
            is_quiet = used_s() - before < 3 * TICKS_S
            return is_quiet and first.commits(after).rows >= expected

        with Watch(**pids, PostgreSQL=first.postgres.process.pid) as usage:
            released = time.time()
            for member in members:
                os.kill(member.pid, signal.SIGCONT)
            eventually(is_done, timeout_s=PATIENCE_S)
        for member in members:
            member.stop()
    commits = first.commits(after)
    check("rows", commits.rows, expected)
    began, ended, rows, transactions = window(commits.commits, released)

    def us(group: str) -> float:
        names = [name for name in (*pids, "PostgreSQL", MACHINE, IDLE) if name.startswith(group)]
        return sum(1e6 * usage.used_s(name, began, ended) / rows for name in names)

    known = {
        "consumer_us": us("consumer"),
        "broker_us": us("broker"),
        "postgresql_us": us("PostgreSQL"),
    }
    cell = {
        "brokers": len(fleet),
        "consumers": consumers,
        "messages": messages,
        "rate": rows / (ended - began),
        **known,
        "others_us": max(us(MACHINE) - sum(known.values()), 0.0),
        "idle_us": us(IDLE),
        "publish_us": 1e6 * publish_s,
        "rows_per_transaction": rows / transactions,
    }
    print("  " + ", ".join(f"{name} {value:.4g}" for name, value in cell.items()), flush=True)
    return cell


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


# Waits ------------------------------------------------------------------------------------------


def delivery_s(road: Road, messages: int) -> float:
    """The time (s) in which a bare client receives a message.

    No broker delivers a subscription faster here, whoever reads.
    """
    way, *headers = BARE_READS[road.kind]

    def read(count: int) -> list[float]:
        """When the messages arrived, one of STEP."""
        command = [sys.executable, BARE, "consume", str(road.broker.port), way, str(count), "bare"]
        command += [f"destination:{BARE_TOPIC}", *headers]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return list(map(float, output.splitlines()[1].split()))

    read(0)
    send_evenly(road, FLOOD, messages / FLOOD, BARE_TOPIC)
    moments = read(messages)
    return (moments[-1] - moments[0]) / (STEP * (len(moments) - 1))


def batch_wait_s(road: Road) -> float:
    """How long (s) loading a batch takes beyond the processor time, of this thread and PostgreSQL.

    That is the flush of the log, minus what both computed at the same time.
    """
    engine = make_engine(as_role(road.database, "loader"))
    catalogue, results = Catalogue(engine), new_results()
    waits = []
    for _ in range(BATCHES):
        messages = [single(results) for _ in range(PREFETCH // 2)]
        used_s = run_s(road.postgres.process.pid) + time.thread_time()
        began = time.perf_counter()
        load(engine, catalogue, messages, datetime.now(UTC))
        took_s = time.perf_counter() - began
        used_s = run_s(road.postgres.process.pid) + time.thread_time() - used_s
        waits.append(max(took_s - used_s, 0.0))
    fold_all(engine)
    engine.dispose()
    return mean(waits[WARM_UPS:])


# The document ---------------------------------------------------------------------------------


def positions(road: Road) -> tuple[int, ...]:
    """The number of results, the bytes written to the log, and the bytes of the database."""
    with reading(road.engine) as connection:
        return tuple(map(int, connection.execute(POSITIONS).one()))


def inputs(quick: bool, messages: int) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=True
    )
    return {
        "measured_at": now(),
        "commit": commit.stdout.strip(),
        "quick": quick,
        "load_before": load_average(),
        "machine": machine(),
        "backlog": messages,
        "message_bytes": len(single(new_results()).body),
        "prefetch": PREFETCH,
    }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")


def load_average() -> float:
    return round(os.getloadavg()[0], 1)


def machine() -> Mapping[str, Any]:
    """What kind of machine this is, without its name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.machine(),
        "memory_gb": round(memory / 1e9),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
