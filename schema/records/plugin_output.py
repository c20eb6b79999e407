"""The output of a plugin, split into summary, details and performance data.

The format is that of the monitoring plugins' guidelines: a line of text, then after a `|`
`'label'=value[UOM];warn;crit;min;max …`; then more lines, and after a `|` in them more such items,
to the end. A malformed item (a comma in a number, no value) is kept unchanged, so nothing is lost;
it is skipped when values are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# A quoted label may contain blanks, `=` and doubled quotes. Its length is limited, because matching
# a megabyte of quotes would take forever.
_LABEL = r"'(?:[^'\n]|''){1,250}'(?==)"
_WORD = re.compile(rf"{_LABEL}\S*|\S+")
_QUOTED = re.compile(_LABEL)
# A label with a value, or with `U` for an unknown value.
_ITEM = re.compile(rf"(?:{_LABEL}|[^\s'=]+)=(?:U|[-+]?\.?[0-9])\S*")
_NUMBER = r"[-+]?(?:[0-9]{1,400}(?:[.,][0-9]{0,400})?|[.,][0-9]{1,400})(?:[eE][-+]?[0-9]{1,3})?"
_VALUE = re.compile(rf"""({_NUMBER})([^\d;'"=\s]*)(?:;\S*)?""")


class Measured(NamedTuple):
    """A value as the plugin wrote it, but with a decimal point; the unit may be empty."""

    label: str
    number: str
    unit: str


def words(text: str) -> list[str]:
    """The text split at blanks, except those in quoted labels."""
    return _WORD.findall(text)


def measured(text: str) -> Iterator[Measured]:
    """The items that have a value, in order.

    A comma in a number is a decimal point, since some plugins use the locale; a comma after the
    number is a separator.
    """
    for word in words(text):
        if quoted := _QUOTED.match(word):
            label, value = word[1 : quoted.end() - 1].replace("''", "'"), word[quoted.end() + 1 :]
        else:
            label, _, value = word.partition("=")
        match = _VALUE.fullmatch(value)
        if match and label and (quoted or "'" not in label):
            yield Measured(label, match[1].replace(",", "."), match[2].rstrip(","))


class Output(NamedTuple):
    summary: str
    details: str
    performance_data: str


def split_output(text: str) -> Output:
    """The parts, stripped; the items of performance data are separated by one blank."""
    first, _, more = text.strip().partition("\n")
    summary, _, items = first.partition("|")
    details, _, more_items = more.partition("|")
    # Long texts may draw tables with `|`: then some lines have no item.
    lines = [line for line in more_items.split("\n") if line.strip()]
    if not lines or not all(any(map(_ITEM.fullmatch, words(line))) for line in lines):
        details, more_items = more, ""
    performance_data = " ".join(words(f"{items}\n{more_items}"))
    return Output(summary.strip(), details.strip("\n").rstrip(), performance_data)
