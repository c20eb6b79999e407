"""Whole messages drawn at random: headers, content types, bodies, ids and sizes, mostly bad.

Each message contains its mark, in its id or near the beginning of its body, so that it can be found
again wherever it ends up.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, COUNT, MESSAGE_ID
from sam_pipeline.schema.records.text import write_wlcg
from tests.support.builders import metric_result

MIB = 1024 * 1024

Header = tuple[bytes, bytes]
"""Name and value as on the wire: anything but a line end, and a colon in the name."""


@dataclass(frozen=True)
class DrawnMessage:
    """`headers` are sent in this order, and may repeat a name."""

    mark: str
    headers: tuple[Header, ...]
    body: bytes


def draw_message(chance: random.Random, mark: str) -> DrawnMessage:
    """A message, most of the time with one or two defects."""
    body = chance.choice(_BODIES)(chance, mark)
    is_json = body[:1] in b"[{"
    headers = [
        *_class(chance),
        *_message_id(chance, mark, needed=mark.encode() not in body[:4096]),
        *_content_type(chance, is_json),
        *_oddities(chance),
    ]
    chance.shuffle(headers)
    return DrawnMessage(mark, tuple(headers), body)


def good_message(mark: str) -> DrawnMessage:
    """A message that becomes one row, whatever came before it."""
    headers = ((CLASS.encode(), b"metricOutput"), (MESSAGE_ID.encode(), mark.encode()))
    return DrawnMessage(mark, headers, _record(mark).encode())


def _record(mark: str, **changes: str) -> str:
    return write_wlcg(
        metric_result(**{"metricName": f"org.sam.{mark}", "summaryData": mark} | changes)
    )


def _records(chance: random.Random, mark: str) -> bytes:
    count = chance.choice([1, 2, 30, 300])
    share = chance.choice([0.0, 0.05, 1.0])
    return "".join(
        _record(
            mark,
            timestamp=f"2026-11-{chance.randint(1, 20):02}T00:{number // 60:02}:{number % 60:02}Z",
            metricStatus="FINE" if chance.random() < share else "OK",
        )
        for number in range(count)
    ).encode()


def _many_days(chance: random.Random, mark: str) -> bytes:
    return "".join(
        _record(mark, timestamp=f"{year}-{chance.randint(1, 12):02}-{day:02}T00:00:00Z")
        for year in (1970, 1999, 2017, 2024, 2099)
        for day in range(1, 28)
    ).encode()


def _no_records(chance: random.Random, mark: str) -> bytes:
    return f"{mark}\nEOT\n".encode() + b"x\nEOT\n" * chance.choice([1, 19, 20, 21, 9000, 20_000])


def _objects(chance: random.Random, mark: str) -> bytes:
    good = metric_result(metricName=f"org.sam.{mark}", summaryData=mark)
    items = [good, {"summaryData": mark}, {}, [], 7, None, {**good, "detailsData": ["nested"]}]
    chosen = chance.choices(items, k=chance.choice([1, 3, 40]))
    document = chosen[0] if len(chosen) == 1 and isinstance(chosen[0], dict) else [mark, *chosen]
    return json.dumps(document).encode()


def _deep(chance: random.Random, mark: str) -> bytes:
    depth = chance.choice([10, 300, 500, 990, 100_000])
    nested = "[" * depth + "]" * depth
    return f'["{mark}", {", ".join([nested] * chance.choice([1, 30]))}]'.encode()[: 3 * MIB]


def _noise(chance: random.Random, mark: str) -> bytes:
    return mark.encode() + b"\n" + chance.randbytes(chance.choice([1, 100, 10_000]))


def _cut(chance: random.Random, mark: str) -> bytes:
    body = _records(chance, mark)
    return body[: chance.randrange(len(body))]


def _huge(chance: random.Random, mark: str) -> bytes:
    """Around the default of `max_message_bytes`, and far above it."""
    size = chance.choice([4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
    return _record(mark, detailsData="d" * size).encode()[:size]


def _empty(chance: random.Random, mark: str) -> bytes:
    return chance.choice([b"", b"\n", b" \r\n\n"])


_BODIES: tuple[Callable[[random.Random, str], bytes], ...] = (
    *(_records, _records, _many_days, _no_records, _objects, _objects, _deep),
    *(_noise, _cut, _huge, _empty),
)


def _class(chance: random.Random) -> list[Header]:
    names = (b"metricOutput", b"METRICOUTPUT", b"siteGroup", b"noSuchClass", b"", b"c" * 3000)
    odd = (b"caf\xe9", b"a\\nb\\cc", "meßwert".encode(), b'x"; DROP VIEW metricOutput; --')
    if chance.random() < 0.6:
        return [(CLASS.encode(), b"metricOutput")]
    return [(CLASS.encode(), chance.choice(names + odd))] if chance.random() < 0.8 else []


def _message_id(chance: random.Random, mark: str, needed: bool) -> list[Header]:
    name, own = MESSAGE_ID.encode(), mark.encode()
    odd = (b"the-same", b"", b"i" * 400, b"caf\xe9", b"\\\\x1b[31m", b"#edited-7")
    if needed:
        return [(name, chance.choice([own, own + b" caf\xe9", own + b"i" * 400]))]
    return chance.choice([[], [(name, own)], [(name, chance.choice(odd))]])


def _content_type(chance: random.Random, is_json: bool) -> list[Header]:
    name = CONTENT_TYPE.encode()
    if is_json and chance.random() < 0.8:
        return [(name, chance.choice([b"application/json", b"APPLICATION/JSON; charset=latin-1"]))]
    values = (b"text/plain", b"text/plain; charset=utf-16", b"application/json", b"/", b"\xff\xfe")
    return [(name, chance.choice(values))] if chance.random() < 0.5 else []


def _oddities(chance: random.Random) -> list[Header]:
    """Headers that may confuse a reader; none that a broker defines as its own order to drop it."""
    odd: list[list[Header]] = [
        [(COUNT.encode(), chance.choice([b"1", b"-1", b"99999999999", b"\xd9\xa3", b"x"]))],
        [(b"samFormat", chance.choice([b"nstream", b"unknown", b"\xff"]))],
        [(b"samRename", chance.choice([b"a=hostName", b"%", b"=,=,="]))],
        [(b"samRefused", b"poison"), (b"samRefusedText", b"\\n2026 ERROR forged")],
        [(b"nagios_host", chance.choice([b"mon.example.org", b"caf\xe9", b"h" * 5000]))],
        [(b"x-note", b"caf\xe9 \x80\xff")],
        [(b"x-" + chance.randbytes(3).hex().encode(), b"v" * 9000)],
        [(f"x-{number}".encode(), b"v" * 60) for number in range(chance.choice([100, 1200]))],
        [(b"subscription", b"7"), (b"message-id", b"forged"), (b"ack", b"forged")],
        [(b"redelivered", b"true"), (b"destination", b"/queue/elsewhere")],
        [(b"JMSXUserID", b"root"), (b"user-id", b"root")],
        [(b"x-control", b"\x1b[2J\x07"), ("x-ß".encode(), "ß".encode())],
    ]
    return [
        header
        for headers in chance.sample(odd, chance.choice([0, 0, 0, 1, 1, 2]))
        for header in headers
    ]
