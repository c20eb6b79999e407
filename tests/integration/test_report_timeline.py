"""Timelines and figures from small literal tables, in a real Spark session.

Times in the tables are hours of day 1 (2 January 1970), so 0 is its midnight and -1 is an hour
before it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.availability import figures
from spark_jobs.days import DAY_S
from spark_jobs.profile import Flavour, Function, Profile, Targets
from spark_jobs.status import AND, MISSING, OR, STATUSES, own_operation
from spark_jobs.timeline import segments, timelines

DAY = 1
LATER = 10 * DAY_S


def profile(**changes: Any) -> Profile:
    plain = Profile(
        name="test",
        validity_s=None,
        validity_of={},
        vo=None,
        fqan=None,
        downtimes=("SCHEDULED/OUTAGE",),
        metrics_operation="AND",
        functions_operation="AND",
        flavours=(Flavour("CE", ("ping", "submit"), "OR"), Flavour("SRM", ("put",), "OR")),
        functions=(Function("CE", ("CE",), "OR"), Function("SRM", ("SRM",), "OR")),
        targets=Targets(),
        operations=(AND, OR),
        document="{}",
    )
    return dataclasses.replace(plain, **changes)


def result(hour: float, status: str, *, metric: str = "ping", host: str = "h1") -> tuple[Any, ...]:
    at = DAY * DAY_S + round(hour * 3600)
    return (DAY, "A", "SRM" if metric == "put" else "CE", host, metric, at * 8 + _code(status))


def expected(*metrics: str, host: str = "h1") -> list[tuple[Any, ...]]:
    return [result(-25, "MISSING", metric=metric, host=host) for metric in metrics]


def downtime(start: float, end: float | None, host: str = "h1") -> list[tuple[Any, ...]]:
    edges = [(start, 1)] if end is None else [(start, 1), (end, -1)]
    return [
        (DAY, "A", "CE", host, DAY * DAY_S + round(hour * 3600), None, None, step)
        for hour, step in edges
    ]


class Timelines:
    """The timelines of a few rows, told in hours: [(from, to, status), …]."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(
        self,
        rows: Sequence[tuple[Any, ...]],
        downtimes: Sequence[tuple[Any, ...]] = (),
        *,
        using: Profile | None = None,
        now: int = LATER,
    ) -> dict[str, list[tuple[float, float, str]]]:
        names = ["day", "site", "service_flavour", "host_name"]
        table = self._table(rows, [*names, "metric_name", "packed"], ["packed"])
        events = self._table(
            downtimes,
            [*names, "at", "status", "before", "downtimes"],
            ["at", "status", "before", "downtimes"],
        )
        levels = timelines(table, events, using or profile(), now, keep=lambda frame: frame.persist())
        found = segments(levels, now).orderBy("level", "at").collect()
        told: dict[str, list[tuple[float, float, str]]] = {}
        for row in found:
            name = "/".join(n for n in [row.level, *row[2:7][1:]] if n)
            segment = (_hour(row["at"]), _hour(row["until"]), STATUSES[row["status"]])
            told.setdefault(name, []).append(segment)
        return told

    def _table(
        self, rows: Sequence[tuple[Any, ...]], names: list[str], numbers: list[str]
    ) -> DataFrame:
        types = {"day": pa.int32(), **{name: pa.int64() for name in numbers}}
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = [
            pa.array(column, types.get(name, pa.string()))
            for name, column in zip(names, columns, strict=True)
        ]
        return self._spark.createDataFrame(pa.Table.from_arrays(arrays, names))


@pytest.fixture
def timelines_of(spark: SparkSession) -> Timelines:
    return Timelines(spark)


def test_a_state_holds_until_the_next_result(timelines_of: Timelines) -> None:
    told = timelines_of(
        [*expected("put"), result(2, "OK", metric="put"), result(8, "CRITICAL", metric="put")]
    )

    assert told["metric/SRM/h1/put"] == [(0, 2, "MISSING"), (2, 8, "OK"), (8, 24, "CRITICAL")]
    assert told["site"] == told["metric/SRM/h1/put"]


