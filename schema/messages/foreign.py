"""Foreign writers: what a subscription knows of their messages, stamped on each as headers.

So a dead letter, an element of a spool and a replay know it as well, and decoding stays a matter
of the message alone. `samRename` is `foreign=ours,foreign=ours`: every name percent-encoded (but
for letters, digits and `_.-~`), so that any name is safe; foreign names are found in any case.
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
"""Records as docs/record.md has them, as text or as JSON; what a message has that names none."""
NSTREAM = "nstream"
FORMATS = (WLCG, NSTREAM)

_PAIR = r"((?:[\w.~-]|%[0-9A-F]{2})+)=((?:[\w.~-]|%[0-9A-F]{2})+)"


class Stamp(NamedTuple):
    """The headers that messages get which lack them."""

    headers: Mapping[str, str] = NO_RENAMES

    def stamped(self, message: Message) -> Message:
        """The message with the headers that it lacks; itself if it lacks none."""
        theirs = message.headers
        for name in self.headers:  # quick to tell, and true of nearly all
            if not theirs.get(name):
                break
        else:
            return message
        lacking = {name: value for name, value in self.headers.items() if not theirs.get(name)}
        return Message({**theirs, **lacking}, message.body)


def make_stamp(
    message_class: str = "", format_name: str = "", rename: Mapping[str, str] = NO_RENAMES
) -> Stamp:
    """The stamp for messages of a class and a format, whose keys have other names than ours.

    nstream results are metric results unless another class is given.
    """
    if format_name == NSTREAM:
        message_class = message_class or METRIC_OUTPUT.name
    elif format_name == WLCG:
        format_name = ""
    said = {CLASS: message_class, FORMAT: format_name, RENAME: write_rename(rename)}
    return Stamp({name: value for name, value in said.items() if value})


def format_of(message: Message) -> str:
    """One of FORMATS.

    Raises:
        MessageRefused: the message says that it is of another one.
    """
    name = message.headers.get(FORMAT) or WLCG
    if name not in FORMATS:
        words = f"header {FORMAT}: {name[:40]!r} is none of {', '.join(FORMATS)}"
        raise MessageRefused("unknown-format", words)
    return name


def renames_of(message: Message) -> Mapping[str, str]:
    """Our key by the foreign one in lower case.

    Raises:
        MessageRefused: its header is none of the form described above.
    """
    text = message.headers.get(RENAME)
    return _read_rename(text) if text else NO_RENAMES


def write_rename(rename: Mapping[str, str]) -> str:
    """The header that `renames_of` reads; "" if nothing has another name."""
    from urllib.parse import quote

    return ",".join(
        f"{quote(foreign, safe='')}={quote(ours, safe='')}" for foreign, ours in rename.items()
    )


def rename_problems(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What is wrong with names, foreign and ours, in words."""
    foreign_names: set[str] = set()
    sources: dict[str, str] = {}
    for foreign, ours in pairs:
        if not foreign.strip() or not ours.strip():
            yield f"{foreign!r} = {ours!r}: a name is empty"
            continue
        if foreign.lower() in foreign_names:
            yield f"{foreign!r} is there twice (names are the same in any case)"
        foreign_names.add(foreign.lower())
        other = sources.setdefault(ours.lower(), foreign)
        if other != foreign:
            yield f"{other!r} and {foreign!r} both become {ours!r}"


@lru_cache(maxsize=100)
def _read_rename(text: str) -> Mapping[str, str]:
    from urllib.parse import unquote

    pairs = []
    for part in text.split(","):
        match = re.fullmatch(_PAIR, part, re.ASCII)
        if not match:
            raise _bad_rename(f"{part[:60]!r} is no foreign=ours")
        try:
            pairs.append((unquote(match[1], errors="strict"), unquote(match[2], errors="strict")))
        except UnicodeDecodeError:
            raise _bad_rename(f"{part[:60]!r} is no UTF-8, percent-encoded") from None
    for problem in rename_problems(pairs):
        raise _bad_rename(problem)
    return {foreign.lower(): ours for foreign, ours in pairs}


def _bad_rename(words: str) -> MessageRefused:
    return MessageRefused("bad-rename", f"header {RENAME}: {words}")
