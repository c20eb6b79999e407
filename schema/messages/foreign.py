"""Messages of foreign writers: the subscription adds their format and key names as headers.

Dead letters, spool elements and replays also carry these headers, so decoding depends on nothing
but the message. `samRename` is `foreign=ours,foreign=ours`, where names are percent-encoded (except
letters, digits and `_.-~`) and foreign names match in any case.

The format nstream is that of ETF, the Experiments Test Framework. Nagios calls its nstream library
for each check; that puts one JSON object per result into a directory queue, from which stompclt may
send it to a broker. The setting `c_map` of nstream defines the keys: those in its documentation are
known here, others need the `rename` of a subscription.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.message import CLASS, FORMAT, RENAME, Message
from sam_pipeline.schema.records.classes import DETAILS, METRIC_OUTPUT, MessageClass
from sam_pipeline.schema.records.json_form import read_json
from sam_pipeline.schema.records.text import NO_RENAMES, BadRecord, Reading, ReadRecord, unescaped

WLCG = "wlcg"
"""The records of docs/record.md, as text or as JSON; the format of messages without the header."""
NSTREAM = "nstream"
FORMATS = (WLCG, NSTREAM)

_PAIR = r"((?:[\w.~-]|%[0-9A-F]{2})+)=((?:[\w.~-]|%[0-9A-F]{2})+)"


class Stamp(NamedTuple):
    """Headers that a subscription adds to messages without them."""

    headers: Mapping[str, str] = NO_RENAMES

    def stamped(self, message: Message) -> Message:
        """The message with all headers of the stamp; its own values take precedence."""
        own = message.headers
        missing = {name: value for name, value in self.headers.items() if not own.get(name)}
        return Message({**own, **missing}, message.body) if missing else message


def make_stamp(
    message_class: str = "", format_name: str = "", rename: Mapping[str, str] = NO_RENAMES
) -> Stamp:
    """The stamp for messages of a class and a format, with our key by foreign key in `rename`.

    Without a class, nstream results are metric results.
    """
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
    """One of FORMATS; raises MessageRefused if the header names another format."""
    name = message.headers.get(FORMAT) or WLCG
    if name not in FORMATS:
        text = f"header {FORMAT}: {name[:40]!r} must be one of {', '.join(FORMATS)}"
        raise MessageRefused("unknown-format", text)
    return name


@lru_cache(maxsize=100)
def parse_renames(header: str) -> Mapping[str, str]:
    """Our key by foreign key in lower case; raises MessageRefused if `samRename` is malformed."""
    if not header:
        return NO_RENAMES
    pairs = []
    for part in header.split(","):
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


def rename_problems(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """The problems of pairs of a foreign and one of our names, one message each."""
    foreign_names: set[str] = set()
    foreign_by_ours: dict[str, str] = {}
    for foreign, ours in pairs:
        if not foreign.strip() or not ours.strip():
            yield f"{foreign!r} = {ours!r}: a name is empty"
            continue
        if foreign.lower() in foreign_names:
            yield f"{foreign!r} appears twice (names match in any case)"
        foreign_names.add(foreign.lower())
        first = foreign_by_ours.setdefault(ours.lower(), foreign)
        if first != foreign:
            yield f"{first!r} and {foreign!r} both become {ours!r}"


def _bad_rename(problem: str) -> MessageRefused:
    return MessageRefused("bad-rename", f"header {RENAME}: {problem}")


FLAVOUR = "serviceFlavour"
TAGS = "tags"
"""The groups of hosts and checks in ETF, which are service flavours separated by blanks."""

KEYS = {
    "metric": "metricName",
    "host": "hostName",
    "status": "metricStatus",
    "summary": "summaryData",
    "details": DETAILS,
    "perfdata": "performanceData",
    "serviceflavour": FLAVOUR,
    "servicetype": "serviceType",
    TAGS: TAGS,
}
"""Our keys by those of nstream in lower case; `timestamp` is the same in both."""


def read_nstream(
    body: bytes,
    *,
    message_class: MessageClass | None = None,
    renames: Mapping[str, str],
    max_records: int = sys.maxsize,
) -> Reading:
    """The records of a body, one object or an array of objects, with our keys.

    The only values that are not text, counters of performance data, become JSON text.

    Raises:
        MessageRefused: more than `max_records`.
    """
    needs_flavour = message_class is not None and FLAVOUR in message_class.required
    reading: Reading = []
    for record in read_json(
        body, renames={**KEYS, **renames}, max_records=max_records, nested_as_text=True
    ):
        if isinstance(record, ReadRecord):
            fields = dict(record.fields)
            flavours = _words(fields.get(FLAVOUR, "")) or _words(fields.pop(TAGS, ""))
            if flavours:
                fields[FLAVOUR] = ",".join(flavours)
            elif needs_flavour and not fields.get("serviceType"):
                text = (
                    f"item {record.line} has no service flavour (expected in {TAGS} or {FLAVOUR})"
                )
                reading.append(BadRecord("missing-key", text, record.raw, record.line))
                continue
            if DETAILS in fields:  # nstream passes on what Nagios has escaped
                fields[DETAILS] = unescaped(fields[DETAILS])
            record = record._replace(fields=fields)
        reading.append(record)
    return reading


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()
