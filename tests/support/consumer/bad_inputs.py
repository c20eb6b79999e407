"""Inputs that can never become a row, with the reason of their dead letter, and valid inputs that
only look bad."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count

from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, MESSAGE_ID, Message
from tests.support.builders import metric_result

JSON = "application/json"
A_ROW = ""
"""The reason of an input that becomes a row."""

MIB = 1024 * 1024
_numbers = count(1)


@dataclass(frozen=True)
class Input:
    """A message, and the reason of its dead letter."""

    name: str
    body: bytes
    reason: str
    message_class: str = "metricOutput"
    content_type: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_id(self) -> str:
        return f"id of {self.name}"

    @property
    def message(self) -> Message:
        ours = {CLASS: self.message_class, MESSAGE_ID: self.message_id}
        return Message({**ours, CONTENT_TYPE: self.content_type, **self.headers}, self.body)


def text(more: str = "", **changes: str) -> bytes:
    """A record in text form with `more` lines before its end; each has its own natural key."""
    return _written(metric_result(**{"metricName": _some_metric(), **changes}), more)


def without(key: str) -> bytes:
    fields = metric_result(metricName=_some_metric())
    del fields[key]
    return _written(fields)


def _written(fields: Mapping[str, str], more: str = "") -> bytes:
    lines = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return f"{lines}{more}EOT\n".encode("utf-8", "surrogatepass")


def _some_metric() -> str:
    return f"org.sam.Wild{next(_numbers)}"


def as_json(**changes: object) -> bytes:
    fields = metric_result(metricName=_some_metric())
    return json.dumps({**fields, **changes}).encode()


def group(**changes: object) -> bytes:
    fields = {"siteName": "S", "groupName": "G", "groupType": "T", "validFrom": "1767225600"}
    return json.dumps({**fields, **changes}).encode()


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")


TEXT_INPUTS: tuple[tuple[str, bytes, str], ...] = (
    # Empty bodies.
    ("an empty body", b"", "empty"),
    ("a body of blanks", b"  \n\t \r\n", "empty"),
    ("only an end marker", b"EOT\n", "empty"),
    # Other encodings.
    ("UTF-16 with a byte order mark", text().decode().encode("utf-16"), "no-key"),
    ("Latin-1 in a summary", text(summaryData="caf\xe9").replace(b"\xc3", b""), A_ROW),
    ("a lone byte in a host", text(hostName="ce01").replace(b"ce01", b"\xff"), "bad-host"),
    ("UTF-8 with a byte order mark", b"\xef\xbb\xbf" + text(), A_ROW),
    # Characters that a database or a reader rejects.
    ("a NUL in a value", text(summaryData="a\0b"), "nul-byte"),
    ("a surrogate in UTF-8", text(summaryData="\ud800"), A_ROW),
    ("a noncharacter", text(summaryData="a\ufffeb"), A_ROW),
    ("a control character in a name", text(siteName="a\x1fb"), "control-character"),
    # Malformed text.
    ("neither keys nor JSON", b"all is well\nEOT\n", "no-key"),
    ("a binary body", bytes(range(256)), "no-key"),
    ("a record cut in the middle", text()[:60], "truncated"),
    ("a repeated key", text("voName: atlas\n"), "duplicate-key"),
    # Keys.
    ("an unknown key", text("moonPhase: full\n"), A_ROW),
    ("keys that are special elsewhere", text("__proto__: x\nselect: y\n"), A_ROW),
    ("5000 keys", text("".join(f"key{number}: x\n" for number in range(5000))), A_ROW),
    ("a required key without a value", text(metricName=" "), "missing-key"),
    # Times and statuses.
    ("a time without a zone", text(timestamp="2026-11-20T12:00:00"), A_ROW),
    ("a time in 2039", text(timestamp="2039-01-01T00:00:00Z"), "in-the-future"),
    ("a time in three days", text(timestamp=in_days(3)), "in-the-future"),
    ("a time two years ago", text(timestamp=in_days(-730)), A_ROW),
    ("a time eleven years ago", text(timestamp=in_days(-4018)), "too-old"),
    ("a status in lower case", text(metricStatus="warning"), A_ROW),
    # Performance data is stored as text, valid or not.
    ("performance data with quotes", text(performanceData="'it''s'=1s;;;"), A_ROW),
    ("performance data with an equals sign", text(performanceData="'a=b'=1s"), A_ROW),
    ("performance data with comma decimals", text(performanceData="time=1,5s"), A_ROW),
    (
        "200 performance data",
        text(performanceData=" ".join(f"m{n}={n}s" for n in range(200))),
        A_ROW,
    ),
    # Sizes.
    ("a body of 10 MB", text(detailsData="x" * 10 * MIB), "too-large"),
    ("10 001 records", b"hostName: a\nEOT\n" * 10_001, "too-many-records"),
    ("10 001 flavours", text(serviceFlavour=",".join(map(str, range(10_001)))), "too-many-records"),
    ("a packed body", gzip.compress(b"a" * 50 * MIB), "no-key"),
    # Hosts.
    ("a host with a final dot", text(hostName="ce01.example.org."), A_ROW),
    ("a host in punycode", text(hostName="xn--bcher-kva.example"), A_ROW),
)
JSON_INPUTS: tuple[tuple[str, bytes, str], ...] = (
    ("an empty body of JSON", b"", "empty"),
    ("an array without a record", b"[]", "empty"),
    ("UTF-16 as JSON", as_json().decode().encode("utf-16"), "not-json"),
    ("Latin-1 in JSON", b'{"hostName": "caf\xe9"}', "not-json"),
    ("a NUL in JSON", as_json(summaryData="a\0b"), "nul-byte"),
    ("a lone surrogate", as_json(voName="\ud800"), "bad-text"),
    ("text instead of JSON", b"hostName: ce01", "not-json"),
    ("JSON cut in the middle", as_json()[:-20], "not-json"),
    ("two JSON documents", as_json() + as_json(), "not-json"),
    ("bytes after the JSON", as_json() + b"\0", "not-json"),
    ("a repeated key in JSON", b'{"a": "1", "A": "2"}', "duplicate-key"),
    ("a JSON number alone", b"42", "not-json"),
    ("an array of a number", b"[1]", "not-json"),
    ("a nested value", as_json(voName=["ops"]), "nested"),
    ("JSON of depth 100 000", b"[" * 100_000 + b"]" * 100_000, "not-json"),
    ("an object of depth 100 000", b'{"a":' * 100_000, "not-json"),
)
CLASSES = {
    "weatherReport": "unknown-class",
    'metricOutput"; DROP TABLE host; --': "unknown-class",
    "..": "unknown-class",
    "m" * 10_000: "unknown-class",
    "metric_result": "unknown-class",
    "metric\u043eutput": "unknown-class",
    "METRICoutput": A_ROW,
}
HEADERS = {
    "samFormat=gherkin": "unknown-format",
    "samRename=a=b=c": "bad-rename",
    "recordCount=many": A_ROW,
}
NUMBERS = ("many", "1e400", "NaN", "Infinity", str(2**70), "1_000", "\u0663", "+5", "-1")
LITERALS = {
    **dict.fromkeys(("1e400", str(2**70), "3.5"), "bad-weight"),
    **dict.fromkeys(("NaN", "Infinity", "-Infinity", "1_000", "+5", "0x10"), "not-json"),
}
TIMES = (
    *("now", "infinity", "2026-11-20T24:00:00Z", "2026-02-30T00:00:00Z"),
    *("2026-12-31T23:59:60Z", "10000-01-01T00:00:00Z", "1763640000000", "20/11/2026 12:00"),
    *("11-20-2026 12:00:00", "2026-11-20", "\u0662\u0660\u0662\u0666-11-20T12:00:00Z"),
)
STATUSES = ("FINE", "7", "-1", "OK!", "\uff2f\uff2b", "DOWNTIME")
HOSTS = (
    *("x" * 256, "<script>alert(1)</script>", "=cmd()", "ce01\u202e.example.org"),
    *("b\xfccher.example", "ce01 example.org", "'; DROP TABLE host; --"),
)


def _inputs() -> Iterator[Input]:
    for item in TEXT_INPUTS:
        yield Input(*item)
    for item in JSON_INPUTS:
        yield Input(*item, content_type=JSON)
    for key in ("hostName", "metricName", "metricStatus", "timestamp", "serviceFlavour"):
        yield Input(f"no {key}", without(key), "missing-key")
    for name, values, reason in (
        *(("timestamp", TIMES, "bad-time"), ("metricStatus", STATUSES, "bad-status")),
        ("hostName", HOSTS, "bad-host"),
    ):
        for value in values:
            yield Input(f"the {name} {value[:30]}", text(**{name: value}), reason)
    for name, reason in CLASSES.items():
        yield Input(f"the class {name[:30]}", text(), reason, name)
    for header, reason in HEADERS.items():
        name, _, value = header.partition("=")
        yield Input(f"the header {header}", text(), reason, headers={name: value})
    for number in NUMBERS:
        yield Input(f"the weight {number}", group(weight=number), "bad-weight", "siteGroup", JSON)
    for literal, reason in LITERALS.items():
        body = group(weight="W").replace(b'"W"', literal.encode())
        yield Input(f"the literal {literal}", body, reason, "siteGroup", JSON)


INPUTS = tuple(_inputs())
