"""The parsers of foreign bytes, with checks that they do only what they document."""

from __future__ import annotations

import base64
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sam_pipeline.consumer.sources.stomp.session import refused
from sam_pipeline.publisher.probe.passive import Lines
from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.messages.refused import KEPT_BYTES, refusal_of
from sam_pipeline.schema.net.stomp.frame import KEPT_NAMES, Fault, Frame, FrameReader, encode
from sam_pipeline.schema.records.classes import BUILT_IN, METRIC_OUTPUT
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.records.passive import (
    CheckResult,
    Naming,
    UnreadableResults,
    record_of_result,
    result_of_command,
    results_in_json,
    results_in_xml,
)
from sam_pipeline.schema.records.reasons import REASONS
from sam_pipeline.schema.records.text import Record, write_wlcg
from sam_pipeline.schema.spool.element import parse, serialise
from tests.fuzz import door
from tests.fuzz.mutate import mutated
from tests.support.builders import NOW, metric_message, metric_result

MAX_HEAD_BYTES = 4096
MAX_BODY_BYTES = 16_384
COLUMNS = {name: built_in.keys for name, built_in in BUILT_IN.items()}
COLUMNS["own"] = ("colour", "startTime")

RECORDS = (
    metric_result(),
    metric_result(serviceFlavour="CE,SE", detailsData="one\ntwo\n EOT\nthree", voFqan="/ops"),
    metric_result(serviceURI="https://ce01.example.org:8443/x", performanceData="t=1s;2;3"),
    {"siteName": "S", "groupName": "G", "groupType": "T", "validFrom": "1767225600", "weight": "3"},
    {"colour": "red", "startTime": "2026-11-20 12:00:00+01:00"},
)
NSTREAM = (
    b'{"metric": "org.sam.M", "host": "ce01", "status": "OK", "tags": "CE ops", '
    b'"timestamp": "2026-11-20T12:00:00Z", "details": "a\\\\nb", "perfdata": ["t=1", {"a": 2}]}'
)
TEXT_TOKENS = (
    *(b"EOT", b"EOT\n", b"\nEOT\r\n", b": ", b":", b"\n", b"\r\n", b"\r", b"\0", b"\xff", b","),
    *(b" ", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xc2\xa0", b"\x1f"),
    *(b"detailsData: ", b"hostName: ", b"serviceURI: ", b"timestamp: ", b"metricStatus: "),
    *(b"serviceType: x\n", b"2026-02-30T00:00:00Z", b"99999999999", b"+25:00", b".5", b"now"),
    *(b"[::1]", b"://", b"@", b"0", b"3", b"ok", b"UNKNOWN", b"4", b"weight: 2147483648\n", b"%s"),
    *(b"'", b"\\", b"EOT: x\n"),
)
JSON_TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"true", b"NaN", b"-Infinity", b"1e400"),
    *(b"\\u0000", b"\\ud800", b"\\u", b"\\", b"\0", b"\xff", b"\xef\xbb\xbf", b"-0", b"1_0"),
    *(b"[[[", b'"hostName": ', b'"timestamp": 1795176000, ', b'{"a":', b'"detailsData": "x", '),
    b'"tags": ',
)
FRAME_TOKENS = (
    *(b"\0", b"\n", b"\r\n", b"\n\n", b"\r", b":", b"\\c", b"\\n", b"\\x", b"\\", b"\xff"),
    *(b"ERROR\n", b"content-length:5\n", b"content-length:-1\n", b"content-length:999999999999\n"),
    *(b"MESSAGE\n", b"content-length:\xd9\xa3\n", b"RECEIPT\nreceipt-id:a\n\n\0", b"CONNECTED\n"),
    b"receipt-id:",
)
ELEMENT_TOKENS = (
    *JSON_TOKENS,
    *(b'"encoding": "base64", ', b'"encoding": "base64+zlib", ', b'"encoding": "zlib", ', b"utf8+"),
    *(b'"header": ', b'"body": ', b'"text": ', b"eJwDAAAAAAE=", b"===="),
    b'"samFormat": "nstream", ',
)
PASSIVE = (
    (
        b"[1795176000] PROCESS_SERVICE_CHECK_RESULT;ce01;Ping;1;SLOW; 3 s|rtt=3s;1;5\\nmore\n"
        b"[1795176000] PROCESS_HOST_CHECK_RESULT;ce01;1;DOWN\n"
    ),
    (
        b"<?xml version='1.0'?><checkresults><checkresult type='service'><hostname>ce01</hostname>"
        b"<servicename>Ping</servicename><state>0</state><output>OK &amp; x</output></checkresult>"
        b"</checkresults>"
    ),
    b'{"checkresults": [{"checkresult": {"type": "host"}, "hostname": "ce01", "state": 0}]}',
)
PASSIVE_TOKENS = (
    *JSON_TOKENS,
    *(b";", b"\n", b"[", b"] ", b"PROCESS_", b"|", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"<"),
    *(b"/>", b"<![CDATA[", b"]]>", b"<?xml version='1.0' encoding='utf-16'?>", b"<!--"),
)
HEADER_TOKENS = ("", " ", "\0", "\ud800", "x", "1", "9" * 30, "a=b", "%00=%ff", ",", "nstream", "=")
HEADERS = (
    *("messageClass", "recordCount", "content-type", "samFormat", "samRename", "nagios_host"),
    *("nagiosHost", "samMessageId", "samMessageid"),
)


