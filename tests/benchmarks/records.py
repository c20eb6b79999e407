"""The CPU time of reading, checking, writing and decoding a record, compared with `json.loads`.

    python -m tests.benchmarks.records [--records N] [--rounds R]

The steps lead from a received message to the text for COPY. They take turns in one process, and the
fastest round of each counts, so that other load matters little. A cost above its limit, in
multiples of `json.loads`, is a regression: exit 1.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.decode_cache import CachedDecoder
from sam_pipeline.schema.messages.message import Message, new_message, pack
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import ReadRecord, Record, read_wlcg, write_wlcg
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.batch import PendingRow
from sam_pipeline.sql.loading.catalogue import ClassView
from sam_pipeline.sql.loading.insert import in_key_order
from sam_pipeline.sql.loading.staging import copy_text
from tests.benchmarks.common import arguments, print_figure
from tests.support.builders import NOW, metric_result

YARDSTICK = "json.loads"
LIMITS = {
    "publish": 9.0,
    "decode, one a message": 8.0,
    "cached, one a message": 3.3,
    "cached, 100 a message": 2.0,
    "message to COPY, one each": 5.0,
}
"""In multiples of the yardstick, with some margin."""

VIEW = ClassView(
    "metricoutput",
    tuple(key.lower() for key in METRIC_OUTPUT.keys),
    "messageid",
    "publisher",
    bulk=True,
)
"""The view as PostgreSQL spells its columns."""


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, records=1000, rounds=30)
    inputs = [record(number) for number in range(args.records)]
    own_steps = steps(inputs)
    best = dict.fromkeys(own_steps, float("inf"))
    for _ in range(args.rounds):
        for name, step in own_steps.items():
            started = time.process_time()
            step()
            best[name] = min(best[name], time.process_time() - started)
    print(f"records of {len(write_wlcg(inputs[0]))} bytes, in multiples of {YARDSTICK}")
    print_figure("json.loads, µs a record", best[YARDSTICK] / args.records * 1e6, 2)
    good = [
        print_figure(name, cost / best[YARDSTICK], 2, most=LIMITS.get(name))
        for name, cost in best.items()
    ]
    return 0 if all(good) else 1


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


def steps(records: Sequence[Record]) -> Mapping[str, Callable[[], object]]:
    texts = [write_wlcg(record) for record in records]
    bodies = [text.encode() for text in texts]
    packed = list(pack(records, METRIC_OUTPUT.name))
    messages = [new_message(METRIC_OUTPUT.name, text, record_count=1) for text in texts]
    decoder = CachedDecoder(VIEW.columns, NOW)
    objects = [json.dumps(record) for record in records]
    return {
        YARDSTICK: lambda: [json.loads(text) for text in objects],
        "read": lambda: [read_wlcg(body) for body in bodies],
        "normalise": lambda: [normalise(fields, "metricOutput", {}, NOW) for fields in records],
        "write and pack": lambda: list(pack(records, METRIC_OUTPUT.name)),
        "publish": lambda: [published(body) for body in bodies],
        "decode, one a message": lambda: [decoded(message) for message in messages],
        "cached, one a message": lambda: [decoder.decode(message) for message in messages],
        "cached, 100 a message": lambda: [decoder.decode(message) for message in packed],
        "message to COPY, one each": lambda: copied(messages),
        "message to COPY, 100 each": lambda: copied(packed),
    }


def published(body: bytes) -> list[Message]:
    """The messages that `send --one-per-message` makes of a record."""
    records = [record for record in read_wlcg(body) if isinstance(record, ReadRecord)]
    rows = [row for r in records for row in normalise(r.fields, METRIC_OUTPUT.name, {}, NOW)]
    return [new_message(METRIC_OUTPUT.name, write_wlcg(row), record_count=1) for row in rows]


def decoded(message: Message) -> int:
    records = decode(message, METRIC_OUTPUT.keys, NOW)
    assert records.rows and not records.bad
    return len(records.rows)


def copied(messages: Sequence[Message]) -> bytes:
    """The text for COPY, made of messages as the loader does."""
    decoder = CachedDecoder(VIEW.columns, NOW)
    pending = [
        PendingRow(message, message.message_id, ANONYMOUS, row)
        for message in messages
        for row in decoder.decode(message).rows
    ]
    rows = in_key_order(VIEW, pending)
    return copy_text(VIEW, ((row.row.values, row.message_id, row.publisher) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
