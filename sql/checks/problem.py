"""A problem that `sam-db check` reports."""

from __future__ import annotations

from typing import NamedTuple

REPAIR_COMMAND = "sam-db repair"


class Problem(NamedTuple):
    """`repair` is the command or statement that solves it; None if there is none."""

    text: str
    repair: str | None = None
