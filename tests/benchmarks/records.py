"""The CPU time of reading, checking, writing and decoding a record, compared with `json.loads`.

    python -m tests.benchmarks.records [--records N] [--rounds R] [--json]

The steps lead from a received message to the text for COPY. They take turns in one process, and the
fastest round of each counts, so that other load matters little. Compare machines by the ratio to
the yardstick.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.decode_cache import CachedDecoder
from sam_pipeline.schema.messages.message import Message, new_message, pack
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.json_form import read_json, write_json
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import ReadRecord, Record, read_wlcg, write_wlcg
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.batch import PendingRow
from sam_pipeline.sql.loading.catalogue import ClassView
from sam_pipeline.sql.loading.insert import in_key_order
from sam_pipeline.sql.loading.staging import copy_text
from tests.support.builders import NOW, metric_result

YARDSTICK = "json.loads"
LIMITS = {
    "publish": 9.0,
    "decode, one a message": 8.0,
    "cached, one a message": 3.3,
    "cached, 100 a message": 2.0,
    "message to COPY, one each": 5.0,
}
"""In multiples of the yardstick, with some margin: a higher cost is a regression."""

VIEW = ClassView(
    "metricoutput",
    tuple(key.lower() for key in METRIC_OUTPUT.keys),
    "messageid",
    "publisher",
    bulk=True,
)
"""The view as PostgreSQL spells its columns."""

Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    inputs = [record(number) for number in range(args.records)]
    costs = measured(steps(inputs), args.rounds, args.records)
    if args.json:
        print(json.dumps({"python": platform.python_version(), "us_per_record": costs}))
        return
    text = write_wlcg(inputs[0])
    print(f"Python {platform.python_version()} on {platform.machine()}; {args.records} records of")
    print(f"{len(text)} bytes and {len(inputs[0])} keys, best of {args.rounds} rounds:\n")
    print(f"{'step':<28}{'µs a record':>12}{f'x {YARDSTICK}':>14}")
    for name, cost in costs.items():
        ratio = cost / costs[YARDSTICK]
        limit = f"   (at most {LIMITS[name]:g})" if name in LIMITS else ""
        print(f"{name:<28}{cost:>12.2f}{ratio:>14.2f}{limit}")


def record(number: int) -> Record:
    """A result of a round of probes, which share hosts, sites and times, but not texts."""
    return metric_result(
        hostName=f"ce{number % 200:02}.example.org",
        metricName=f"org.sam.CE-Job{number // 200 % 10}",
        siteName=f"EXAMPLE-LCG{number % 50}",
        summaryData=f"job finished in {number} s",
        timestamp=format_time(NOW - timedelta(minutes=number % 60)),
        voFqan="/ops/Role=lcgadmin",
        performanceData=f"time={number}s;400;600;0",
        detailsData=f"job {number} was sent\nand came back",
    )


def steps(records: list[Record]) -> dict[str, Step]:
    texts = [write_wlcg(record) for record in records]
    bodies = [text.encode() for text in texts]
    packed = list(pack(records, METRIC_OUTPUT.name))
    messages = [new_message(METRIC_OUTPUT.name, text, record_count=1) for text in texts]
    lower = VIEW.columns
    decoder = CachedDecoder(lower, NOW)
    batch = received(messages)
    rows = [(row.row.values, row.message_id, row.publisher) for row in in_key_order(VIEW, batch)]
    objects, array = [json.dumps(record) for record in records], write_json(records).encode()
    return {
        YARDSTICK: lambda: [json.loads(text) for text in objects],
        "read, one a body": lambda: [read_wlcg(body) for body in bodies],
        "read, 100 a body": lambda: [read_wlcg(message.body) for message in packed],
        "normalise": lambda: [normalised(record) for record in records],
        "write": lambda: [write_wlcg(record) for record in records],
        "new message": lambda: [new_message(METRIC_OUTPUT.name, text) for text in texts],
        "write and pack": lambda: list(pack(records, METRIC_OUTPUT.name)),
        "publish": lambda: [published(body) for body in bodies],
        "decode, one a message": lambda: [decoded(m, METRIC_OUTPUT.keys) for m in messages],
        "decode, 100 a message": lambda: [decoded(m, METRIC_OUTPUT.keys) for m in packed],
        "decode, lower-case columns": lambda: [decoded(m, lower) for m in messages],
        "cached, one a message": lambda: [decoder.decode(m) for m in messages],
        "cached, 100 a message": lambda: [decoder.decode(m) for m in packed],
        "sort": lambda: in_key_order(VIEW, batch),
        "copy text": lambda: copy_text(VIEW, rows),
        "message to COPY, one each": lambda: copied(messages),
        "message to COPY, 100 each": lambda: copied(packed),
        "read JSON, an array": lambda: read_json(array),
    }


def normalised(fields: Record) -> list[Record]:
    return normalise(fields, METRIC_OUTPUT.name, {}, NOW)


def decoded(message: Message, columns: tuple[str, ...]) -> int:
    records = decode(message, columns, NOW)
    assert records.rows and not records.bad
    return len(records.rows)


def received(messages: Sequence[Message]) -> list[PendingRow]:
    pending: list[PendingRow] = []
    decoder = CachedDecoder(VIEW.columns, NOW)
    for message in messages:
        message_id = message.message_id
        rows = decoder.decode(message).rows
        pending += [PendingRow(message, message_id, ANONYMOUS, row) for row in rows]
    return pending


def copied(messages: Sequence[Message]) -> bytes:
    """The text for COPY, made of messages as the loader does."""
    rows = in_key_order(VIEW, received(messages))
    return copy_text(VIEW, ((row.row.values, row.message_id, row.publisher) for row in rows))


def published(body: bytes) -> list[Message]:
    """The messages that `send --one-per-message` makes of a record."""
    records = [record for record in read_wlcg(body) if isinstance(record, ReadRecord)]
    rows = [row for record in records for row in normalised(record.fields)]
    return [new_message(METRIC_OUTPUT.name, write_wlcg(row), record_count=1) for row in rows]


def measured(steps: dict[str, Step], rounds: int, records: int) -> dict[str, float]:
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            started = time.process_time()
            step()
            best[name] = min(best[name], time.process_time() - started)
    return {name: round(seconds / records * 1e6, 2) for name, seconds in best.items()}


if __name__ == "__main__":
    main()
