"""Timelines calculated by hand, each case a site; the worlds prove that the oracle says the same.

Times are hours of day 1 (2 January 1970): 0 is its midnight, -1 an hour before, 24 its end. Day 2
is open: the job runs at its tenth hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.compute.folding import MetricStretches, Plan, fold
from sam_pipeline.spark_jobs.compute.planning import Instances, make_plan, site_groups
from sam_pipeline.spark_jobs.compute.stretches import Results, Stretches, stretches
from sam_pipeline.spark_jobs.inputs.expected import Cover, DayExpectation, Endpoint
from sam_pipeline.spark_jobs.profiles.profile import Flavour, Function, Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, NAMES, SITE
from sam_pipeline.spark_jobs.rules.statuses import AND, OR, STATUSES, own_operation

DAY = 1
NOW = 2 * DAY_S + 10 * 3600
NOTHING = np.empty(0, np.int64)
NOBODY = Instances(*[NOTHING] * 5, NOTHING.astype(np.uint64), [], [], [], [])

# Any two different states make UNKNOWN: an answer that is neither of the two.
DISAGREEING = tuple((a, b, a if a == b else "UNKNOWN") for a in STATUSES[:6] for b in STATUSES[:6])
DISAGREE, _ = own_operation("DISAGREE", list(map(list, DISAGREEING)))
assert DISAGREE

PROFILE = Profile(
    name="test",
    validity_s=None,
    validity_of={"fresh": 2 * 3600, "infosys": 3 * DAY_S},
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
PUT, PING, SUBMIT = "SRM h1 put", "CE h1 ping", "CE h1 submit"


@dataclass(frozen=True)
class Case:
    """The input of a site, and its expected timelines: "level names" to "until status …"."""

    name: str
    results: Sequence[tuple[str, float, str]]  # "flavour host metric", hour, status
    timelines: dict[str, str]
    # "flavour host" is in downtime, "flavour host metric" or "" (the site) excluded, from, to.
    covers: Sequence[tuple[str, float, float]] = ()
    day: int = DAY
    expected: Sequence[str] = ()  # instances without a result


CASES = [
    Case(
        "a state holds until the next result",
        [(PUT, 2, "OK"), (PUT, 8, "CRITICAL")],
        dict.fromkeys(("metric SRM h1 put", "site"), "2 MISSING 8 OK 24 CRITICAL"),
    ),
    Case(
        "the state at midnight is the last one of the day before",
        [(PUT, -3, "WARNING")],
        {"site": "24 WARNING"},
    ),
    Case(
        "a result at midnight belongs to the new day",
        [(PUT, -3, "CRITICAL"), (PUT, 0, "OK")],
        {"site": "24 OK"},
    ),
    Case("without any result the state is missing", [], {"site": "24 MISSING"}, expected=[PUT]),
    Case(
        "of two results at one second the worse counts",
        [
            *((PUT, 1, "CRITICAL"), (PUT, 5, "CRITICAL"), (PUT, 5, "OK")),
            *((PUT, 6, "OK"), (PUT, 6, "OK")),
        ],
        {"metric SRM h1 put": "1 MISSING 6 CRITICAL 24 OK"},
    ),
    Case(
        "metrics fold by AND, endpoints by OR, functions by AND",
        [
            *((PING, 0, "OK"), (SUBMIT, 0, "CRITICAL"), ("CE h2 ping", 0, "OK")),
            *(("CE h2 submit", 0, "WARNING"), (PUT, 0, "OK"), (PUT, 12, "UNKNOWN")),
        ],
        {
            "endpoint CE h1": "24 CRITICAL",
            "endpoint CE h2": "24 WARNING",
            "service CE": "24 WARNING",
            "site": "12 WARNING 24 UNKNOWN",
        },
    ),
    Case(
        "an own operation may answer what no child says",
        [
            *(("VOTE h1 vote", 0, "OK"), ("VOTE h2 vote", 0, "OK")),
            *(("VOTE h1 vote", 7, "CRITICAL"), ("VOTE h2 vote", 9, "CRITICAL")),
        ],
        {"service VOTE": "7 OK 9 UNKNOWN 24 CRITICAL"},
    ),
    Case(
        "downtimes are united and overwrite every state",
        [(PING, 0, "OK"), (PING, 5, "CRITICAL"), (PING, 11, "OK")],
        {
            "metric CE h1 ping": "5 OK 11 CRITICAL 24 OK",
            "endpoint CE h1": "2 OK 9 DOWNTIME 11 CRITICAL 24 OK",
        },
        covers=[("CE h1", 2, 6), ("CE h1", 4, 8), ("CE h1", 8, 9)],
    ),
    Case(
        "an excluded metric is skipped",
        [(PING, 0, "CRITICAL"), (SUBMIT, 0, "OK")],
        {
            "metric CE h1 ping": "2 CRITICAL 6 EXCLUDED 24 CRITICAL",
            "endpoint CE h1": "2 CRITICAL 6 OK 24 CRITICAL",
        },
        covers=[("CE h1 ping", 2, 6)],
    ),
    Case(
        "what has only excluded metrics is excluded, but for its downtimes",
        [(PUT, 0, "OK")],
        dict.fromkeys(("endpoint SRM h1", "site"), "2 OK 3 EXCLUDED 24 DOWNTIME"),
        covers=[(PUT, 2, 24), ("SRM h1", 3, 24)],
    ),
    Case(
        "an excluded site is unknown; its parts keep their states",
        [(PUT, 0, "OK"), (PUT, 5, "CRITICAL")],
        {"function storage": "5 OK 24 CRITICAL", "site": "3 OK 7 UNKNOWN 24 CRITICAL"},
        covers=[("", 3, 7)],
    ),
    Case(
        "a result is believed as long as it is valid",
        [
            *(("SRM h1 fresh", -3, "OK"), ("SRM h1 fresh", 4, "OK")),
            *(("SRM h1 fresh", 6, "WARNING"), ("SRM h1 fresh", 8, "WARNING")),
            ("SRM h1 fresh", 23, "OK"),
        ],
        {"metric SRM h1 fresh": "4 MISSING 6 OK 10 WARNING 23 MISSING 24 OK"},
    ),
    Case(
        "validity runs on past midnight",
        [("SRM h1 fresh", -1, "OK")],
        {"metric SRM h1 fresh": "1 OK 24 MISSING"},
    ),
    Case(
        "a validity of days counts from the last result, also of several days before",
        [("ARC h1 infosys", -60, "CRITICAL"), ("ARC h1 infosys", -52, "OK")],
        {"metric ARC h1 infosys": "20 OK 24 MISSING"},
    ),
    Case(
        "a newer result replaces one that is still valid, whatever the day",
        [("ARC h1 infosys", -71, "OK"), ("ARC h1 infosys", -30, "WARNING")],
        {"metric ARC h1 infosys": "24 WARNING"},
    ),
    Case(
        "an open day ends at the time of the run",
        [(PUT, 4, "OK")],
        {"site": "4 MISSING 10 OK"},
        day=2,
    ),
]


SpansOf = dict[tuple[str, str], Spans]


@pytest.fixture(scope="module")
def all_spans() -> SpansOf:
    """The timelines of all cases: (case, "level names") to spans in hours."""
    return _timelines(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_timelines_are_as_expected_without_gaps_or_equal_neighbours(
    case: Case, all_spans: SpansOf
) -> None:
    of_case = {thing: spans for (name, thing), spans in all_spans.items() if name == case.name}
    for thing, expected in case.timelines.items():
        ends_and_statuses = [f"{end:g} {status}" for _, end, status in of_case[thing]]
        assert " ".join(ends_and_statuses) == expected
    for spans in of_case.values():
        assert spans[0][0] == 0 and spans[-1][1] == (10 if case.day == 2 else 24)
        for (_, until, status), (start, _, following) in pairwise(spans):
            assert until == start and status != following


def test_without_expected_endpoints_there_is_no_timeline() -> None:
    assert _timelines([]) == {}


def test_sites_that_share_an_endpoint_are_in_one_group_and_groups_are_even() -> None:
    shared = [Endpoint("A", "SRM", "s"), Endpoint("C", "SRM", "s"), Endpoint("C", "CE", "b")]
    shared += [Endpoint("B", "CE", "b")]
    others = [Endpoint(f"S{number:02}", "CE", f"h{number:02}") for number in range(16)]

    group_of = site_groups([*shared, *others], 4)

    assert group_of["A"] == group_of["B"] == group_of["C"]
    sizes = Counter(group_of[endpoint.site] for endpoint in (*shared, *others))
    assert sorted(sizes.values()) == [5, 5, 5, 5]


def _timelines(cases: Sequence[Case]) -> SpansOf:
    """Fold every day of the cases, each case a site, and all sites in one group."""
    spans_of: SpansOf = {}
    for number in (1, 2):
        of_day = [case for case in cases if case.day == number]
        plan = _plan(of_day, number)
        names = plan.levels[0].names.select(NAMES[METRIC]).to_pylist()
        thing_of = {tuple(name.values()): thing for thing, name in enumerate(names)}
        rows = [
            (thing_of[case.name, *instance.split()], second * 8 + STATUSES.index(status), second)
            for case in of_day
            for instance, hour, status in case.results
            for second in [_second(hour, number)]
        ]
        measured = MetricStretches(*np.array(rows, np.int64).reshape(-1, 3).T)
        for level, timeline in fold(plan, plan.days[0], 0, measured):
            for thing, start, end, status in zip(*timeline, strict=True):
                [name] = level.names.slice(thing, 1).to_pylist()
                site = name.pop("site")
                spans = spans_of.setdefault(
                    (site, " ".join([level.name, *filter(None, name.values())])), []
                )
                spans.append((_hour(start, number), _hour(end, number), STATUSES[status]))
    return spans_of


def _plan(cases: Sequence[Case], day: int) -> Plan:
    """A plan in which only the instances that a case names are expected."""
    instances = {
        (case.name, *instance.split())
        for case in cases
        for instance in (*case.expected, *(name for name, _, _ in case.results))
    }
    levels = {0: SITE, 2: ENDPOINT, 3: METRIC}
    covers = [
        Cover(levels[len(names)], case.name, *names, *[""] * (3 - len(names)), *times)
        for case in cases
        for thing, *hours in case.covers
        for names in [thing.split()]
        for times in [[_second(hour, day) for hour in hours]]
    ]
    endpoints = sorted({Endpoint(*instance[:3]) for instance in instances})
    expected = DayExpectation(date(1970, 1, 1) + timedelta(days=day), endpoints, covers, [], [])
    group_of = {case.name: 0 for case in cases}
    plan = make_plan(PROFILE, [expected], [1], NOBODY, group_of, NOW)
    names = plan.levels[0].names.select(NAMES[METRIC]).to_pylist()
    named = np.array([tuple(name.values()) in instances for name in names], bool)
    return plan._replace(days=[plan.days[0]._replace(metrics=named)])


def _second(hour: float, day: int) -> int:
    return day * DAY_S + round(hour * 3600)


def _hour(second: int, day: int) -> float:
    return (second - day * DAY_S) / 3600


# Results become stretches without losing anything that a report needs -----------------------------


START = 1_794_614_400  # 2026-11-14T00:00:00Z
OK, WARNING, CRITICAL = 0, 1, 5

ResultRows = list[tuple[int, int, int]]  # instance, second of the day, status


def condensed(
    results: ResultRows, *, alone: tuple[int, ...] = (), apart_s: int | None = None
) -> Stretches:
    rows = np.array([(i, (START + s) << 3 | status) for i, s, status in results], np.int64)
    columns = rows.reshape(-1, 2).T
    return stretches(Results(columns[0], columns[1]), np.array(alone, np.int64), apart_s)


def rows_of(table: Stretches) -> list[tuple[int, int, int, int, int]]:
    """Instance, status, first and last second of the day, number of results."""
    columns = (
        table.instance,
        table.packed & 7,
        (table.packed >> 3) - START,
        table.last - START,
        table.results,
    )
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("results", "options", "rows"),
    [
        # Equal consecutive results are one stretch; instances stay apart.
        (
            [(1, 10, OK), (1, 20, OK), (1, 30, CRITICAL), (1, 40, OK), (2, 40, CRITICAL)],
            {},
            [
                *((1, OK, 10, 20, 2), (1, CRITICAL, 30, 30, 1), (1, OK, 40, 40, 1)),
                (2, CRITICAL, 40, 40, 1),
            ],
        ),
        # Of several results at one second the worst counts.
        (
            [(1, 10, OK), (1, 20, CRITICAL), (1, 20, OK), (1, 20, WARNING), (1, 30, CRITICAL)],
            {},
            [(1, OK, 10, 10, 1), (1, CRITICAL, 20, 30, 4)],
        ),
        # A long silence begins a new stretch.
        (
            [(1, 0, OK), (1, 100, OK), (1, 201, OK)],
            {"apart_s": 100},
            [(1, OK, 0, 100, 2), (1, OK, 201, 201, 1)],
        ),
        # Results of an instance in `alone` are not merged.
        (
            [(1, 0, OK), (1, 1, OK), (2, 0, OK), (2, 1, OK)],
            {"alone": (2,)},
            [(1, OK, 0, 1, 2), (2, OK, 0, 0, 1), (2, OK, 1, 1, 1)],
        ),
        ([], {}, []),
    ],
)
def test_results_become_stretches(
    results: ResultRows, options: dict[str, Any], rows: list[tuple[int, ...]]
) -> None:
    assert rows_of(condensed(results, **options)) == rows


any_results = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 40), st.sampled_from([OK, WARNING, CRITICAL]))
)


@given(any_results, st.sampled_from([None, 3, 7]))
def test_each_second_has_the_state_and_the_age_of_the_newest_result(
    results: ResultRows, apart_s: int | None
) -> None:
    rows = rows_of(condensed(results, apart_s=apart_s))

    for instance in {i for i, _, _ in results}:
        own = [(s, status) for i, s, status in results if i == instance]
        parts = [(first, last, status) for i, status, first, last, _ in rows if i == instance]
        for second in range(45):
            newest = max((result for result in own if result[0] <= second), default=None)
            at = max((part for part in parts if part[0] <= second), default=None)
            assert (newest is None) == (at is None)
            if newest is not None and at is not None:
                assert at[2] == newest[1]
                # Time is known while a result of the stretch is still valid.
                valid = 7 if apart_s is None else apart_s
                measured = min(at[1], second)
                if apart_s is not None:
                    assert (second - newest[0] <= valid) == (
                        second - measured <= valid or at[1] > second
                    )