@dataclass(frozen=True)
class Target:
    """`read` raises AssertionError or an undocumented error if the parser has a defect."""

    seeds: Sequence[bytes]
    tokens: Sequence[bytes]
    read: Callable[[bytes, random.Random], None]

    def run(self, chance: random.Random) -> None:
        """Read a mutated input."""
        self.read(mutated(self.seeds, self.tokens, chance), chance)


def _reading(headers: Mapping[str, str]) -> Callable[[bytes, random.Random], None]:
    return lambda body, chance: _decode(Message(_headers(chance, headers), body))


def _read_element(content: bytes, chance: random.Random) -> None:
    try:
        message = parse(content)
    except ValueError:
        return
    assert serialise(message)
    _decode(message)


def _read_frames(data: bytes, chance: random.Random) -> None:
    reader = FrameReader(MAX_HEAD_BYTES, MAX_BODY_BYTES)
    for frame in _fed(reader, data, chance):
        assert len(frame.body) <= MAX_BODY_BYTES
        assert sum(map(len, frame.headers)) <= MAX_HEAD_BYTES
        assert isinstance(frame, Frame) or (frame.is_last and frame.problem)


def _read_frames_leniently(data: bytes, chance: random.Random) -> None:
    reader = FrameReader(max_body_bytes=MAX_BODY_BYTES, lenient=True)
    if chance.randrange(2):
        reader.be_wary()
    if not chance.randrange(4):
        data = data.replace(b"\n\n", b"\n" + b"long:" + b"x" * 70_000 + b"\n\n", 1)
    for frame in _fed(reader, data, chance):
        assert len(frame.body) <= KEPT_BYTES
        if isinstance(frame, Frame):
            continue
        assert frame.is_last or frame.command in ("MESSAGE", "ERROR")
        message = refused(Message(frame.headers, frame.body), frame)
        assert refusal_of(message), "a fault without a reason"
        assert len(message.body) <= KEPT_BYTES
        if "of them are kept" in frame.problem:
            assert frame.headers.keys() <= KEPT_NAMES


def _fed(reader: FrameReader, data: bytes, chance: random.Random) -> Iterator[Frame | Fault]:
    """What the reader makes of the data, in pieces of any size."""
    while data:
        size = chance.randint(1, len(data))
        yield from reader.feed(data[:size])
        data = data[size:]