def test_the_state_at_midnight_is_the_last_one_of_the_day_before(timelines_of: Timelines) -> None:
    told = timelines_of([*expected("put"), result(-3, "WARNING", metric="put")])

    assert told["site"] == [(0, 24, "WARNING")]


def test_a_result_at_midnight_belongs_to_the_new_day(timelines_of: Timelines) -> None:
    rows = [result(-3, "CRITICAL", metric="put"), result(0, "OK", metric="put")]

    assert timelines_of([*expected("put"), *rows])["site"] == [(0, 24, "OK")]


def test_of_two_results_at_one_second_the_worse_counts(timelines_of: Timelines) -> None:
    rows = [
        result(1, "CRITICAL", metric="put"),
        result(5, "CRITICAL", metric="put"),
        result(5, "OK", metric="put"),
        result(6, "OK", metric="put"),
        result(6, "OK", metric="put"),
    ]

    told = timelines_of([*expected("put"), *rows])

    assert told["metric/SRM/h1/put"] == [(0, 1, "MISSING"), (1, 6, "CRITICAL"), (6, 24, "OK")]


def test_metrics_fold_by_and_endpoints_by_or_functions_by_and(timelines_of: Timelines) -> None:
    rows = [
        *expected("ping", "submit"),
        *expected("ping", "submit", host="h2"),
        *expected("put"),
        result(0, "OK", metric="ping"),
        result(0, "CRITICAL", metric="submit"),
        result(0, "OK", metric="ping", host="h2"),
        result(0, "WARNING", metric="submit", host="h2"),
        result(0, "OK", metric="put"),
        result(12, "UNKNOWN", metric="put"),
    ]

    told = timelines_of(rows)

    assert told["endpoint/CE/h1"] == [(0, 24, "CRITICAL")]
    assert told["endpoint/CE/h2"] == [(0, 24, "WARNING")]
    assert told["service/CE"] == [(0, 24, "WARNING")]
    assert told["site"] == [(0, 12, "WARNING"), (12, 24, "UNKNOWN")]


def test_downtimes_are_united_and_overwrite_every_state(timelines_of: Timelines) -> None:
    rows = [*expected("ping"), result(0, "OK"), result(5, "CRITICAL"), result(11, "OK")]

    told = timelines_of(rows, [*downtime(2, 6), *downtime(4, 8), *downtime(8, 9)])

    assert told["metric/CE/h1/ping"] == [(0, 5, "OK"), (5, 11, "CRITICAL"), (11, 24, "OK")]
    assert told["endpoint/CE/h1"] == [
        (0, 2, "OK"),
        (2, 9, "DOWNTIME"),
        (9, 11, "CRITICAL"),
        (11, 24, "OK"),
    ]


def test_a_downtime_may_span_the_whole_day(timelines_of: Timelines) -> None:
    told = timelines_of([*expected("ping"), result(3, "OK")], downtime(0, None))

    assert told["site"] == [(0, 24, "DOWNTIME")]


def test_a_result_is_believed_as_long_as_it_is_valid(timelines_of: Timelines) -> None:
    rows = [
        *expected("put"),
        result(-3, "OK", metric="put"),
        result(4, "OK", metric="put"),
        result(6, "WARNING", metric="put"),
        result(8, "WARNING", metric="put"),
        result(23, "OK", metric="put"),
    ]

    told = timelines_of(rows, using=profile(validity_s=2 * 3600))

    assert told["metric/SRM/h1/put"] == [
        (0, 4, "MISSING"),
        (4, 6, "OK"),
        (6, 10, "WARNING"),
        (10, 23, "MISSING"),
        (23, 24, "OK"),
    ]


def test_a_metric_may_have_a_validity_of_its_own(timelines_of: Timelines) -> None:
    rows = [*expected("ping", "submit"), result(-1, "OK"), result(-1, "OK", metric="submit")]

    told = timelines_of(rows, using=profile(validity_of={"ping": 3 * 3600}))

    assert told["metric/CE/h1/ping"] == [(0, 2, "OK"), (2, 24, "MISSING")]
    assert told["metric/CE/h1/submit"] == [(0, 24, "OK")]


