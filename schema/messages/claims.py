"""Headers in which our programs pass on what they have established about a message.

A sender may not set them, in any spelling: only a configured relay is trusted.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from sam_pipeline.schema.messages.message import Message

OURS = frozenset(
    {"samidentity", "samrefused", "samrefusedtext", "samhead", "samrejected", "importfile"}
)
"""In lower case, without hyphens and underscores, which some transports change."""


def is_ours(name: str) -> bool:
    """Whether a header of this name is reserved for our programs."""
    return name.lower().replace("-", "").replace("_", "") in OURS


@lru_cache(maxsize=1000)  # nearly all messages have the same header names
def ours_among(names: tuple[str, ...]) -> tuple[str, ...]:
    """The header names among these that are ours."""
    return tuple(filter(is_ours, names))


def without_claims(message: Message, keep: Collection[str] = ()) -> Message:
    """The message without headers that are ours, but for those to `keep`."""
    claims = set(ours_among(tuple(message.headers))).difference(keep)
    if not claims:
        return message
    kept = {name: value for name, value in message.headers.items() if name not in claims}
    return Message(kept, message.body)
