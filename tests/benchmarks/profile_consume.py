"""The processor time that a message costs the consumer's own process, step by step, in µs.

    python -m tests.benchmarks.profile_consume [--rounds R] [--calls]

Without a broker, into a private PostgreSQL. The fastest round of each step counts, so that other
load matters little; `--calls` adds the functions in which loading spends its time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sam_pipeline.consumer.sources.stomp.lenient_reader import LenientReader
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.stomp_frame import encode
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.batch import Batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.insert import in_key_order
from sam_pipeline.sql.loading.load import decode_batch, load
from sam_pipeline.sql.loading.staging import copy_text
from tests.benchmarks.consume_road import DESTINATION, new_results, single
from tests.benchmarks.load import SETTINGS, print_figure, print_load
from tests.services.postgres import as_role, fresh_database, running_postgres

BATCH = 1000
CALLS = 30

Step = Callable[[Sequence[Message], bytes], object]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="batches (default: 20)")
    parser.add_argument("--calls", action="store_true", help="the functions of the loading, too")
    args = parser.parse_args(argv)
    with running_postgres(SETTINGS) as server:
        url = fresh_database(server)
        engine = make_engine(url)
        upgrade(engine)
        engine.dispose()
        measure(as_role(url, "loader"), args.rounds, args.calls)


def measure(url: str, rounds: int, calls: bool) -> None:
    engine = make_engine(url)
    catalogue = Catalogue(engine)
    profile = cProfile.Profile()
    reader = LenientReader(Limits().max_message_bytes)
    steps: dict[str, Step] = {
        "frames are cut": lambda _, data: list(reader.feed(data)),
        "messages are decoded": lambda messages, _: decode_batch(
            catalogue, messages, datetime.now(UTC), Limits()
        ),
        "decoded, to COPY text": lambda messages, _: to_copy(
            decode_batch(catalogue, messages, datetime.now(UTC), Limits())
        ),
        "decoded and loaded (without PostgreSQL)": lambda messages, _: load(
            engine, catalogue, messages, datetime.now(UTC)
        ),
    }
    best = dict.fromkeys(steps, float("inf"))
    results = new_results()
    for _ in range(rounds):
        messages = [single(results) for _ in range(BATCH)]
        data = b"".join(map(delivered, messages))
        for name, step in steps.items():
            began = time.process_time()
            step(messages, data)
            best[name] = min(best[name], time.process_time() - began)
    print(f"{BATCH} messages of one record a batch, the best of {rounds}; µs a message")
    for name, seconds in best.items():
        print_figure(name, f"{seconds / BATCH * 1e6:.1f}")
    print_load()
    if calls:  # at the end, because profiling makes every call slower
        messages = [single(results) for _ in range(10 * BATCH)]
        with profile:
            for at in range(0, len(messages), BATCH):
                load(engine, catalogue, messages[at : at + BATCH], datetime.now(UTC))
        pstats.Stats(profile).sort_stats("tottime").print_stats(CALLS)
    engine.dispose()


def to_copy(batch: Batch) -> list[bytes]:
    """The text for COPY of each class, as the loader makes it."""
    texts = []
    for part in batch.by_view.values():
        rows = in_key_order(part.view, part.rows)
        texts.append(copy_text(part.view, [(row.values, *facts) for _, *facts, row in rows]))
    return texts


def delivered(message: Message) -> bytes:
    """The frame with which ActiveMQ delivers the message."""
    of_broker = {
        "content-type": "text/plain; charset=utf-8",
        "message-id": "ID:broker.example.org-37219-1795264245521-3:12:-1:1:4711",
        "destination": DESTINATION,
        "timestamp": "1795264245521",
        "expires": "0",
        "subscription": "0",
        "priority": "4",
        "ack": "ID:broker.example.org-37219-1795264245521-31:4711",
    }
    return encode("MESSAGE", {**message.headers, **of_broker}, message.body) + b"\n"


if __name__ == "__main__":
    main()
