"""ARGO's documents: names, nesting and texts."""

from __future__ import annotations

from fractions import Fraction

import pytest

from sam_pipeline.spark_jobs.exports.argo import changes, figures, number, tree
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import Segment
from tests.support.reports.database import DAY

START = 1_794_614_400  # DAY


def segment(start: int, end: int, status: str, *names: str) -> Segment:
    return Segment(DAY, "site", names or ("A",), START + start, START + end, status)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(100), "100"),
        (Fraction(0), "0"),
        (Fraction(5403509, 100_000), "54.03509"),
        (Fraction(200, 3), "66.66667"),
        (Fraction(1, 86_400), "1e-05"),  # Go turns to exponents below 0.0001, as Python does
        (Fraction(1, 10_000), "0.0001"),
        (None, "-1"),
    ],
)
def test_a_number_is_the_shortest_text_of_five_decimals(value: Fraction | None, text: str) -> None:
    assert number(value, "-1") == text


def test_a_figure_has_percents_of_the_known_and_shares_of_all_time() -> None:
    # The second day of ARGO's own example: 54.03509, 81.48148, 0.01042, 0.53472, 0.33333.
    seconds = Seconds(ok=46_200, unknown=900, downtime=28_800, critical=10_500)

    assert figures("2015-06-23", seconds) == {
        "timestamp": "2015-06-23",
        "availability": "54.03509",
        "reliability": "81.48148",
        "unknown": "0.01042",
        "uptime": "0.53472",
        "downtime": "0.33333",
    }


@pytest.mark.parametrize(
    ("seconds", "availability", "reliability"),
    [
        (Seconds(missing=86_400), "-1", "-1"),
        (Seconds(downtime=86_400), "0", "-1"),
        (Seconds(critical=86_400), "0", "0"),
        (Seconds(), "-1", "-1"),
    ],
)
def test_a_missing_figure_is_minus_one(
    seconds: Seconds, availability: str, reliability: str
) -> None:
    texts = figures("2015-06-23", seconds)

    assert (texts["availability"], texts["reliability"]) == (
        availability,
        reliability,
    )


def test_missing_unknown_and_excluded_time_is_unknown_for_argo() -> None:
    texts = figures("2015-06-23", Seconds(ok=40, unknown=10, missing=20, excluded=30))

    assert (texts["unknown"], texts["uptime"]) == ("0.6", "0.4")


def test_a_timeline_ends_with_its_last_status_repeated() -> None:
    segments = [
        segment(0, 3600, "OK"),
        segment(3600, 86_400, "CRITICAL"),
        segment(0, 86_400, "MISSING", "B"),
    ]

    rows = [
        (*names, item["timestamp"], item["value"])
        for names, item in changes(segments, START + 86_399)
    ]

    assert rows == [
        ("A", f"{DAY}T00:00:00Z", "OK"),
        ("A", f"{DAY}T01:00:00Z", "CRITICAL"),
        ("A", f"{DAY}T23:59:59Z", "CRITICAL"),
        ("B", f"{DAY}T00:00:00Z", "MISSING"),
        ("B", f"{DAY}T23:59:59Z", "MISSING"),
    ]


def test_equal_names_below_different_parents_are_two_things() -> None:
    rows = [
        (("A", "CE", "h"), {"n": 1}),
        (("A", "SRM", "h"), {"n": 2}),
        (("B", "SRM", "h"), {"n": 3}),
    ]

    nodes = list(tree(rows, (("SITES", "services"), ("service", "endpoints"), ("", "statuses"))))

    assert nodes == [
        {
            "name": "A",
            "type": "SITES",
            "services": [
                {
                    "name": "CE",
                    "type": "service",
                    "endpoints": [{"name": "h", "statuses": [{"n": 1}]}],
                },
                {
                    "name": "SRM",
                    "type": "service",
                    "endpoints": [{"name": "h", "statuses": [{"n": 2}]}],
                },
            ],
        },
        {
            "name": "B",
            "type": "SITES",
            "services": [
                {
                    "name": "SRM",
                    "type": "service",
                    "endpoints": [{"name": "h", "statuses": [{"n": 3}]}],
                }
            ],
        },
    ]
