"""A valid snapshot of a running daemon, to change one field of."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.consumer.monitoring.snapshot import BrokerState, Snapshot, process_start
from sam_pipeline.schema.messages.counts import Counts

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
BROKER = BrokerState("stomp://a:61613", 7, 2, (), None)
AWAY = BrokerState("stomp://b:61613", 0, 0, ("stomp://b:61613 (connection refused)",), None)


def snapshot(**changes: Any) -> Snapshot:
    start = process_start(os.getpid())
    assert start is not None
    running = Snapshot(
        name="site-a",
        version="0.1.0",
        pid=os.getpid(),
        process_start=start,
        since=NOW,
        written_at=NOW,
        turned_at=NOW,
        ended_at=None,
        ended_because="",
        waiting_since=None,
        waiting_for="",
        last_commit=NOW,
        behind_since=None,
        lag_s=0.25,
        held_messages=2,
        held_bytes=700,
        spool_elements=0,
        messages_per_s=15.0,
        rows_per_s=30.0,
        counts=Counts(
            messages_by_broker=Counter({BROKER.broker: 7}),
            rows_by_class=Counter(metricOutput=14),
            dead_letters=Counter({"bad-status": 1}),
            repeated_dead_letters=2,
            summarised_dead_letters=3,
            checks=1,
            ignored_keys=Counter(colour=3),
            refusals=Counter({("nagios-cern", "not-authorised"): 4}),
        ),
        log_lines_dropped=0,
        brokers=(BROKER,),
        open_dead_letters={"bad-status": 1},
        requests={"200": 6, "429": 1},
        connections=3,
    )
    return replace(running, **changes)
