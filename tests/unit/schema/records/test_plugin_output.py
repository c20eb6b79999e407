"""The three parts of the output of a plugin, and the values in its performance data."""

from __future__ import annotations

import time

import pytest

from sam_pipeline.schema.records.performance_data import measured
from sam_pipeline.schema.records.plugin_output import Output, split_output

Values = list[tuple[str, str, str]]


@pytest.mark.parametrize(
    ("written", "kept", "values"),
    [
        ("time=0.1s;;;0.000 size=20B;;;0", "", [("time", "0.1", "s"), ("size", "20", "B")]),
        ("load1=0.26;5;10;0;", "", [("load1", "0.26", "")]),
        ("a=5;10:20;@10:20;~:5;0:", "", [("a", "5", "")]),
        ("a=-1.5e3c \t b=+2", "a=-1.5e3c b=+2", [("a", "-1.5e3", "c"), ("b", "+2", "")]),
        ("a=.5 b=5.", "", [("a", ".5", ""), ("b", "5.", "")]),
        ("'my disk'=9%;80;90", "", [("my disk", "9", "%")]),
        ("'a  b'=1   c=2", "'a  b'=1 c=2", [("a  b", "1", ""), ("c", "2", "")]),
        ("'a=b'=1 'it''s'=2", "", [("a=b", "1", ""), ("it's", "2", "")]),
        ("'''quoted'''=1", "", [("'quoted'", "1", "")]),
        ("a=1EB temp=1°C", "", [("a", "1", "EB"), ("temp", "1", "°C")]),
        ("t=3,26s;;;0,0 b=13ms,", "", [("t", "3.26", "s"), ("b", "13", "ms")]),
    ],
)
def test_items_keep_their_text_and_have_values_with_units(
    written: str, kept: str, values: Values
) -> None:
    output = split_output(f"OK - fine |{written}\n")

    assert output == Output("OK - fine", "", kept or written)
    assert [tuple(value) for value in measured(written)] == values


JUNK = (
    *("a=U", "a=U;1;2", "a=", "=1", "a", "'open=1", "a=1=2", "a=x", "a='1'", "a=nan", "a=inf"),
    *("a=1.2.3", "a=1,500,300", "a=--1", "a=1e9999", "a=0x10", "''=1", f"a={'9' * 401}"),
    *("a=1٣", "a=٣"),
)


@pytest.mark.parametrize("junk", JUNK)
def test_an_item_without_a_value_is_kept_and_skipped_and_the_others_are_read(junk: str) -> None:
    text = f"before=1 {junk}  'the last'=2"

    assert split_output(f"OK | {text}") == Output("OK", "", text.replace("  ", " "))
    assert [tuple(value) for value in measured(text)] == [
        ("before", "1", ""),
        ("the last", "2", ""),
    ]


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (
            "OK | a=1\nfirst\n  second | b=2\nc=3 d=4\n\n",
            Output("OK", "first\n  second", "a=1 b=2 c=3 d=4"),
        ),
        ("\n \nOK - fine\nmore\n", Output("OK - fine", "more", "")),
        *(  # a bar in the details before anything else is text
            (f"OK\n{details}\n", Output("OK", details, ""))
            for details in ("name | size\nsda | 10", "a || b", "x | a=1\nand text")
        ),
    ],
)
def test_the_first_line_is_the_summary_and_items_may_follow_the_details(
    text: str, output: Output
) -> None:
    assert split_output(text) == output


@pytest.mark.parametrize("piece", ["'", "'' ", "'a", "=1", "9", "a=9,", "' ''"])
def test_a_lot_of_junk_takes_linear_time(piece: str) -> None:
    started = time.process_time()

    list(measured(f"{piece * 100_000} a={piece * 100_000}"))
    split_output(f"OK | {piece * 100_000}\n|{piece * 100_000}=")

    assert time.process_time() - started < 10
