"""Where a message was made, as its sender claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sam_pipeline.schema.messages.message import HOST, PROGRAM, USER

LONGEST_CLAIM = 100
"""The most characters of a value: that of others is cut."""


class Origin(NamedTuple):
    """The values of the headers, empty without one."""

    host: str = ""
    program: str = ""
    user: str = ""

    def __str__(self) -> str:
        """`USER@HOST`, or the program if neither is known."""
        return "@".join(filter(None, (self.user, self.host))) or self.program


def claimed_origin(headers: Mapping[str, str]) -> Origin:
    """What the headers of a message say; it may be forged."""
    return Origin(*(headers.get(name, "")[:LONGEST_CLAIM] for name in (HOST, PROGRAM, USER)))
