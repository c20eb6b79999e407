"""Reading values from performance data, whatever surrounds them."""

from __future__ import annotations

import time

import pytest

from sam_pipeline.schema.records.performance_data import Measured, measured


def values(text: str) -> list[tuple[str, ...]]:
    return [tuple(value) for value in measured(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time=0.1s;;;0.000 size=20B;;;0", [("time", "0.1", "s"), ("size", "20", "B")]),
        ("load1=0.26;5;10;0;", [("load1", "0.26", "")]),
        ("a=5;10:20;@10:20;~:5;0:", [("a", "5", "")]),
        ("a=-1.5e3c b=+2", [("a", "-1.5e3", "c"), ("b", "+2", "")]),
        ("a=.5 b=5.", [("a", ".5", ""), ("b", "5.", "")]),
        ("'my disk'=9%;80;90", [("my disk", "9", "%")]),
        ("'a=b'=1 'it''s'=2", [("a=b", "1", ""), ("it's", "2", "")]),
        ("a=1EB", [("a", "1", "EB")]),
        ("a=1\n\tb=2", [("a", "1", ""), ("b", "2", "")]),
        ("temp=1°C", [("temp", "1", "°C")]),
    ],
)
def test_values_are_read_with_their_units(text: str, expected: list[tuple[str, ...]]) -> None:
    assert values(text) == expected


def test_a_decimal_comma_is_a_point_and_a_comma_at_the_end_a_separator() -> None:
    assert values("time=3,263679s;;;0,000000 a=0, b=13ms,") == [
        ("time", "3.263679", "s"),
        ("a", "0.", ""),
        ("b", "13", "ms"),
    ]


@pytest.mark.parametrize(
    "junk",
    [
        *["a=U", "a=U;1;2", "a=", "=1", "a", "'open=1", "a=1=2", "a=x", "a='1'", "a=nan", "a=inf"],
        *["a=1.2.3", "a=1,500,300", "a=--1", "a=1e9999", "a=0x10", "''=1", f"a={'9' * 401}"],
        *["a=1٣", "a=٣"],
    ],
)
def test_an_item_without_a_value_is_skipped_and_the_others_are_read(junk: str) -> None:
    assert list(measured(f"before=1 {junk}  'the last'=2")) == [
        Measured("before", "1", ""),
        Measured("the last", "2", ""),
    ]


@pytest.mark.parametrize("piece", ["'", "'' ", "'a", "=1", "9", "a=9,", "' ''"])
def test_a_lot_of_junk_takes_linear_time(piece: str) -> None:
    started = time.process_time()

    list(measured(f"{piece * 100_000} a={piece * 100_000}"))

    assert time.process_time() - started < 2
