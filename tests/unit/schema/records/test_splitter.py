"""A long file is cut into its records, wherever its blocks end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.input_file import InputFile
from sam_pipeline.schema.records.splitter import Position, RawRecord, Splitter
from sam_pipeline.schema.records.text import read_wlcg, write_wlcg
from tests.support.builders import metric_result

RECORDS = [
    metric_result(hostName=f"ce{number}.example.org", detailsData='a\nEOT b\n\nEOT\nc {["\\')
    for number in range(20)
]
TEXT = "".join(map(write_wlcg, RECORDS)).encode()
ARRAY = json.dumps(RECORDS).encode()
LINES = "".join(f"{json.dumps(record)}\n" for record in RECORDS).encode()
PRETTY = json.dumps(RECORDS, indent=2).encode()


@pytest.fixture(params=[1, 7, 100, 1000, 10**6])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of bytes read at a time."""
    monkeypatch.setattr("sam_pipeline.schema.records.splitter.BLOCK_BYTES", request.param)
    return int(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records"


def read(path: Path, body: bytes, *start: Position) -> tuple[list[RawRecord], Splitter]:
    path.write_bytes(body)
    with InputFile(str(path)) as file:
        position = start[0] if start else Position()
        splitter = Splitter(file, METRIC_OUTPUT.name, METRIC_OUTPUT.keys, position)
        return list(splitter), splitter


def raws(path: Path, body: bytes) -> list[bytes]:
    return [record.raw for record in read(path, body)[0]]


@pytest.mark.parametrize(
    "body", [TEXT, ARRAY, LINES, PRETTY], ids=["text", "array", "lines", "pretty"]
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_reading_can_start_after_any_record(
    body: bytes, packed: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.schema.records.splitter.BLOCK_BYTES", 1000)
    body = gzip.compress(body) if packed else body
    whole, _ = read(path, body)

    for number, record in enumerate(whole, 1):
        rest, splitter = read(path, body, record.end)
        assert rest == whole[number:]
        assert splitter.damage is None


BROKEN = {
    b'{"a": "x\n{"b": 1}\n': [b'{"a": "x', b'{"b": 1}'],
    b'{"a": 1\n{"b": 1}\n': [b'{"a": 1', b'{"b": 1}'],
    b'{"a": {"n": 1}}\n{"b": 1}': [b'{"a": {"n": 1}}', b'{"b": 1}'],
    b'[{"a": [1, "]"]}, {"b": 1}]': [b'{"a": [1, "]"]}', b'{"b": 1}'],
    b'{"a": 1}\ngarbage "{\n{"b": 1}': [b'{"a": 1}', b'garbage "', b"{", b'{"b": 1}'],
    b'[{"a": "\\"}{"}, {"b": 1}]\n[{"c": 1}]': [b'{"a": "\\"}{"}', b'{"b": 1}', b'{"c": 1}'],
    **{nothing: [] for nothing in (b"[]", b"", b"\n \r\n")},
    b'[{"a": 1}, 7, {"b": 1}]': [b'{"a": 1}', b"7, ", b'{"b": 1}'],
}


@pytest.mark.usefixtures("block")
def test_a_broken_object_ends_where_the_next_begins(path: Path) -> None:
    assert {body: raws(path, body) for body in BROKEN} == BROKEN


@pytest.mark.usefixtures("block")
def test_text_and_json_are_cut_as_the_reader_cuts_them(path: Path) -> None:
    for text in (TEXT, b"\n\nhostName: a\nmetricName: m\nEOT\n\nhostName: b\nEOT\n"):
        assert [(record.raw, record.line) for record in read(path, text)[0]] == [
            (record.raw.lstrip(), record.line)
            for record in read_wlcg(text, message_class=METRIC_OUTPUT)
        ]
    for body in (ARRAY, LINES, PRETTY):
        assert [json.loads(raw) for raw in raws(path, body)] == RECORDS


def test_several_gzips_are_one_file_and_a_cut_one_is_reported(path: Path) -> None:
    assert len(raws(path, gzip.compress(TEXT) * 2)) == 2 * len(RECORDS)
    assert raws(path, b'\xef\xbb\xbf{"a": 1}') == [b'{"a": 1}']  # without the byte order mark
    records, splitter = read(path, ARRAY[:-1])
    assert len(records) == len(RECORDS) and "not closed" in (splitter.damage or "")
    packed = gzip.compress(TEXT * 50)
    records, splitter = read(path, packed[: len(packed) // 2])
    assert 0 < len(records) < len(RECORDS) * 50
    assert {record.raw for record in records} <= {write_wlcg(known).encode() for known in RECORDS}
    assert "gzip" in (splitter.damage or "")


def test_a_record_without_end_stops_reading(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sam_pipeline.schema.records.splitter.BLOCK_BYTES", 1000)
    monkeypatch.setattr("sam_pipeline.schema.records.splitter.LONGEST_RECORD", 4000)
    body = TEXT[: TEXT.index(b"\nEOT\nhost") + 5] + b"detailsData: x\n" + b"all the same\n" * 1000

    records, splitter = read(path, body)

    assert len(records) == 1
    assert "no line EOT in 4000 bytes" in (splitter.damage or "")


@settings(deadline=None)
@given(
    body=st.lists(st.sampled_from([*'{}[]"\\,\n :a\r7', '{"a": "b"}']), max_size=40).map(
        lambda parts: "{" + "".join(parts)
    ),
    size=st.integers(min_value=1, max_value=50),
)
def test_malformed_json_loses_no_byte_except_separators(
    body: str, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("odd") / "records"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sam_pipeline.schema.records.splitter.BLOCK_BYTES", size)
        kept = b"".join(raws(path, body.encode()))

    separators = b" \t\r\n,[]"
    assert kept.translate(None, separators) == body.encode().translate(None, separators)
