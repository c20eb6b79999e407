"""Performance data of plugins: `'label'=value[UOM];warn;crit;min;max`, separated by blanks.

This is the form in the monitoring plugins' guidelines. Text of any other form is stored and
forwarded unchanged, and skipped when values are read.
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


def is_item(word: str) -> bool:
    """Whether the word is a label with a value, or with `U` for an unknown value."""
    return bool(_ITEM.fullmatch(word))


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
