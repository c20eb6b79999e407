"""The text after the options of `--help`, taken apart: paragraphs, examples and lists.

examples:
  sam-consume status
  sam-consume run --drain       load all waiting messages, then stop

A paragraph.

files written below DIR:
  csv      NAME/2026-11-14/VIEW.csv: the tables,
           a file per day and view
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

EXAMPLES = re.compile("examples?:")
INDENT = "  "
GAP = re.compile(r"\s{2,}")
"""Between a command or a term and what explains it."""
WIDTH = 67
"""Of examples, so that they fit in 80 columns."""


class Item(NamedTuple):
    """A command or a term, and what explains it."""

    term: str
    text: str


class HelpText(NamedTuple):
    """The examples, and everything else in its order: paragraphs, and lists of items."""

    examples: list[Item]
    others: list[str | list[Item]]


def parse(text: str) -> HelpText:
    parsed = HelpText([], [])
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        is_example = False
        for indented, group in groupby(block.splitlines(), lambda line: line.startswith(INDENT)):
            lines = list(group)
            if not indented:
                is_example = EXAMPLES.fullmatch(lines[0]) is not None
                parsed.others.extend([] if is_example else [" ".join(lines)])
            elif is_example:
                parsed.examples.extend(items(lines))
            else:
                parsed.others.append(list(items(lines)))
    return parsed


def items(lines: list[str]) -> Iterator[Item]:
    """The items of an indented block: lines that are indented deeper continue the one before."""
    starts = INDENT + r"\S"
    item = Item("", "")
    for line in lines:
        if item.term.endswith("\\"):
            item = Item(f"{item.term[:-1].rstrip()} {line.strip()}", "")
        elif re.match(starts, line):
            if item.term:
                yield item
            term, _, text = GAP.sub("\n", line.strip(), count=1).partition("\n")
            item = Item(term, text)
        else:
            item = Item(item.term, f"{item.text} {line.strip()}".strip())
    if item.term:
        yield item


def folded(command: str, width: int = WIDTH) -> list[str]:
    """A shell command in lines that fit, each but the last ended by a backslash.

    A line is broken before an option, a redirection or a pipe if possible, never inside quotes.
    """
    lines, line = [], ""
    for word in _words(command):
        if line and len(line) + len(word) > width - 3:
            lines.append(f"{line} \\")
            line = f"    {word}"
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def _words(command: str) -> Iterator[str]:
    """The words of a command as they were typed, an option together with its values."""
    unit = ""
    for word in re.findall(r"""(?:"[^"]*"|'[^']*'|\S)+""", command):
        is_value = unit.startswith("-") and not word.startswith(("-", "|", "<", ">"))
        if unit and not (is_value and len(unit) + len(word) < WIDTH - len("     \\")):
            yield unit
            unit = word
        else:
            unit = f"{unit} {word}".strip()
    yield unit
