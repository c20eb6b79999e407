"""A text from outside can't control a terminal, end a line or hide characters."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.program.wording import one_line, printable, printable_json

HARMLESS = "Universität\u00a0: réseau\u202fOK\t日本\u3000語 👍 \\x1b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\nb\r\nc", r"a\nb\r\nc"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\x85\u2028\u2029", r"\x85\u2028\u2029"),
        ("\u202etxt.exe\u2066", r"\u202etxt.exe\u2066"),
        ("a\u200bb\ufeff\U000e0041", r"a\u200bb\ufeff\U000e0041"),
        ("\udc1b", r"\udc1b"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_other_characters_stay_as_they_are() -> None:
    assert printable(HARMLESS) == HARMLESS


@given(st.text(st.characters()))  # surrogates, too
def test_no_text_contains_a_character_that_is_not_shown(text: str) -> None:
    shown = printable(text)

    shown.encode()
    assert {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"} <= (
        {"Cc"} if "\t" in shown else set()
    )
    assert printable(shown) == shown


@given(st.dictionaries(st.text(st.characters()), st.text(st.characters())))
def test_a_json_document_means_the_same_and_contains_no_such_character(
    document: dict[str, str],
) -> None:
    shown = printable_json(json.dumps(document, indent=1, ensure_ascii=False))

    assert json.loads(shown) == json.loads(json.dumps(document))
    assert all(line == printable(line) for line in shown.split("\n"))


def test_the_line_ends_of_a_text_become_blanks() -> None:
    assert one_line("one\n\n two\u2028three \x1b") == r"one two three \x1b"
    assert one_line("12345", at_most=4) == "123…"