def _headers(chance: random.Random, required: Mapping[str, str]) -> dict[str, str]:
    """Headers with a random class, sometimes with an invalid value."""
    headers = {"messageClass": chance.choice(["metricOutput"] * 6 + list(COLUMNS)), **required}
    if not chance.randrange(4):
        count = chance.randint(0, 3)
        value = "".join(chance.choices(HEADER_TOKENS, k=count))
        headers[chance.choice(HEADERS)] = value
    return headers


def _decode(message: Message) -> None:
    columns = COLUMNS.get(message.message_class or "", METRIC_OUTPUT.keys)
    decoded = decode(message, columns, NOW)
    assert decoded.rows or decoded.bad, "neither a row nor a reason"
    assert all(record.reason in REASONS for record in decoded.bad), "an undocumented reason"
    assert message.message_id
    for row in decoded.rows:
        for column, value in row.values.items():
            assert column in columns
            assert value and "\0" not in value, "a database takes no NUL"
            value.encode()  # a lone surrogate raises


def _frames() -> list[bytes]:
    headers = {"destination": "/topic/x", "a\n:b": "c\\d", "content-length": "5"}
    return [
        encode("MESSAGE", headers, b"a\0bcd") + encode("RECEIPT", {"receipt-id": "r-1"}),
        encode("MESSAGE", metric_message().headers, metric_message().body) * 2,
        b"\n\r\nCONNECTED\r\nversion:1.2\r\nheart-beat:0,0\r\n\r\n\0\n",
        encode("ERROR", {"message": "no"}, b"no and no"),
    ]


def _elements() -> list[bytes]:
    body = base64.b64encode(zlib.compress(metric_message().body)).decode()
    packed = json.dumps({"header": {}, "body": body, "encoding": "base64+zlib+utf8"}).encode()
    binary = serialise(new_message("own", "x")._replace(body=b"\xff\xfe"))
    return [serialise(metric_message(record)) for record in RECORDS[:3]] + [packed, binary]


def _read_passive(data: bytes, chance: random.Random) -> None:
    """Each line is one record or refused; a document is read or refused as a whole."""
    cut = chance.randint(0, len(data))
    lines = Lines()
    found = [*lines.cut(data[:cut]), *lines.cut(data[cut:]), *lines.end()]
    assert [line.number for line in found] == list(range(1, len(found) + 1))
    for line in found:
        with suppress(RecordRefused):
            result = result_of_command(line.body.decode("utf-8", "replace"))
            _decode(new_message("metricOutput", write_wlcg(_passive_record(result))))
    for read in (results_in_xml, results_in_json):
        with suppress(UnreadableResults):
            for result in read(data):
                _passive_record(result)


def _passive_record(result: CheckResult) -> Record:
    record = record_of_result(result, Naming("CE"), NOW)
    assert set(record) <= {*METRIC_OUTPUT.keys}
    return record


TARGETS: Mapping[str, Target] = {
    "passive": Target(PASSIVE, PASSIVE_TOKENS, _read_passive),
    "text": Target(
        [write_wlcg(record).encode() for record in RECORDS]
        + ["".join(map(write_wlcg, RECORDS)).encode()],
        TEXT_TOKENS,
        _reading({}),
    ),
    "json": Target(
        [write_json([record]).encode() for record in RECORDS] + [write_json(RECORDS).encode()],
        JSON_TOKENS,
        _reading({"content-type": "application/json"}),
    ),
    "nstream": Target(
        [NSTREAM, b"[" + NSTREAM + b"," + NSTREAM + b"]"],
        JSON_TOKENS,
        _reading({"samFormat": "nstream", "samRename": "colour=voName,when=timestamp"}),
    ),
    "frames": Target(_frames(), FRAME_TOKENS, _read_frames),
    "messages": Target(_frames(), FRAME_TOKENS, _read_frames_leniently),
    "elements": Target(_elements(), ELEMENT_TOKENS, _read_element),
    "requests": Target(door.SEEDS, door.TOKENS, door.read_requests),
}
