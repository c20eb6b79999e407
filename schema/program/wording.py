"""Texts for users: on one line, printable, with units, with suggested names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Optional

# Control characters except the tab; invisible ones, line ends and changes of direction of Unicode;
# lone surrogates, which no encoding has.
_UNPRINTABLE = (
    r"[\0-\x08\n-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MAX_NAMES = 8


def printable(text: str) -> str:
    r"""A text from outside for a terminal, a log or a page: `\n`, `\x1b`, `\u202e` are spelt out.

    It can't end a line, control a terminal, change the direction of a line or hide characters.
    """
    if text.isprintable():  # nearly all texts are
        return text
    return re.sub(_UNPRINTABLE, lambda match: repr(match[0])[1:-1], text)


def printable_json(document: str) -> str:
    """A JSON document with JSON's own escapes for the same characters, except its line ends."""
    if document.replace("\n", "").isprintable():
        return document
    return re.sub(
        _UNPRINTABLE,
        lambda match: "\n" if match[0] == "\n" else json.dumps(match[0])[1:-1],
        document,
    )


def one_line(text: str, at_most: Optional[int] = None) -> str:
    """The printable text with single blanks for line ends, cut to `at_most` characters."""
    line = printable(" ".join(text.split()))
    return line if at_most is None or len(line) <= at_most else f"{line[: at_most - 1]}…"


def plural(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: int) -> str:
    """`3 h`, `2 d 5 h`, `40 s`: the two largest units, rounded down."""
    counts = []
    for size, unit in _UNITS:
        counts.append((seconds // size, unit))
        seconds %= size
    first = next((at for at, (count, _) in enumerate(counts) if count), len(counts) - 1)
    return " ".join(f"{n} {unit}" for n, unit in counts[first : first + 2] if n) or "0 s"


def grouped(number: int) -> str:
    """`1 234 567`."""
    return f"{number:,}".replace(",", " ")


def did_you_mean(name: str, known: Iterable[str], at_most: int = 1, cutoff: float = 0.5) -> str:
    """`did you mean host, hosts?`: the known names most like it; empty if none is similar."""
    from difflib import get_close_matches  # slow to import, and needed after a mistake only

    by_lower = {known_name.lower(): known_name for known_name in known}
    near = get_close_matches(name.lower(), by_lower, at_most, cutoff)
    return f"did you mean {', '.join(by_lower[lower] for lower in near)}?" if near else ""


def did_you_mean_or_list(name: str, known: Iterable[str]) -> str:
    """The known names most like it; if none is similar, the first of all known names."""
    names = sorted(known)
    more = len(names) - _MAX_NAMES
    listed = ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
    return did_you_mean(name, names, 3) or f"there are {listed or 'none'}"
