"""Throughput, latency and memory of `sam-consume`, compared with other ways to read and to load.

    python -m tests.benchmarks.consume [--part A]... [--broker NAME]... [--quick]

    A  one record per message: compared with a bare client that only reads and acks, and with the
       consumer that a Java engineer would write in an afternoon
    B  fifty records per message: compared with the bulk door, fed from memory
    C  the time from a message to its row, at 1 000 and at 15 messages per second
    D  memory with a backlog, while the database is locked and while the backlog is loaded
    E  a policy of 10 000 publishers, compared with none
    F  signed messages, compared with unsigned ones

On a private ActiveMQ, Artemis and RabbitMQ with persistent messages, into a private PostgreSQL with
durable commits. The contestants take turns, so that other load affects all of them, and the median
of the ratios of each turn counts. Start-up is not timed: a turn begins with the subscription (for
`sam-consume` with its first commit, whose rows do not count) and ends with the last commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from sqlalchemy import make_url, text

from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    broker_identity,
    key_identity,
    with_identity,
)
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.identity.policy import load_policy
from sam_pipeline.schema.identity.signature import load_signer, sign
from sam_pipeline.schema.messages.message import DESTINATION as HEADER
from sam_pipeline.schema.messages.message import Message, pack
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import Loader, Loading, load, load_all
from tests.benchmarks.common import (
    DISK,
    IDLE,
    MACHINE,
    Watch,
    arguments,
    check,
    print_figure,
    print_load,
    print_ratio,
    print_speed,
    rotated,
)
from tests.benchmarks.lag import commit_lags, p99, send_evenly
from tests.benchmarks.load import PLAIN, make_plain_table
from tests.benchmarks.road import (
    BARE,
    BARE_READS,
    DESTINATION,
    SOURCES,
    TIMEOUT_S,
    Maker,
    Road,
    new_results,
    of,
    of_size,
    road,
    single,
)
from tests.services.activemq import fetch
from tests.services.brokers import BROKERS
from tests.services.postgres import as_role
from tests.support.waiting import eventually

BARE_BOUNDS = {"rabbitmq": 0.7, "activemq": 0.25, "artemis": 0.25}
JAVA_BOUND = 0.8
"""On ActiveMQ and Artemis."""
PROCESSOR_BOUND_US = 40
"""Processor time of the consumer for one message."""
MEMORY_BOUND = 0.8
P99_BOUND_S = {1000: 0.5, 15: 0.25}
"""By messages per second."""
PEAK_BOUND_MB = 150
POLICY_BOUND = 0.02
"""The share of a drain that a policy may add."""
SIGNED_BOUND = 0.6
"""Of the rows per second that are loaded without signatures."""

JAVA = Path(__file__).with_name("JmsToSql.java")
JARS = (
    *("org.apache.activemq:activemq-client:6.3.1", "org.slf4j:slf4j-nop:2.0.18"),
    *("org.apache.artemis:artemis-jakarta-client:2.56.0", "org.postgresql:postgresql:42.7.11"),
)
JAVA_ON = ("activemq", "artemis")
RECORDS = 50
BATCH = 1000
LOCKED_S = 10.0
PUBLISHERS = 10_000
KNOWN = ("consumer", "broker", "PostgreSQL")


class Sizes(NamedTuple):
    """Messages of a turn, number of turns, seconds at an even pace, messages of a backlog."""

    messages: int
    rounds: int
    pace_s: float
    backlog: int


FULL = Sizes(messages=100_000, rounds=5, pace_s=20, backlog=100_000)
QUICK = Sizes(messages=30_000, rounds=2, pace_s=5, backlog=10_000)


class Turn(NamedTuple):
    """For one message or row: wall-clock seconds, and processor seconds by their user."""

    wall_s: float
    used_s: Mapping[str, float]


Turns = dict[str, list[Turn]]


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(
        __doc__, argv, parts=PARTS, brokers=BROKERS, switches=["quick"], messages=0, rounds=0
    )
    sizes = QUICK if args.quick else FULL
    sizes = sizes._replace(
        messages=args.messages or sizes.messages, rounds=args.rounds or sizes.rounds
    )
    good = []
    for kind in args.broker:
        for part in args.part:
            with road(kind) as new_road:  # without the backlog and rows of other parts
                good.append(PARTS[part](new_road, sizes))
            print_load()
    return 0 if all(good) else 1


# Drains ---------------------------------------------------------------------------------------


def one_record_a_message(road: Road, sizes: Sizes) -> bool:
    """Part A: every contestant has its own subscription, and so its own copy of each message."""
    bare_client(road, 0)
    contestants: dict[str, Callable[[str], Turn]] = {
        "sam-consume": lambda after: ours(road, after, sizes.messages),
        "bare client": lambda after: bare_client(road, sizes.messages),
    }
    bounds = {"bare client": BARE_BOUNDS[road.kind]}
    with ExitStack() as stack:
        if road.kind in JAVA_ON:
            java = stack.enter_context(java_consumer(road))
            contestants["Java"] = lambda after: by_java(road, java, sizes.messages)
            bounds["Java"] = JAVA_BOUND
        turns: Turns = {name: [] for name in contestants}
        for turn in range(sizes.rounds + 1):
            after = road.publish(sizes.messages, single)
            for name in rotated(list(contestants), turn):
                result = contestants[name](after)
                if turn:  # the first one warms broker, database and the Java machine up
                    turns[name].append(result)
    print("A  one record a message")
    used_us = 1e6 * median(turn.used_s["consumer"] for turn in turns["sam-consume"])
    return all(
        [
            print_turns(turns, "messages/s", bounds),
            print_figure("processor µs a message", used_us, most=PROCESSOR_BOUND_US),
        ]
    )


def fifty_records_a_message(road: Road, sizes: Sizes) -> bool:
    """Part B: compared with the bulk door, fed with messages and batches of the same size."""
    turns: Turns = {"sam-consume": [], "bulk door from memory": []}
    messages = sizes.messages // 20
    for turn in range(sizes.rounds + 1):
        after = road.publish(messages, of(RECORDS))
        drained = ours(road, after, messages, RECORDS)
        size = max(1, round(messages / len(road.commits(after).commits)))
        loaded = by_bulk_door(road, [of(RECORDS)(road.results) for _ in range(messages)], size)
        if turn:
            turns["sam-consume"].append(drained)
            turns["bulk door from memory"].append(loaded)
    print(f"B  {RECORDS} records a message, {size} messages a transaction")
    return print_turns(turns, "rows/s", {"bulk door from memory": MEMORY_BOUND})


def ours(road: Road, after: str, messages: int, records: int = 1) -> Turn:
    """A drain by sam-consume, from its first commit to the last.

    Before the first commit it still reads the schema version and the classes of the database. If
    messages were not acked, the next turn counts too many.
    """
    with road.consumer("--drain") as consumer, road.watch(consumer.pid) as usage:
        consumer.wait_until_subscribed()
        summary = consumer.wait()
    commits = road.commits(after)
    check("messages of sam-consume", summary["messages"], messages)
    check("rows of sam-consume", commits.rows, messages * records)
    if len(commits.commits) < 2:
        raise SystemExit("there was only one transaction: more messages are needed")
    rows = commits.rows - commits.commits[0][1]
    return turn_of(usage, commits.first, commits.last, rows)


def bare_client(road: Road, messages: int) -> Turn:
    way, *headers = BARE_READS[road.kind]
    command = [sys.executable, BARE, "consume", str(road.broker.port), way, str(messages), "bare"]
    process = subprocess.Popen(
        [*command, f"destination:{DESTINATION}", *headers], stdout=subprocess.PIPE, text=True
    )
    with road.watch(process.pid) as usage:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    check("exit code of the bare client", process.returncode, 0)
    began, ended = map(float, output.splitlines()[0].split())
    return turn_of(usage, began, ended, messages or 1)


@contextmanager
def java_consumer(road: Road) -> Iterator[subprocess.Popen[str]]:
    """A process that loads its own subscription into a plain table, once for each line it reads.

    One process for all turns: the compiler has seen a whole turn before those that count.
    """
    with writing(road.engine) as connection:
        make_plain_table(connection)
    jars = fetch("java-consumer", JARS)
    port = road.broker.openwire_port if road.kind == "activemq" else road.broker.port
    url = make_url(road.database)
    database = (
        f"jdbc:postgresql://{url.host}:{url.port}/{url.database}?user={url.username}"
        f"&password={url.password}&reWriteBatchedInserts=true"
    )
    java = ["java", "-Xmx512m", "-cp", f"{jars}/*", str(JAVA), road.kind]
    topic = DESTINATION.removeprefix("/topic/")
    columns = ",".join(PLAIN.all_columns)
    process = subprocess.Popen(
        [*java, f"tcp://{road.broker.host}:{port}", topic, database, columns],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        drained_by(process)  # subscribes
        yield process
    finally:
        process.kill()
        process.communicate()


def drained_by(java: subprocess.Popen[str]) -> tuple[int, int, int]:
    """Let it drain: the messages, and when it began and ended (ms since 1970)."""
    assert java.stdin is not None
    assert java.stdout is not None
    java.stdin.write("\n")
    java.stdin.flush()
    messages, began, ended = map(int, java.stdout.readline().split())
    return messages, began, ended


def by_java(road: Road, java: subprocess.Popen[str], messages: int) -> Turn:
    with road.watch(java.pid) as usage:
        count, began, ended = drained_by(java)
    check("messages of Java", count, messages)
    return turn_of(usage, began / 1000, ended / 1000, messages)


def by_bulk_door(road: Road, messages: list[Message], size: int) -> Turn:
    engine = make_engine(as_role(road.database, "loader"))
    catalogue = Catalogue(engine)
    with road.watch(os.getpid()) as usage:
        began = time.time()
        rows = 0
        for at in range(0, len(messages), size):
            rows += load(engine, catalogue, messages[at : at + size], datetime.now(UTC)).rows
        ended = time.time()
    fold_all(engine)  # or the next turn of sam-consume would have to do it
    engine.dispose()
    check("rows of the bulk door", rows, len(messages) * RECORDS)
    return turn_of(usage, began, ended, rows)


def turn_of(usage: Watch, began: float, ended: float, count: int) -> Turn:
    used = {name: usage.used_s(name, began, ended) for name in (*KNOWN, MACHINE, DISK, IDLE)}
    used["others"] = max(0.0, used.pop(MACHINE) - sum(used[name] for name in KNOWN))
    return Turn((ended - began) / count, {name: used_s / count for name, used_s in used.items()})


def print_turns(turns: Turns, unit: str, bounds: Mapping[str, float]) -> bool:
    """Print rates, processor time, and the ratios of the first contestant to the others."""
    for name, own in turns.items():
        print_speed(f"{name}, {unit}", [turn.wall_s for turn in own])
        used = {part: median(turn.used_s[part] for turn in own) for part in own[0].used_s}
        figures = ", ".join(f"{part} {1e6 * used_s:.1f}" for part, used_s in used.items())
        free = (os.cpu_count() or 1) / sum(used[part] for part in KNOWN)
        print(f"    processor µs of each: {figures}; at most/s: {free:.0f}", flush=True)
    wall_s = {name: [turn.wall_s for turn in own] for name, own in turns.items()}
    ours = next(iter(wall_s))
    good = [
        print_ratio(f"{ours} / {name}", wall_s[name], wall_s[ours], bound)
        for name, bound in bounds.items()
    ]
    return all(good)


def signed_messages(road: Road, sizes: Sizes) -> bool:
    """Part F: drains of signed and unsigned messages in turn, under a policy that allows both."""
    key_file = road.directory / "bench-key.pem"
    make_key(key_file)
    signer = load_signer(key_file)
    (road.directory / "publishers.toml").write_text(
        f'mode = "enforce"\n[[publisher]]\nname = "bench"\n'
        f'is = ["{key_identity("bench-key")}", "{ANONYMOUS}"]\nkeys = ["{signer.public_key()}"]\n'
        'classes = ["metricOutput"]\nsites = ["*"]\nhosts = ["*"]\n'
    )
    subscription = f'[[consumer.subscription]]\ndestination = "{DESTINATION}"\n'
    road.configure([road.broker.url], subscription, 'policy_file = "publishers.toml"\n')

    def signed(make: Maker, results: Iterator[Record]) -> Message:
        headers, body = make(results)
        return sign(Message({**headers, HEADER: DESTINATION}, body), signer, datetime.now(UTC))

    good = []
    for records, messages in ((1, sizes.messages), (RECORDS, sizes.messages // 20)):
        makers: dict[str, Maker] = {"signed": partial(signed, of(records)), "unsigned": of(records)}
        turns: Turns = {name: [] for name in makers}
        for turn in range(sizes.rounds + 1):
            for name in rotated(list(makers), turn):
                result = ours(road, road.publish(messages, makers[name]), messages, records)
                if turn:
                    turns[name].append(result)
        print(f"F  {records} records a message, signed with Ed25519 or not")
        good.append(print_turns(turns, "rows/s", {"unsigned": SIGNED_BOUND}))
    return all(good)


# Other parts ----------------------------------------------------------------------------------


def lag(road: Road, sizes: Sizes) -> bool:
    """Part C: a running daemon with persistent messages at an even pace, sent one by one."""
    good = []
    for a_second, duration_s in ((1000, sizes.pace_s), (15, 1.5 * sizes.pace_s)):
        with road.consumer() as consumer:
            consumer.wait_until_subscribed()
            send_evenly(road, a_second, 3.0)
            after, confirmed = send_evenly(road, a_second, duration_s)
            lags = commit_lags(road, after, round(a_second * duration_s))
            consumer.stop()
        print(f"C  {a_second} messages/s for {duration_s:g} s, seconds after each was due")
        print_figure("the broker's receipt, p99, s", p99(confirmed), 3)
        print_figure("committed, median, s", median(lags), 3)
        good.append(print_figure("committed, p99, s", p99(lags), 3, most=P99_BOUND_S[a_second]))
        print_figure("committed, maximum, s", max(lags), 3)
    return all(good)


def memory(road: Road, sizes: Sizes) -> bool:
    """Part D: start the daemon while the table is locked, then let it load the whole backlog."""
    good = []
    for messages, size_bytes in ((sizes.backlog, 10_000), (sizes.backlog // 10, 100_000)):
        after = road.publish(messages, of_size(size_bytes))

        def all_loaded(after: str = after, messages: int = messages) -> bool:
            time.sleep(2)  # counting takes processor time from the load
            return road.commits(after).rows >= messages

        with road.consumer() as consumer, Watch(consumer=consumer.pid) as usage:
            with writing(road.engine) as connection:
                connection.execute(text("LOCK TABLE metric_result IN ACCESS EXCLUSIVE MODE"))
                consumer.wait_until_subscribed()
                time.sleep(LOCKED_S)
            locked_mb = usage.peak_mb["consumer"]
            eventually(all_loaded, timeout_s=TIMEOUT_S)
        print(f"D  backlog of {messages} messages of {size_bytes / 1000:g} kB")
        print_figure(f"database locked for {LOCKED_S:g} s, MB", locked_mb, 0)
        peak_mb = usage.peak_mb["consumer"]
        good.append(print_figure("peak of locked and loading, MB", peak_mb, 0, most=PEAK_BOUND_MB))
    return all(good)


def policy_costs(road: Road, sizes: Sizes) -> bool:
    """Part E: load batches from memory, in turn without and with a policy that allows all of them.

    A drain of as many messages, without a policy, is what the difference is compared with.
    """
    drain_s = ours(road, road.publish(sizes.messages, single), sizes.messages).wall_s
    engine = make_engine(as_role(road.database, "loader"))
    catalogue = Catalogue(engine)
    file = road.directory / "publishers.toml"
    file.write_text('mode = "enforce"\n' + "".join(map(policy_of, range(PUBLISHERS))))
    hosts = {record["hostName"]: record["siteName"] for record in islice(new_results(), SOURCES)}
    since = {"serviceFlavour": "CE", "validFrom": "2020-01-01T00:00:00Z"}
    endpoints = ({"hostName": host, "siteName": site, **since} for host, site in hosts.items())
    load(engine, catalogue, list(pack(endpoints, "serviceEndpoint")), datetime.now(UTC))
    results = (
        with_identity(single(road.results), identity_of(number % SOURCES)) for number in count()
    )
    authority = Authority(load_policy(file))
    used: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(-10, sizes.messages // BATCH):
        for name in sorted(used, reverse=turn % 2 == 0):
            batch = list(islice(results, BATCH))
            own = authority if name == "with" else None
            began = time.process_time()
            loader = Loader(engine, catalogue, authority=own)
            loaded = load_all(Loading(loader, batch, datetime.now(UTC)))
            if turn >= 0:  # those before fill the caches
                used[name].append(time.process_time() - began)
            check("rows, refusals", (loaded.rows, list(loaded.refusals)), (BATCH, []))
    fold_all(engine)
    engine.dispose()
    # A policy costs processor time of the consumer, which other load affects less than its speed.
    pairs = zip(used["with"], used["without"], strict=True)
    added_s = median(own - other for own, other in pairs) / BATCH
    print(f"E  a policy of {PUBLISHERS} publishers, of whom {SOURCES} send")
    print_figure("a drain without a policy, messages/s", 1 / drain_s, 0)
    print_figure("added by the policy, processor µs", 1e6 * added_s, 2)
    return print_figure("of a drain", added_s / drain_s, 3, most=POLICY_BOUND)


def identity_of(number: int) -> str:
    return broker_identity("stomp+ssl://mb1.example.org:61614", f"CN=p{number}.example.org,DC=org")


def policy_of(number: int) -> str:
    return (
        f'[[publisher]]\nname = "p{number}"\n'
        f'is = ["broker:*/CN=p{number}.example.org,DC=org", "uid:{number}"]\n'
        f'classes = ["metricOutput"]\nsites = ["EXAMPLE-LCG*"]\nhosts = ["*.p{number}.org"]\n'
        "records_per_minute = 10_000_000\nuntil = 2100-01-01\n"
    )


PARTS: Mapping[str, Callable[[Road, Sizes], bool]] = {
    "A": one_record_a_message,
    "B": fifty_records_a_message,
    "C": lag,
    "D": memory,
    "E": policy_costs,
    "F": signed_messages,
}


if __name__ == "__main__":
    sys.exit(main())
