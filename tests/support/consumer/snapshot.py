"""A valid snapshot of a running daemon, to change one field of."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.consumer.monitoring.snapshot import BrokerState, Snapshot
from sam_pipeline.consumer.monitoring.state_file import process_start

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
        messages=7,
        rows=14,
        duplicates=0,
        checks=1,
        damaged_elements=0,
        rejected_messages=0,
        log_lines_dropped=0,
        brokers=(BROKER,),
        rows_by_class={"metricOutput": 14},
        duplicates_by_class={},
        dead_letters={"bad-status": 1},
        repeated_dead_letters=2,
        summarised_dead_letters=3,
        open_dead_letters={"bad-status": 1},
        ignored_keys={"colour": 3},
        refusals={"nagios-cern": {"not-authorised": 4}},
        requests={"200": 6, "429": 1},
        connections=3,
    )
    return replace(running, **changes)
