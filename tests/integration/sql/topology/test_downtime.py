"""Downtimes announced with `sam-db downtime`, in either database."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.login import login_name
from sam_pipeline.sql.errors import DowntimeRefused, NoSuchDowntime
from sam_pipeline.sql.topology.downtime import (
    announce,
    announcement,
    cancel,
)
from sam_pipeline.sql.topology.view_rows import Row
from tests.support.database.sql_rows import downtime, insert, query, stored

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def rows(**changes: str) -> list[Row]:
    return announcement({**{k: str(v) for k, v in downtime().items()}, **changes}, NOW)


def counted(engine: Engine) -> list[tuple[str, ...]]:
    """The downtimes that reports read."""
    columns = "downtime_id, host_name, start_time, end_time"
    return query(engine, f"SELECT {columns} FROM report_downtime ORDER BY 2")


def test_a_downtime_is_announced_moved_ended_and_cancelled_even_within_a_second(
    engine: Engine,
) -> None:
    announce(engine, [*rows(description="power cut (jane)"), *rows(hostName="se01")], NOW)
    host, start, end = "ce01.example.org", "2026-11-20T08:00:00Z", "2026-11-20T10:00:00Z"
    assert counted(engine) == [("D1", host, start, end), ("D1", "se01", start, end)]
    operator = operator_identity(login_name())
    assert query(engine, "SELECT DISTINCT publisher FROM downtime") == [(operator,)]

    moved = {"startTime": "2026-11-17T23:59:59Z", "endTime": "2026-11-19T00:00:00Z"}
    [change] = announce(engine, rows(description="power cut (jane)", **moved), NOW).changes
    assert counted(engine)[0] == ("D1", host, *moved.values())
    assert change.days(NOW.date()) == {date(2026, 11, number) for number in (17, 18, 20)}

    announce(engine, rows(description="power cut (jane)"), NOW)
    cancel(engine, ["D1"], "2026-11-20T09:00:00Z", "ended (joe)", NOW)
    assert {row[3] for row in counted(engine)} == {"2026-11-20T09:00:00Z"}
    cancel(engine, ["D1"], None, "cancelled: wrong site (joe)", NOW)
    assert counted(engine) == []
    texts = [row["description"] for row in stored(engine, "downtime") if row["hostName"] == host]
    assert texts == ["power cut (jane); ended (joe); cancelled: wrong site (joe)"]
    assert cancel(engine, ["D1"], None, "cancelled (joe)", NOW).changes == []


def test_a_downtime_announced_in_the_future_can_be_changed(engine: Engine) -> None:
    insert(engine, "downtime", downtime(timestamp="2026-12-24T00:00:00Z"))

    cancel(engine, ["D1"], None, "cancelled (jane)", NOW)

    assert counted(engine) == []
    assert [row["timestamp"] for row in stored(engine, "downtime")] == ["2026-12-24T00:00:01Z"]


@pytest.mark.parametrize("end", ["2026-11-20T08:00:00Z", "2026-11-20T10:00:00Z"])
def test_an_end_outside_the_downtime_or_an_unknown_id_changes_nothing(
    engine: Engine, end: str
) -> None:
    announce(engine, rows(), NOW)
    long = {"startTime": "2026-11-19T00:00:00Z", "endTime": "2026-11-21T00:00:00Z"}
    announce(engine, rows(downtimeId="D2", **long), NOW)
    before = counted(engine)

    with pytest.raises(DowntimeRefused, match=f"D1 .*{end}"):
        cancel(engine, ["D2", "D1"], end, "ended (joe)", NOW)
    with pytest.raises(NoSuchDowntime, match="no downtime D9"):
        cancel(engine, ["D1", "D9"], None, "cancelled (joe)", NOW)

    assert counted(engine) == before
