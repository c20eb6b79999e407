"""Performance data as plugins write it: `'label'=value[UOM];warn;crit;min;max`, blanks between.

The form is that of the monitoring plugins' guidelines. Whoever carries the text keeps what isn't
of it; whoever wants values passes it over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# A quoted label may hold blanks, `=` and, doubled, quotes. Its length is bounded lest a megabyte
# of quotes takes forever.
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
    """Whatever stands between blanks; a quoted label may hold some."""
    return _WORD.findall(text)


def is_item(word: str) -> bool:
    """Whether it is a label and a value, or a label and `U`: the plugin has no value."""
    return bool(_ITEM.fullmatch(word))


def measured(text: str) -> Iterator[Measured]:
    """The items that have a value, in their order. A decimal comma (a plugin that minds its
    locale writes one) is a point, a comma after the number a separator."""
    for word in words(text):
        label, value = _split(word)
        found = _VALUE.fullmatch(value)
        if label and found:
            yield Measured(label, found.group(1).replace(",", "."), found.group(2).rstrip(","))


def _split(word: str) -> tuple[str, str]:
    """The label, out of its quotes, and what follows it; no label where a quote stays open."""
    if not word.startswith("'"):
        label, _, value = word.partition("=")
        return ("" if "'" in label else label), value
    quoted = _QUOTED.match(word)
    if quoted is None:
        return "", ""
    return word[1 : quoted.end() - 1].replace("''", "'"), word[quoted.end() + 1 :]
