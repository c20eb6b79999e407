"""Part D: the memory of a daemon that has a backlog and a locked database."""

from __future__ import annotations

import time

from sqlalchemy import text

from sam_pipeline.sql.database.engine import writing
from tests.benchmarks.consume_road import TIMEOUT_S, Road, of_size
from tests.benchmarks.consume_watch import Watch
from tests.benchmarks.load import print_figure
from tests.services.process import wait_until

PEAK_BOUND_MB = 150
LOCKED_S = 10.0

LOCK = text("LOCK TABLE metric_result IN ACCESS EXCLUSIVE MODE")


def memory(road: Road, messages: int, size_bytes: int) -> bool:
    """Start the daemon while the table is locked, then let it load the whole backlog."""
    after = road.publish(messages, of_size(size_bytes))
    with road.consumer() as consumer, Watch(consumer=consumer.pid) as usage:
        with writing(road.engine) as connection:
            connection.execute(LOCK)
            consumer.wait_until_subscribed()
            time.sleep(LOCKED_S)
        locked_mb, began = usage.peak_mb["consumer"], time.time()
        wait_until(lambda: all_loaded(road, after, messages), timeout_s=TIMEOUT_S)
        ended = road.commits(after).last
    peak_mb = usage.peak_mb["consumer"]
    print(f"backlog of {messages} messages of {size_bytes / 1000:g} kB")
    print_figure(f"memory, database locked for {LOCKED_S:g} s, MB", f"{locked_mb:.0f}")
    print_figure("memory, peak of locked and loading, MB", f"{peak_mb:.0f}", PEAK_BOUND_MB, "<=")
    print_figure("loaded, messages/s", f"{messages / (ended - began):.0f}")
    return peak_mb <= PEAK_BOUND_MB


def all_loaded(road: Road, after: str, messages: int) -> bool:
    time.sleep(2)  # counting takes processor time from the load
    return road.commits(after).rows >= messages
