"""Downtimes announced with `sam-db downtime`, in either database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import DowntimeRefused, NoSuchDowntime
from sam_pipeline.sql.loading.fold import fold_all, take_changes
from sam_pipeline.sql.topology.downtime import (
    ChangedDowntimes,
    announce,
    announcement,
    cancel,
    unknown_names,
)
from sam_pipeline.sql.topology.view_rows import Row
from tests.support.builders import metric_result
from tests.support.database.sql_rows import downtime, insert, query, service_endpoint, stored

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


def test_names_missing_from_the_topology_give_warnings(engine: Engine) -> None:
    insert(engine, "serviceEndpoint", service_endpoint())
    for names in ({}, {"serviceFlavour": ""}, {"serviceFlavour": "", "hostName": ""}):
        assert unknown_names(engine, rows(**names)) == []
    for names, missing in (
        ({"siteName": "X"}, "site X "),
        ({"hostName": "x"}, "site EXAMPLE-LCG2 with host x "),
        ({"hostName": "", "serviceFlavour": "F"}, "site EXAMPLE-LCG2 with flavour F "),
    ):
        [warning] = unknown_names(engine, rows(**names))
        assert warning.startswith(missing) and "topology" in warning


def test_exactly_the_affected_days_are_due_again(engine: Engine) -> None:
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = format_time(midnight - timedelta(days=10) + timedelta(hours=1))
    insert(engine, "metricOutput", metric_result(timestamp=first))
    fold_all(engine)

    def at(day: int, hour: int) -> str:
        """The hour of the day that was `day` days ago."""
        return format_time(midnight - timedelta(days=day) + timedelta(hours=hour))

    def move(start: str, end: str) -> ChangedDowntimes:
        return announce(engine, rows(startTime=start, endTime=end), now)

    def due() -> list[date]:
        """The days marked since the last call."""
        marked = query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL")
        with writing(engine) as connection:
            take_changes(connection)
        return sorted(date.fromisoformat(str(day)) for (day,) in marked)

    steps: Sequence[tuple[Callable[[], ChangedDowntimes], Sequence[int]]] = [
        (lambda: move(at(6, 8), at(4, 0)), [6, 5]),
        (lambda: move(at(5, 23), at(4, 1)), [6, 5, 4]),
        (lambda: cancel(engine, ["D1"], at(5, 24), "ended", now), [5, 4]),
        (lambda: cancel(engine, ["D1"], None, "cancelled", now), [5]),
        (lambda: cancel(engine, ["D1"], None, "cancelled", now), []),
        (lambda: move(at(12, 0), at(8, 0)), [10, 9]),  # reports begin with the first result
        (lambda: move(at(1, 12), at(-5, 0)), [10, 9, 1, 0]),  # and end today
    ]
    due()
    for step, expected in steps:
        changed, marked = step(), due()

        assert changed.due_days == marked
        assert marked == [(midnight - timedelta(days=day)).date() for day in expected]
