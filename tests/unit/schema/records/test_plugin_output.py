"""The three parts of the output of a plugin."""

from __future__ import annotations

import time

import pytest

from sam_pipeline.schema.records.plugin_output import Output, split_output


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("time=0.1s;;;0.000 size=20B;;;0", "time=0.1s;;;0.000 size=20B;;;0"),
        ("load1=0.26;5;10;0;  load5=0.1;4;6;0;", "load1=0.26;5;10;0; load5=0.1;4;6;0;"),
        ("a=5;10:20;@10:20;~:5;0:", "a=5;10:20;@10:20;~:5;0:"),
        ("a=-1.5e3c \t b=U", "a=-1.5e3c b=U"),
        ("'my disk'=9%;80;90", "'my disk'=9%;80;90"),
        ("'a  b'=1   c=2", "'a  b'=1 c=2"),
        ("'a=b'=1", "'a=b'=1"),
        ("'it''s mine'=1", "'it''s mine'=1"),
        ("'''quoted'''=1", "'''quoted'''=1"),
    ],
)
def test_items_keep_their_text_separated_by_one_blank(written: str, kept: str) -> None:
    assert split_output(f"OK - fine |{written}\n") == Output("OK - fine", "", kept)


@pytest.mark.parametrize("item", ["a=1,5", "a=", "=1", "a", "'open=1", "a=1=2", "a='b'", "''"])
def test_an_invalid_item_is_kept_unchanged_among_the_others(item: str) -> None:
    output = split_output(f"OK | before=1 {item}  'the last'=2")

    assert output == Output("OK", "", f"before=1 {item} 'the last'=2")


def test_many_items_are_all_kept() -> None:
    items = [f"'metric {number}'={number}ms;10;20" for number in range(200)]

    output = split_output(f"OK|{'  '.join(items)}")

    assert output.performance_data == " ".join(items)


def test_items_follow_the_details_too_up_to_the_end() -> None:
    text = "OK | a=1\nfirst\n  second | b=2\nc=3 d=4\n\n"

    assert split_output(text) == Output("OK", "first\n  second", "a=1 b=2 c=3 d=4")


@pytest.mark.parametrize("details", ["name | size\nsda | 10", "a || b", "x | a=1\nand text"])
def test_a_bar_in_the_details_before_anything_else_is_text(details: str) -> None:
    assert split_output(f"OK\n{details}\n") == Output("OK", details, "")


def test_the_summary_is_the_first_line_that_is_not_blank() -> None:
    assert split_output("\n \nOK - fine\nmore\n") == Output("OK - fine", "more", "")


@pytest.mark.parametrize("piece", ["'", "'' ", "'a", "=1", "' ''"])
def test_many_quotes_take_linear_time(piece: str) -> None:
    text = f"OK | {piece * 100_000}\n|{piece * 100_000}="
    started = time.process_time()

    split_output(text)

    assert time.process_time() - started < 2
