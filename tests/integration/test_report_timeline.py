"""Timelines and figures from small literal tables: each case is a site of one Spark job.

Times are hours of day 1 (2 January 1970): 0 is its midnight, -1 an hour before, 24 its end. Day 2
is open: the job runs at its tenth hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.availability import figures
from spark_jobs.days import DAY_S
from spark_jobs.inputs import cover_events
from spark_jobs.levels import ENDPOINT, METRIC, NAMES, SITE
from spark_jobs.profile import Flavour, Function, Profile, Targets
from spark_jobs.status import AND, OR, STATUSES, own_operation
from spark_jobs.timeline import COVERED, METRIC_KEYS, segments, timelines

DAY = 1
NOW = 2 * DAY_S + 10 * 3600
NEVER = -25  # before all that a day looks back to

# Any two different states make UNKNOWN: an answer that is neither of the two.
DISAGREE, _ = own_operation(
    "DISAGREE", [[a, b, a if a == b else "UNKNOWN"] for a in STATUSES[:6] for b in STATUSES[:6]]
)
assert DISAGREE

PROFILE = Profile(
    name="test",
    validity_s=None,
    validity_of={"fresh": 2 * 3600},
    vo=None,
    fqan=None,
    downtimes=("SCHEDULED/OUTAGE",),
    metrics_operation="AND",
    functions_operation="AND",
    flavours=(
        Flavour("CE", ("ping", "submit"), "OR"),
        Flavour("ARC", ("infosys",), "OR"),
        Flavour("SRM", ("put", "fresh"), "OR"),
        Flavour("VOTE", ("vote",), "DISAGREE"),
    ),
    functions=(
        Function("compute", ("CE", "ARC"), "OR"),
        Function("storage", ("SRM",), "OR"),
        Function("votes", ("VOTE",), "OR"),
    ),
    targets=Targets(),
    operations=(AND, OR, DISAGREE),
    document="{}",
)

Spans = list[tuple[float, float, str]]


@dataclass(frozen=True)
class Case:
    """What is known of a site, and the timelines that must come of it."""

    name: str
    results: Sequence[tuple[str, float, str]]  # "flavour host metric", hour, status
    timelines: dict[str, Spans]  # "level names": spans
    # "flavour host" is in downtime, "flavour host metric" or "" (the site) excluded, from, to.
    covers: Sequence[tuple[str, float, float]] = ()
    day: int = DAY
    expected: Sequence[str] = field(default_factory=tuple)  # instances without a result


PUT, PING, SUBMIT = "SRM h1 put", "CE h1 ping", "CE h1 submit"
CASES = [
    Case(
        "a state holds until the next result",
        [(PUT, 2, "OK"), (PUT, 8, "CRITICAL")],
        {
            "metric SRM h1 put": [(0, 2, "MISSING"), (2, 8, "OK"), (8, 24, "CRITICAL")],
            "site": [(0, 2, "MISSING"), (2, 8, "OK"), (8, 24, "CRITICAL")],
        },
    ),
    Case(
        "the state at midnight is the last one of the day before",
        [(PUT, -3, "WARNING")],
        {"site": [(0, 24, "WARNING")]},
    ),
    Case(
        "a result at midnight belongs to the new day",
        [(PUT, -3, "CRITICAL"), (PUT, 0, "OK")],
        {"site": [(0, 24, "OK")]},
    ),
    Case(
        "without any result the state is missing",
        [],
        {"site": [(0, 24, "MISSING")]},
        expected=[PUT],
    ),
    Case(
        "of two results at one second the worse counts",
        [
            (PUT, 1, "CRITICAL"),
            (PUT, 5, "CRITICAL"),
            (PUT, 5, "OK"),
            (PUT, 6, "OK"),
            (PUT, 6, "OK"),
        ],
        {"metric SRM h1 put": [(0, 1, "MISSING"), (1, 6, "CRITICAL"), (6, 24, "OK")]},
    ),
    Case(
        "metrics fold by AND, endpoints by OR, functions by AND",
        [
            (PING, 0, "OK"),
            (SUBMIT, 0, "CRITICAL"),
            ("CE h2 ping", 0, "OK"),
            ("CE h2 submit", 0, "WARNING"),
            (PUT, 0, "OK"),
            (PUT, 12, "UNKNOWN"),
        ],
        {
            "endpoint CE h1": [(0, 24, "CRITICAL")],
            "endpoint CE h2": [(0, 24, "WARNING")],
            "service CE": [(0, 24, "WARNING")],
            "site": [(0, 12, "WARNING"), (12, 24, "UNKNOWN")],
        },
    ),
    Case(
        "flavours of one function stand in for each other",
        [(PING, 0, "CRITICAL"), ("ARC h1 infosys", 6, "OK")],
        {
            "service CE": [(0, 24, "CRITICAL")],
            "function compute": [(0, 6, "CRITICAL"), (6, 24, "OK")],
            "site": [(0, 6, "CRITICAL"), (6, 24, "OK")],
        },
    ),
    Case(
        "an own operation may answer what no child says",
        [
            ("VOTE h1 vote", 0, "OK"),
            ("VOTE h2 vote", 0, "OK"),
            ("VOTE h1 vote", 7, "CRITICAL"),
            ("VOTE h2 vote", 9, "CRITICAL"),
        ],
        {"service VOTE": [(0, 7, "OK"), (7, 9, "UNKNOWN"), (9, 24, "CRITICAL")]},
    ),
    Case(
        "downtimes are united and overwrite every state",
        [(PING, 0, "OK"), (PING, 5, "CRITICAL"), (PING, 11, "OK")],
        {
            "metric CE h1 ping": [(0, 5, "OK"), (5, 11, "CRITICAL"), (11, 24, "OK")],
            "endpoint CE h1": [
                (0, 2, "OK"),
                (2, 9, "DOWNTIME"),
                (9, 11, "CRITICAL"),
                (11, 24, "OK"),
            ],
        },
        covers=[("CE h1", 2, 6), ("CE h1", 4, 8), ("CE h1", 8, 9)],
    ),
    Case(
        "a downtime may last the whole day",
        [(PING, 3, "OK")],
        {"site": [(0, 24, "DOWNTIME")]},
        covers=[("CE h1", 0, 24)],
    ),
    Case(
        "an excluded metric is skipped",
        [(PING, 0, "CRITICAL"), (SUBMIT, 0, "OK")],
        {
            "metric CE h1 ping": [(0, 2, "CRITICAL"), (2, 6, "EXCLUDED"), (6, 24, "CRITICAL")],
            "endpoint CE h1": [(0, 2, "CRITICAL"), (2, 6, "OK"), (6, 24, "CRITICAL")],
        },
        covers=[("CE h1 ping", 2, 6)],
    ),
    Case(
        "what has only excluded metrics is excluded, but for its downtimes",
        [(PUT, 0, "OK")],
        {
            "endpoint SRM h1": [(0, 2, "OK"), (2, 3, "EXCLUDED"), (3, 24, "DOWNTIME")],
            "site": [(0, 2, "OK"), (2, 3, "EXCLUDED"), (3, 24, "DOWNTIME")],
        },
        covers=[(PUT, 2, 24), ("SRM h1", 3, 24)],
    ),
    Case(
        "an excluded site is unknown; its parts keep their states",
        [(PUT, 0, "OK"), (PUT, 5, "CRITICAL")],
        {
            "function storage": [(0, 5, "OK"), (5, 24, "CRITICAL")],
            "site": [(0, 3, "OK"), (3, 7, "UNKNOWN"), (7, 24, "CRITICAL")],
        },
        covers=[("", 3, 7)],
    ),
    Case(
        "a result is believed as long as it is valid",
        [
            ("SRM h1 fresh", -3, "OK"),
            ("SRM h1 fresh", 4, "OK"),
            ("SRM h1 fresh", 6, "WARNING"),
            ("SRM h1 fresh", 8, "WARNING"),
            ("SRM h1 fresh", 23, "OK"),
        ],
        {
            "metric SRM h1 fresh": [
                (0, 4, "MISSING"),
                (4, 6, "OK"),
                (6, 10, "WARNING"),
                (10, 23, "MISSING"),
                (23, 24, "OK"),
            ]
        },
    ),
    Case(
        "validity runs on past midnight",
        [("SRM h1 fresh", -1, "OK")],
        {"metric SRM h1 fresh": [(0, 1, "OK"), (1, 24, "MISSING")]},
    ),
    Case(
        "an open day ends at the time of the run",
        [(PUT, 4, "OK")],
        {"site": [(0, 4, "MISSING"), (4, 10, "OK")]},
        day=2,
    ),
]


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> dict[tuple[str, str], Spans]:
    """The timelines of all cases: (case, "level names") to spans in hours."""
    rows = [row for case in CASES for row in _metric_rows(case)]
    covers = _table(
        spark,
        [cover for case in CASES for cover in _covers(case)],
        ["day", "level", *NAMES[METRIC], "start", "end"],
    )
    levels = timelines(
        _table(spark, rows, [*METRIC_KEYS, "packed", "last"]),
        {level: cover_events(covers, level, NOW) for level in COVERED},
        PROFILE,
        NOW,
        keep=lambda frame: frame.persist(),
    )
    found: dict[tuple[str, str], Spans] = {}
    for row in segments(levels, NOW).toArrow().sort_by("at").to_pylist():
        names = [row[n] for n in ("service_flavour", "host_name", "metric_name", "function")]
        thing = " ".join([row["level"], *filter(None, names)])
        start, end = (_hour(row[edge], row["day"]) for edge in ("at", "until"))
        found.setdefault((row["site"], thing), []).append((start, end, STATUSES[row["status"]]))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_timeline(case: Case, told: dict[tuple[str, str], Spans]) -> None:
    assert {thing: told[case.name, thing] for thing in case.timelines} == case.timelines


def test_no_timeline_has_gaps_or_equal_neighbours(told: dict[tuple[str, str], Spans]) -> None:
    for (name, _), spans in told.items():
        end = 10 if "open day" in name else 24

        assert spans[0][0] == 0 and spans[-1][1] == end
        for (_, until, status), (start, _, following) in pairwise(spans):
            assert until == start and status != following


def test_figures_come_from_integer_seconds(spark: SparkSession) -> None:
    hour = 3600
    lengths = [("OK", 7 * hour), ("WARNING", 1), ("DOWNTIME", 3 * hour), ("UNKNOWN", 4 * hour)]

    [row] = _figures_of(spark, [*lengths, ("CRITICAL", 10 * hour - 1)])

    up, known = 7 * hour + 1, DAY_S - 4 * hour
    assert (row["ok_s"], row["warning_s"], row["downtime_s"]) == (7 * hour, 1, 3 * hour)
    assert row["availability"] == round(Decimal(100 * up) / known, 5)
    assert row["reliability"] == round(Decimal(100 * up) / (known - 3 * hour), 5)


def test_a_figure_is_rounded_half_up(spark: SparkSession) -> None:
    # 100 * 1 / 32 000 = 0.003125, half way between two figures of five decimals.
    [row] = _figures_of(spark, [("OK", 1), ("CRITICAL", 31_999), ("MISSING", DAY_S - 32_000)])

    assert row["availability"] == Decimal("0.00313")


@pytest.mark.parametrize("status", ["MISSING", "UNKNOWN", "EXCLUDED"])
def test_without_known_time_there_is_no_figure(spark: SparkSession, status: str) -> None:
    [row] = _figures_of(spark, [(status, DAY_S)])

    assert row["availability"] is None and row["reliability"] is None


def test_a_day_in_downtime_has_availability_zero_and_no_reliability(spark: SparkSession) -> None:
    [row] = _figures_of(spark, [("DOWNTIME", DAY_S)])

    assert row["availability"] == 0 and row["reliability"] is None


def _metric_rows(case: Case) -> list[tuple[Any, ...]]:
    instances = {instance for instance, _, _ in case.results} | set(case.expected)
    known = [*case.results, *((instance, NEVER, "MISSING") for instance in instances)]
    return [
        (case.day, case.name, *instance.split(), second * 8 + _code(status), second)
        for instance, hour, status in known
        for second in [_second(hour, case.day)]
    ]


def _covers(case: Case) -> list[tuple[Any, ...]]:
    levels = {0: SITE, 2: ENDPOINT, 3: METRIC}
    return [
        (case.day, levels[len(names)], case.name, *names, *[""] * (3 - len(names)), *times)
        for thing, *hours in case.covers
        for names in [thing.split()]
        for times in [[_second(hour, case.day) for hour in hours]]
    ]


def _table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], names: list[str]) -> DataFrame:
    whole = {"packed", "last", "start", "end", "at", "status", "until"}
    types = {"day": pa.int32(), **dict.fromkeys(whole, pa.int64())}
    arrays = [
        pa.array(column, types.get(name, pa.string()))
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    ]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, names))


def _figures_of(spark: SparkSession, lengths: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """The figures of a site whose statuses last so many seconds."""
    names = ["level", "day", "site", "service_flavour", "host_name", "metric_name", "function"]
    rows, at = [], 0
    for status, seconds in lengths:
        rows.append(("site", DAY, "A", "", "", "", "", _code(status), at, at + seconds))
        at += seconds
    table = _table(spark, rows, [*names, "status", "at", "until"])
    found: list[dict[str, Any]] = figures(table).toArrow().to_pylist()
    return found


def _code(status: str) -> int:
    return STATUSES.index(status)


def _second(hour: float, day: int) -> int:
    return day * DAY_S + round(hour * 3600)


def _hour(second: int, day: int) -> float:
    return (second - day * DAY_S) / 3600
