"""From what the processes report to the figures of a cell."""

from __future__ import annotations

from typing import Any

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.load_test.accounts import Arrivals, Sent
from sam_pipeline.publisher.load_test.conduct import COMPLETE, LIMIT, QUIET, CellRun
from sam_pipeline.publisher.load_test.figures import document_of
from sam_pipeline.publisher.load_test.histogram import bucket
from sam_pipeline.publisher.load_test.plan import MATRIX, TOPIC, LoadCell
from sam_pipeline.publisher.load_test.receiving import LagCounts, ReceivingReport
from sam_pipeline.publisher.load_test.sending import SendingReport
from sam_pipeline.publisher.load_test.wire import LoadRoute
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.broker_url import parse_broker

ROUTE = LoadRoute(BrokerAddress(parse_broker("stomp://localhost")), PublisherConfig(), "ab12")
NONE = LagCounts({}, 0)


def figures(
    arrived: int = 100,
    ended_by: str = COMPLETE,
    rate: float | None = None,
    busy: float = 0.1,
    processor_s: float = 0.2,
) -> dict[str, Any]:
    """Of one producer that sent 100 messages of 1 kB in 1 s, and of one consumer after 2 s."""
    cell = LoadCell(MATRIX, TOPIC, True, 1, 1, 1000, 100, 5.0, rate)
    arrivals = Arrivals([100])
    for number in range(arrived):
        arrivals.add(0, number)
    lags = {0: LagCounts({bucket(1000): arrived}, 1500)}
    sending = SendingReport({0: Sent(100, 100)}, {0: 60, 1: 40}, 1.0, 1.0, processor_s, [])
    receiving = ReceivingReport(
        *("Fake/1.0", {0: arrivals}, {0: {0: arrived}}, lags, NONE, NONE),
        *(2.0, 300_000, 0, 2.0, 0.1, []),
    )
    run = CellRun(cell, 1, 0.0, 0.5, [sending], [receiving], ended_by, busy, [])
    return document_of(run, ROUTE)


def test_rates_are_those_until_the_last_receipt_and_the_last_arrival() -> None:
    found = figures()

    assert (found["sent_per_s"], found["received_per_s"]) == (100.0, 50.0)
    assert (found["payload_kb_per_s"], found["wire_kb_per_s"]) == (50.0, 150.0)
    assert found["series"]["sent_per_s"] == [120.0, 80.0]
    assert found["series"]["received_per_s"] == [200.0, 0.0]
    assert found["lag_ms"]["maximum"] == 1.5
    assert found["series"]["lag_median_ms"][1] is None
    assert found["to_broker_ms"] is None


@pytest.mark.parametrize(
    ("ended_by", "lost", "late", "listed"), [(QUIET, 10, 0, 1), (LIMIT, 0, 10, 0)]
)
def test_what_was_still_arriving_is_late_and_not_lost(
    ended_by: str, lost: int, late: int, listed: int
) -> None:
    found = figures(arrived=90, ended_by=ended_by)

    assert (found["lost"], found["late"]) == (lost, late)
    assert len(found["lost_ids"]) == listed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "broker"),
        ({"busy": 0.97}, "processors"),
        ({"busy": 0.97, "processor_s": 0.95}, "tool"),
        ({"rate": 100.0, "processor_s": 0.95}, "rate"),
        ({"rate": 200.0}, "broker"),
    ],
)
def test_the_limit_of_a_cell_is_named(given: dict[str, float], expected: str) -> None:
    found = figures(**given)  # type: ignore[arg-type]

    assert found["processor"]["limited_by"] == expected
