"""Taking help texts apart, and text in the language of man pages."""

from __future__ import annotations

import argparse

import pytest

from deploy.manual import roff
from deploy.manual.help_text import Item, folded, parse
from deploy.manual.parsers import MAKERS, commands, parser_of

HELP = """\
examples:
  sam-db check --json       one document
  sam-db import csv --class downtime \\
      table.csv
  sam-db sql
      a comment on the next line,
      and on another

A paragraph
of two lines.

states:
  left behind  nobody reads it
               any more
"""


def test_a_help_text_has_examples_paragraphs_and_lists() -> None:
    text = parse(HELP)

    assert text.examples == [
        Item("sam-db check --json", "one document"),
        Item("sam-db import csv --class downtime table.csv", ""),
        Item("sam-db sql", "a comment on the next line, and on another"),
    ]
    listed = [Item("left behind", "nobody reads it any more")]
    assert text.others == ["A paragraph of two lines.", "states:", listed]


def test_a_long_command_is_folded_before_an_option_and_never_inside_quotes() -> None:
    command = 'sam-db downtime add --site A --reason "power  cut - again" --end 2026-11-20T12:00Z'

    assert folded(command, width=50) == [
        "sam-db downtime add --site A \\",
        '    --reason "power  cut - again" \\',
        "    --end 2026-11-20T12:00Z",
    ]
    digest = "5" * 64
    assert folded(f"sam-db audit --verify --expect {digest}")[-1] == f"    {digest}"


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("with `--to` only", r"with \fB\-\-to\fR only"),
        ("the dead letter *too-large*, 2 * 3", r"the dead letter \fItoo\-large\fR, 2 * 3"),
        ("an [unsupported](upgrade.md) schema", "an unsupported schema"),
        (".bad, and …", r"\&.bad, and \[u2026]"),
        (r"a \n isn't", r"a \en isn\(aqt"),
    ],
)
def test_markdown_becomes_roff(markdown: str, expected: str) -> None:
    assert roff.inline(markdown) == expected


@pytest.mark.parametrize("program", MAKERS)
def test_every_option_and_argument_has_a_help_text(program: str) -> None:
    parser = parser_of(program)

    without = [
        (command.prog, action.dest)
        for command in [parser, *commands(parser)]
        for action in command._actions
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]

    assert without == []
