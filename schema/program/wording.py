"""Texts for users: on one line, printable, with units, with suggested names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MAX_NAMES = 8


def one_line(text: str, at_most: Optional[int] = None) -> str:
    """The text without line breaks and unprintable characters, cut to `at_most` characters."""
    words = text.translate(_CONTROLS).split()
    line = " ".join("".join(filter(str.isprintable, word)) for word in words)
    return line if at_most is None or len(line) <= at_most else f"{line[: at_most - 1]}…"


def printable(text: str) -> str:
    """The text with control characters, other than tabs, escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in text
    )


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


def did_you_mean(name: str, known: Iterable[str], at_most: int = 1) -> str:
    """`did you mean host, hosts?`: the known names most like it; empty if none is similar."""
    from difflib import get_close_matches  # slow to import, and needed after a mistake only

    by_lower = {known_name.lower(): known_name for known_name in known}
    near = get_close_matches(name.lower(), by_lower, at_most, 0.5)
    return f"did you mean {', '.join(by_lower[lower] for lower in near)}?" if near else ""


def did_you_mean_or_list(name: str, known: Iterable[str]) -> str:
    """The known names most like it; if none is similar, the first of all known names."""
    names = sorted(known)
    more = len(names) - _MAX_NAMES
    listed = ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
    return did_you_mean(name, names, 3) or f"there are {listed or 'none'}"
