"""Part E: what a policy of 10 000 publishers costs, of whom 2000 send."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from statistics import median

from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import broker_identity, with_identity
from sam_pipeline.schema.identity.policy_file import load_policy
from sam_pipeline.schema.messages.message import Message, pack
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import load
from tests.benchmarks.consume_drain import ours
from tests.benchmarks.consume_road import SOURCES, Road, new_results, single
from tests.benchmarks.load import print_figure
from tests.services.postgres import as_role

PUBLISHERS = 10_000
BATCH = 1000
BOUND = 0.02
"""The share of a drain that a policy may add."""


def policy_costs(road: Road, messages: int) -> bool:
    """Load batches from memory, in turn without and with a policy that allows all of them.

    A drain of as many messages, without a policy, is what the difference is compared with.
    """
    rounds = messages // BATCH
    drain_s = ours(road, road.publish(messages, single), messages).wall_s
    engine = make_engine(as_role(road.database, "loader"))
    catalogue = Catalogue(engine)
    began = time.perf_counter()
    policy = load_policy(write_policy(road.directory / "publishers.toml"))
    reading_s = time.perf_counter() - began
    results = identified(road.results)
    add_topology(engine, catalogue)
    authority = Authority(policy)
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    used: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(-10, rounds):
        for name in sorted(seconds, reverse=turn % 2 == 0):
            batch = list(islice(results, BATCH))
            began, began_cpu = time.perf_counter(), time.process_time()
            loaded = load(
                engine,
                catalogue,
                batch,
                datetime.now(UTC),
                authority=authority if name == "with" else None,
            )
            if turn >= 0:  # those before fill the caches
                used[name].append(time.process_time() - began_cpu)
                seconds[name].append(time.perf_counter() - began)
            if loaded.rows != BATCH or loaded.refusals:
                raise SystemExit(f"{loaded.rows} rows of {BATCH}, refused: {loaded.refusals}")
    fold_all(engine)
    engine.dispose()
    print(f"{rounds} batches of {BATCH} messages of one record, from memory, of {SOURCES} senders")
    print_figure(f"a policy of {PUBLISHERS} is read in, s", f"{reading_s:.1f}")
    for name, own in seconds.items():
        print_figure(f"{name} a policy, rows/s", f"{BATCH / median(own):.0f}")
        print_figure(f"{name} a policy, processor µs", f"{median(used[name]) / BATCH * 1e6:.1f}")
    # A policy costs processor time of the consumer, which other load affects less than its speed.
    pairs = zip(used["with"], used["without"], strict=True)
    added_s = median(own - other for own, other in pairs) / BATCH
    print_figure("a drain without a policy, messages/s", f"{1 / drain_s:.0f}")
    print_figure("added by the policy, processor µs", f"{added_s * 1e6:.2f}")
    share = added_s / drain_s
    print_figure("of a drain", f"{share:.3f}", BOUND, "<=")
    return share <= BOUND


def identified(results: Iterator[Record]) -> Iterator[Message]:
    """The messages of one sender after the other."""
    for number in count():
        yield with_identity(single(results), sender(number % SOURCES))


def sender(number: int) -> str:
    return broker_identity("stomp+ssl://mb1.example.org:61614", f"CN=p{number}.example.org,DC=org")


def write_policy(file: Path) -> Path:
    publishers = (
        f'[[publisher]]\nname = "p{number}"\n'
        f'is = ["broker:*/CN=p{number}.example.org,DC=org", "uid:{number}"]\n'
        f'classes = ["metricOutput"]\nsites = ["EXAMPLE-LCG*"]\nhosts = ["*.p{number}.org"]\n'
        "records_per_minute = 10_000_000\nuntil = 2100-01-01\n"
        for number in range(PUBLISHERS)
    )
    file.write_text(f'mode = "enforce"\n{"".join(publishers)}')
    return file


def add_topology(engine: Engine, catalogue: Catalogue) -> None:
    """Every host of the results belongs to a site."""
    hosts = {record["hostName"]: record["siteName"] for record in islice(new_results(), SOURCES)}
    endpoints = (
        {
            "hostName": host,
            "siteName": site,
            "serviceFlavour": "CE",
            "validFrom": "2020-01-01T00:00:00Z",
        }
        for host, site in hosts.items()
    )
    messages: Sequence[Message] = list(pack(endpoints, "serviceEndpoint"))
    load(engine, catalogue, messages, datetime.now(UTC))
