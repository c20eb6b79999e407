"""Rules on performance data (availability rule 6)."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import (
    read_range,
    triggers,
    verdict_of,
)
from tests.oracle import oracle
from tests.worlds import model

METRIC, HOST, FLAVOUR = "org.sam.SRM-Put", "se01.example.org", "SRM"


def rule(
    warning: str | None = None,
    critical: str | None = None,
    label: str = "time",
    host: str = "",
    flavour: str = "",
    metric: str = METRIC,
) -> Threshold:
    levels = [read_range(text) if text else None for text in (warning, critical)]
    return Threshold(metric, label, *levels, host_name=host, service_flavour=flavour)


def judge(rules: list[Threshold], performance_data: str | None, status: str = "OK") -> str:
    return verdict_of(rules, HOST, FLAVOUR, METRIC, status, performance_data).status


# The guidelines' own tables: what a range is, and what it makes of values around its bounds.
@pytest.mark.parametrize(
    ("text", "limits", "alerts", "quiet"),
    [
        ("10:20", (10, 20, False), "9.999 20.001", "10 15 20"),
        ("@10:20", (10, 20, True), "10 15 20", "9.999 20.001"),
        ("20", (0, 20, False), "21 -1", "20"),
        ("~:20", (None, 20, False), "21", "-1 20"),
        ("20:", (20, None, False), "19", "20 21"),
        ("@1", (0, 1, True), "0 0.5 1", "-1 2"),
        ("@5:", (5, None, True), "5 6", "4"),
        ("@~:5", (None, 5, True), "5 -6", "6"),
        ("-5:-1.5", (-5, Fraction("-1.5"), False), "-5.1 -1.4 0", "-5 -1.5"),
        ("+1e1:2.5E1", (10, 25, False), "9", "10 25"),
        (".5:.75", (Fraction(1, 2), Fraction(3, 4), False), "0.4 0.8", "0.5 0.75"),
    ],
)
def test_a_range_alerts_as_the_guidelines_say(
    text: str, limits: tuple[int | None, int | None, bool], alerts: str, quiet: str
) -> None:
    read = read_range(text)

    assert (read.low, read.high, read.inside) == limits
    for number in alerts.split():
        assert triggers(read, Fraction(number)), number
    for number in quiet.split():
        assert not triggers(read, Fraction(number)), number


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a range"),
        (":", "is not a range"),
        (":10", "is not a range"),
        ("30s", "without a unit"),
        ("5:1:2", "is not a range"),
        ("10\n", "is not a range"),
        ("1e1000000000", "is not a range"),
        ("٣", "is not a range"),
        ("~:", "no value would trigger it"),
        ("@~:", "every value would trigger it"),
        ("20:10", "starts above its end"),
        ("-10", "below 0 write ~:-10"),
    ],
)
def test_an_invalid_range_is_refused_with_its_text(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        read_range(text)

    assert repr(text) in str(caught.value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20))
def test_the_bounds_are_exact(bound: object) -> None:
    limits = read_range(f"{bound:f}:")

    assert not triggers(limits, Fraction(str(bound)))
    assert triggers(limits, Fraction(str(bound)) - Fraction(1, 10**30))


RANGES = ["", "10", "10:", "~:5", "-1:2.5", "@3:7", "@~:0"]
VALUES = ["0", "2.5s", "-1%", "7.001", "10", "U", ""]


@given(
    st.lists(
        st.tuples(*map(st.sampled_from, (RANGES, RANGES, "ab", ["", HOST], ["", FLAVOUR, "CE"]))),
        max_size=5,
        unique_by=lambda fields: fields[2:],
    ),
    st.dictionaries(st.sampled_from(["a", "b", "c d"]), st.sampled_from(VALUES)),
    st.sampled_from(["OK", "WARNING", "CRITICAL", "UNKNOWN"]),
)
def test_the_verdict_equals_the_oracles(
    rules: list[tuple[str, ...]], values: dict[str, str], status: str
) -> None:
    data = " ".join(f"'{label}'={value};1;2" for label, value in values.items())
    thresholds = tuple(
        model.Threshold(METRIC, label, warning, critical, host, flavour)
        for warning, critical, label, host, flavour in rules
    )
    result = model.Result(HOST, FLAVOUR, METRIC, status, datetime.now(UTC), performance_data=data)
    profile = model.Profile("x", {}, thresholds=thresholds)

    assert judge([rule(*fields) for fields in rules], data, status) == oracle.judged(
        result, profile
    )
