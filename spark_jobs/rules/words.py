"""How people are told: texts on one line, durations, names that were meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MAX_NAMES = 8


def one_line(text: str, at_most: int | None = None) -> str:
    """The text without line breaks and control characters, cut where it grows too long."""
    line = _UNPRINTABLE.sub(" ", text).strip()
    return line if at_most is None or len(line) <= at_most else f"{line[: at_most - 1]}…"


def duration(seconds: int) -> str:
    """`3 h`, `2 d 5 h`, `40 s`: the two largest units, cut."""
    counts = []
    for size, unit in _UNITS:
        counts.append((seconds // size, unit))
        seconds %= size
    first = next((at for at, (count, _) in enumerate(counts) if count), len(counts) - 1)
    return " ".join(f"{n} {unit}" for n, unit in counts[first : first + 2] if n) or "0 s"


def names_near(name: str, known: Iterable[str]) -> str:
    """What may have been meant by a name that isn't known: words to end a sentence with."""
    from difflib import get_close_matches  # who makes no mistake need not wait for it

    by_lower = {each.lower(): each for each in sorted(known)}
    near = get_close_matches(name.lower(), by_lower, 3, 0.6)
    if near:
        return f"did you mean {', '.join(by_lower[each] for each in near)}?"
    names = list(by_lower.values())
    more = len(names) - _MAX_NAMES
    ending = f" and {more} more" if more > 0 else ""
    return f"there are {', '.join(names[:_MAX_NAMES]) or 'none'}{ending}"
