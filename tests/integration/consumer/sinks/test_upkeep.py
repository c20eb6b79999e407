"""Partitions of coming days, and signs of life while a large batch is stored."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sinks.database import DatabaseSink
from sam_pipeline.consumer.sinks.upkeep import make_tasks, run_due
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.removal.pruning.partitions import partitions
from tests.support.builders import metric_message, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as


@only_on("postgresql", "own_url")
@pytest.mark.parametrize(("max_future_days", "ahead"), [(1, 1), (30, 3)])
def test_partitions_of_coming_days_exist_before_any_message_needs_them(
    own_engine: Engine, max_future_days: int, ahead: int
) -> None:
    now = datetime.now(UTC)
    with acting_as("loader", own_engine) as loader:
        limits = Limits(future=timedelta(days=max_future_days))

        run_due(make_tasks(loader, Catalogue(loader).partitions, limits, print), news=True)

    with reading(own_engine) as connection:
        days = {partition.day for partition in partitions(connection)}
    assert {now.date() + timedelta(days=n) for n in range(ahead + 1)} <= days
    assert len(days) <= ahead + 2  # a day may have begun meanwhile


class OneBroker:
    broker = "stomp://msg.example.org:61613"
    batch_size = NO_LIMIT
    answers = False


def test_each_transaction_of_a_batch_is_a_sign_of_life(engine: Engine) -> None:
    """The watchdog measures the time between two of them, and not that of the whole batch."""
    now = datetime.now(UTC)
    times = [now - timedelta(days=n) for n in range(120)]
    message = metric_message(
        *(metric_result(timestamp=f"{time:%Y-%m-%dT%H:%M:%SZ}") for time in times)
    )
    session: Any = OneBroker()
    state = State()
    with acting_as("loader", engine) as loader:
        sink = DatabaseSink(loader, "site-a", Limits(), state, 1000, 20_000_000)
        before = state.turns

        tally = sink.load([Delivery(message, session, None)], (), nullcontext)

    assert tally.rows_by_class == {"metricOutput": 120}
    assert state.turns - before >= 3
