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


def _inputs() -> Iterator[Input]:
    # Empty bodies.
    yield Input("an empty body", b"", "empty")
    yield Input("a body of blanks", b"  \n\t \r\n", "empty")
    yield Input("only an end marker", b"EOT\n", "empty")
    yield Input("an empty body of JSON", b"", "empty", content_type=JSON)
    yield Input("an array without a record", b"[]", "empty", content_type=JSON)

    # Other encodings.
    valid = text()
    yield Input("UTF-16 with a byte order mark", valid.decode().encode("utf-16"), "no-key")
    yield Input(
        "UTF-16 as JSON", as_json().decode().encode("utf-16"), "not-json", content_type=JSON
    )
    yield Input("Latin-1 in a summary", text(summaryData="caf\xe9").replace(b"\xc3", b""), A_ROW)
    yield Input("Latin-1 in JSON", b'{"hostName": "caf\xe9"}', "not-json", content_type=JSON)
    yield Input(
        "a lone byte in a host", text(hostName="ce01").replace(b"ce01", b"\xff"), "bad-host"
    )
    yield Input("UTF-8 with a byte order mark", b"\xef\xbb\xbf" + text(), A_ROW)

    # Characters that a database or a reader rejects.
    yield Input("a NUL in a value", text(summaryData="a\0b"), "nul-byte")
    yield Input("a NUL in JSON", as_json(summaryData="a\0b"), "nul-byte", content_type=JSON)
    yield Input("a lone surrogate", as_json(voName="\ud800"), "bad-text", content_type=JSON)
    yield Input("a surrogate in UTF-8", text(summaryData="\ud800"), A_ROW)
    yield Input("a noncharacter", text(summaryData="a\ufffeb"), A_ROW)
    yield Input("a control character in a name", text(siteName="a\x1fb"), "control-character")

    # Malformed text and JSON.
    yield Input("neither keys nor JSON", b"all is well\nEOT\n", "no-key")
    yield Input("a binary body", bytes(range(256)), "no-key")
    yield Input("a record cut in the middle", text()[:60], "truncated")
    yield Input("a repeated key", text("voName: atlas\n"), "duplicate-key")
    yield Input("text instead of JSON", b"hostName: ce01", "not-json", content_type=JSON)
    yield Input("JSON cut in the middle", as_json()[:-20], "not-json", content_type=JSON)
    yield Input("two JSON documents", as_json() + as_json(), "not-json", content_type=JSON)
    yield Input("bytes after the JSON", as_json() + b"\0", "not-json", content_type=JSON)
    yield Input(
        "a repeated key in JSON", b'{"a": "1", "A": "2"}', "duplicate-key", content_type=JSON
    )
    yield Input("a JSON number alone", b"42", "not-json", content_type=JSON)
    yield Input("an array of a number", b"[1]", "not-json", content_type=JSON)
    yield Input("a nested value", as_json(voName=["ops"]), "nested", content_type=JSON)

    # Classes.
    yield Input("an unknown class", text(), "unknown-class", "weatherReport")
    yield Input(
        "a class with quotes", text(), "unknown-class", 'metricOutput"; DROP TABLE host; --'
    )
    yield Input("a class with dots", text(), "unknown-class", "..")
    yield Input("a class of 10 000 letters", text(), "unknown-class", "m" * 10_000)
    yield Input("a class with a look-alike letter", text(), "unknown-class", "metric\u043eutput")
    yield Input("a class in another case", text(), A_ROW, "METRICoutput")
    yield Input("the name of a table as class", text(), "unknown-class", "metric_result")

    # Keys.
    yield Input("an unknown key", text("moonPhase: full\n"), A_ROW)
    yield Input("keys that are special elsewhere", text("__proto__: x\nselect: y\n"), A_ROW)
    many = "".join(f"key{number}: x\n" for number in range(5000))
    yield Input("5000 keys", text(many), A_ROW)
    for key in ("hostName", "metricName", "metricStatus", "timestamp", "serviceFlavour"):
        yield Input(f"no {key}", without(key), "missing-key")
    yield Input("a required key without a value", text(metricName=" "), "missing-key")

    # Numbers, where the class needs one.
    for number in ("many", "1e400", "NaN", "Infinity", str(2**70), "1_000", "\u0663", "+5", "-1"):
        body = group(weight=number)
        yield Input(f"the weight {number}", body, "bad-weight", "siteGroup", JSON)
    for literal in ("1e400", str(2**70), "3.5"):
        body = group(weight="W").replace(b'"W"', literal.encode())
        yield Input(f"the number {literal} as weight", body, "bad-weight", "siteGroup", JSON)
    for literal in ("NaN", "Infinity", "-Infinity", "1_000", "+5", "0x10"):
        body = group(weight="W").replace(b'"W"', literal.encode())
        yield Input(f"the literal {literal}", body, "not-json", "siteGroup", JSON)

    # Times.
    times = (
        *("now", "infinity", "2026-11-20T24:00:00Z", "2026-02-30T00:00:00Z"),
        *("2026-12-31T23:59:60Z", "10000-01-01T00:00:00Z", "1763640000000", "20/11/2026 12:00"),
        *("11-20-2026 12:00:00", "2026-11-20", "\u0662\u0660\u0662\u0666-11-20T12:00:00Z"),
    )
    for time in times:
        yield Input(f"the time {time}", text(timestamp=time), "bad-time")
    yield Input("a time without a zone", text(timestamp="2026-11-20T12:00:00"), A_ROW)
    yield Input("a time in 2039", text(timestamp="2039-01-01T00:00:00Z"), "in-the-future")
    yield Input("a time in three days", text(timestamp=in_days(3)), "in-the-future")
    yield Input("a time two years ago", text(timestamp=in_days(-730)), A_ROW)
    yield Input("a time eleven years ago", text(timestamp=in_days(-4018)), "too-old")

    # Statuses.
    for status in ("FINE", "7", "-1", "OK!", "\uff2f\uff2b", "DOWNTIME"):
        yield Input(f"the status {status}", text(metricStatus=status), "bad-status")
    yield Input("a status in lower case", text(metricStatus="warning"), A_ROW)

    # Performance data is stored as text, valid or not.
    for name, data in (
        ("quotes", "'it''s'=1s;;;"),
        ("an equals sign in its label", "'a=b'=1s"),
        ("comma decimals", "time=1,5s"),
        ("no unit", "time=1"),
        ("200 metrics", " ".join(f"m{number}={number}s" for number in range(200))),
    ):
        yield Input(f"performance data with {name}", text(performanceData=data), A_ROW)

    # Sizes.
    yield Input("a body of 10 MB", text(detailsData="x" * 10 * MIB), "too-large")
    depth = 100_000
    nested = b"[" * depth + b"]" * depth
    yield Input("JSON of depth 100 000", nested, "not-json", content_type=JSON)
    yield Input("an object of depth 100 000", b'{"a":' * depth, "not-json", content_type=JSON)
    yield Input("10 001 records", b"hostName: a\nEOT\n" * 10_001, "too-many-records")
    flavours = ",".join(f"F{number}" for number in range(10_001))
    yield Input("10 001 flavours", text(serviceFlavour=flavours), "too-many-records")
    yield Input("a packed body", gzip.compress(b"a" * 50 * MIB), "no-key")

    # Hosts.
    for host in (
        *("x" * 256, "<script>alert(1)</script>", "=cmd()", "ce01\u202e.example.org"),
        *("b\xfccher.example", "ce01 example.org", "'; DROP TABLE host; --"),
    ):
        yield Input(f"the host {host[:30]}", text(hostName=host), "bad-host")
    yield Input("a host with a final dot", text(hostName="ce01.example.org."), A_ROW)
    yield Input("a host in punycode", text(hostName="xn--bcher-kva.example"), A_ROW)

    # Our own headers.
    yield Input("an unknown format", text(), "unknown-format", headers={"samFormat": "gherkin"})
    yield Input("an invalid rename", text(), "bad-rename", headers={"samRename": "a=b=c"})
    yield Input("a wrong record count", text(), A_ROW, headers={"recordCount": "many"})


INPUTS = tuple(_inputs())