def test_an_open_day_ends_at_the_time_of_the_run(timelines_of: Timelines) -> None:
    now = DAY * DAY_S + 10 * 3600

    told = timelines_of([*expected("put"), result(4, "OK", metric="put")], now=now)

    assert told["site"] == [(0, 4, "MISSING"), (4, 10, "OK")]


def test_flavours_of_one_function_fold_by_its_operation(timelines_of: Timelines) -> None:
    both = Function("all", ("CE", "SRM"), "OR")
    rows = [
        *expected("ping"),
        *expected("put"),
        result(0, "CRITICAL"),
        result(6, "OK", metric="put"),
    ]

    told = timelines_of(rows, using=profile(functions=(both,)))

    assert told["function/all"] == [(0, 6, "CRITICAL"), (6, 24, "OK")]
    assert told["site"] == told["function/all"]


def test_an_own_operation_answers_for_the_set_of_states(timelines_of: Timelines) -> None:
    # Any two different states make UNKNOWN: the answer is neither of the two.
    states = STATUSES[:6]
    table = [[a, b, a if a == b else "UNKNOWN"] for a in states for b in states]
    disagree, problems = own_operation("DISAGREE", table)
    assert disagree, problems
    own = profile(operations=(AND, OR, disagree), metrics_operation="DISAGREE")
    rows = [*expected("ping", "submit"), result(0, "OK"), result(0, "OK", metric="submit")]

    told = timelines_of(
        [*rows, result(7, "CRITICAL"), result(9, "CRITICAL", metric="submit")], using=own
    )

    assert told["endpoint/CE/h1"] == [(0, 7, "OK"), (7, 9, "UNKNOWN"), (9, 24, "CRITICAL")]


def test_figures_come_from_integer_seconds(spark: SparkSession) -> None:
    # 7 h OK, 1 s WARNING, 3 h DOWNTIME, the rest UNKNOWN and CRITICAL.
    hour = 3600
    cuts = [
        (0, "OK"),
        (7 * hour, "WARNING"),
        (7 * hour + 1, "DOWNTIME"),
        (10 * hour + 1, "UNKNOWN"),
    ]
    cuts += [(14 * hour, "CRITICAL")]
    ends = [at for at, _ in cuts[1:]] + [DAY_S]
    rows = [
        ("site", DAY, "A", "", "", "", "", _code(status), at, end)
        for (at, status), end in zip(cuts, ends, strict=True)
    ]
    columns = "level string, day int, site string, service_flavour string, host_name string, "
    columns += "metric_name string, function string, status int, at bigint, until bigint"

    [row] = figures(spark.createDataFrame(rows, columns)).collect()

    up, known = 7 * hour + 1, DAY_S - (4 * hour - 1)
    assert row["ok_s"] == 7 * hour and row["warning_s"] == 1 and row["downtime_s"] == 3 * hour
    assert row["availability"] == round(Decimal(100 * up) / known, 5)
    assert row["reliability"] == round(Decimal(100 * up) / (known - 3 * hour), 5)


@pytest.mark.parametrize("status", ["MISSING", "UNKNOWN", "EXCLUDED"])
def test_without_known_time_there_is_no_figure(spark: SparkSession, status: str) -> None:
    rows = [("site", DAY, "A", "", "", "", "", _code(status), 0, DAY_S)]
    columns = "level string, day int, site string, service_flavour string, host_name string, "
    columns += "metric_name string, function string, status int, at bigint, until bigint"

    [row] = figures(spark.createDataFrame(rows, columns)).collect()

    assert row["availability"] is None and row["reliability"] is None


def _code(status: str) -> int:
    return STATUSES.index(status)


def _hour(second: int) -> float:
    return (second - DAY * DAY_S) / 3600


assert MISSING == _code("MISSING")
