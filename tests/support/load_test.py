"""Results of a load test that nobody ran."""

from __future__ import annotations

from typing import Any

from sam_pipeline.publisher.load_test.conduct import COMPLETE, CellRun
from sam_pipeline.publisher.load_test.counting import Arrivals, Durations, Sent, bucket
from sam_pipeline.publisher.load_test.figures import document_of
from sam_pipeline.publisher.load_test.plan import FLOW_CONTROL, MATRIX, TOPIC, LoadCell
from sam_pipeline.publisher.load_test.wire import LoadRoute
from sam_pipeline.publisher.load_test.workers import ReceivingReport, SendingReport
from sam_pipeline.schema.net.broker import Target, parse_broker

ROUTE = LoadRoute(Target(parse_broker("stomp://localhost")), "ab12")


def arrivals(shares: list[int], *ids: tuple[int, int]) -> Arrivals:
    found = Arrivals(shares)
    for producer, number in ids:
        found.add(producer, number)
    return found


def figures(
    arrived: int = 100,
    ended_by: str = COMPLETE,
    rate: float | None = None,
    busy: float = 0.1,
    processor_s: float = 0.2,
    scenario: str = MATRIX,
) -> dict[str, Any]:
    """Of one producer that sent 100 messages of 1 kB in 1 s, and of one consumer after 2 s."""
    is_slow = scenario == FLOW_CONTROL
    cell = LoadCell(scenario, TOPIC, True, 1, 1, 1000, 100, 1.5, rate, is_slow)
    there = arrivals([100], *((0, number) for number in range(arrived)))
    lags = {0: Durations({bucket(1000): arrived}, 1500)}
    sending = SendingReport({0: Sent(100, 100)}, {0: 60, 1: 40}, 1.0, 1.0, processor_s, [])
    receiving = ReceivingReport(
        {0: there},
        {0: {0: arrived}},
        lags,
        server="Fake/1.0",
        last_s=2.0,
        bytes=300_000,
        wall_s=2.0,
        processor_s=0.1,
    )
    run = CellRun(cell, 1, 0.0, 0.5, [sending], [receiving], ended_by, busy)
    return document_of(run, ROUTE)
