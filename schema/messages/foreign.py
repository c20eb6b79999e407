"""Messages of foreign writers: their subscription stamps format and names on them as headers.

So a dead letter, an element of a spool and a replay have them, too, and decoding depends on the
message alone. `samRename` is `foreign=ours,foreign=ours`: names are percent-encoded (except
letters, digits and `_.-~`), so that any name is safe; foreign names match in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.text import NO_RENAMES

FORMAT = "samFormat"
RENAME = "samRename"

WLCG = "wlcg"
"""Records as docs/record.md has them, as text or as JSON; the format of unstamped messages."""
NSTREAM = "nstream"
FORMATS = (WLCG, NSTREAM)

_PAIR = r"((?:[\w.~-]|%[0-9A-F]{2})+)=((?:[\w.~-]|%[0-9A-F]{2})+)"


class Stamp(NamedTuple):
    """Headers for messages that lack them."""

    headers: Mapping[str, str] = NO_RENAMES

    def stamped(self, message: Message) -> Message:
        """The message with the headers that it lacks; itself if it lacks none."""
        theirs = message.headers
        lacking = {name: value for name, value in self.headers.items() if not theirs.get(name)}
        return Message({**theirs, **lacking}, message.body) if lacking else message


def make_stamp(
    message_class: str = "", format_name: str = "", rename: Mapping[str, str] = NO_RENAMES
) -> Stamp:
    """The stamp for messages of a class and a format, whose keys have other names than ours.

    nstream results are metric results unless another class is given.
    """
    from urllib.parse import quote

    if format_name == NSTREAM:
        message_class = message_class or METRIC_OUTPUT.name
    elif format_name == WLCG:
        format_name = ""
    pairs = [
        f"{quote(foreign, safe='')}={quote(ours, safe='')}" for foreign, ours in rename.items()
    ]
    headers = {CLASS: message_class, FORMAT: format_name, RENAME: ",".join(pairs)}
    return Stamp({name: value for name, value in headers.items() if value})


def format_of(message: Message) -> str:
    """One of FORMATS.

    Raises:
        MessageRefused: the message names another format.
    """
    name = message.headers.get(FORMAT) or WLCG
    if name not in FORMATS:
        text = f"header {FORMAT}: {name[:40]!r} must be one of {', '.join(FORMATS)}"
        raise MessageRefused("unknown-format", text)
    return name


def renames_of(message: Message) -> Mapping[str, str]:
    """Our key by the foreign one in lower case.

    Raises:
        MessageRefused: the header is malformed.
    """
    text = message.headers.get(RENAME)
    return _read_rename(text) if text else NO_RENAMES


def rename_problems(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The problems of pairs of a foreign name and ours, as messages."""
    foreign_names: set[str] = set()
    sources: dict[str, str] = {}
    for foreign, ours in pairs:
        if not foreign.strip() or not ours.strip():
            yield f"{foreign!r} = {ours!r}: a name is empty"
            continue
        if foreign.lower() in foreign_names:
            yield f"{foreign!r} appears twice (names match in any case)"
        foreign_names.add(foreign.lower())
        first = sources.setdefault(ours.lower(), foreign)
        if first != foreign:
            yield f"{first!r} and {foreign!r} both become {ours!r}"


@lru_cache(maxsize=100)
def _read_rename(text: str) -> Mapping[str, str]:
    from urllib.parse import unquote

    pairs = []
    for part in text.split(","):
        match = re.fullmatch(_PAIR, part, re.ASCII)
        if not match:
            raise _bad_rename(f"{part[:60]!r} is not foreign=ours")
        try:
            pairs.append((unquote(match[1], errors="strict"), unquote(match[2], errors="strict")))
        except UnicodeDecodeError:
            raise _bad_rename(f"{part[:60]!r} is not percent-encoded UTF-8") from None
    for problem in rename_problems(pairs):
        raise _bad_rename(problem)
    return {foreign.lower(): ours for foreign, ours in pairs}


def _bad_rename(problem: str) -> MessageRefused:
    return MessageRefused("bad-rename", f"header {RENAME}: {problem}")
