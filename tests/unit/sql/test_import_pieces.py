"""A long file becomes its records, whatever the block in which one ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.text import read_wlcg, write_wlcg
from sam_pipeline.sql.imports.input_file import InputFile
from sam_pipeline.sql.imports.splitter import Piece, Pieces, Place
from tests.support.builders import metric_result

RECORDS = [
    metric_result(hostName=f"ce{number}.example.org", detailsData='a\nEOT b\n\nEOT\nc {["\\')
    for number in range(20)
]
TEXT = "".join(map(write_wlcg, RECORDS)).encode()
ARRAY = json.dumps(RECORDS).encode()
LINES = "".join(f"{json.dumps(record)}\n" for record in RECORDS).encode()
PRETTY = json.dumps(RECORDS, indent=2).encode()
JSON_FORMS = {"array": ARRAY, "lines": LINES, "pretty": PRETTY}


@pytest.fixture(params=[1, 7, 100, 1000, 10**6])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes are read at a time."""
    monkeypatch.setattr("sam_pipeline.sql.imports.splitter.BLOCK_BYTES", request.param)
    return int(request.param)


def read(path: Path, place: Place = Place()) -> tuple[list[Piece], Pieces]:  # noqa: B008
    with InputFile(str(path)) as file:
        pieces = Pieces(file, METRIC_OUTPUT.name, METRIC_OUTPUT.keys, place)
        return list(pieces), pieces


def file_of(tmp_path: Path, body: bytes) -> Path:
    path = tmp_path / "records"
    path.write_bytes(body)
    return path


def raws(body: bytes, tmp_path: Path) -> list[bytes]:
    pieces, _ = read(file_of(tmp_path, body))
    return [piece.raw for piece in pieces]


@pytest.mark.usefixtures("block")
def test_text_is_cut_as_the_reader_cuts_it(tmp_path: Path) -> None:
    pieces, _ = read(file_of(tmp_path, TEXT))

    assert [(piece.raw, piece.line) for piece in pieces] == [
        (record.raw, record.line) for record in read_wlcg(TEXT, message_class=METRIC_OUTPUT)
    ]


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("form", JSON_FORMS)
def test_every_form_of_json_gives_the_same_objects(form: str, tmp_path: Path) -> None:
    found = raws(JSON_FORMS[form], tmp_path)

    assert [json.loads(raw) for raw in found] == RECORDS


@pytest.mark.parametrize("body", [TEXT, ARRAY, LINES, PRETTY], ids=["text", *JSON_FORMS])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_reading_goes_on_behind_any_record(
    body: bytes, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.splitter.BLOCK_BYTES", 1000)
    path = file_of(tmp_path, gzip.compress(body) if packed else body)
    whole, _ = read(path)

    for number, piece in enumerate(whole, 1):
        rest, pieces = read(path, piece.end)
        assert rest == whole[number:]
        assert pieces.damage is None


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": "x\n{"b": 1}\n', [b'{"a": "x', b'{"b": 1}']),
        (b'{"a": 1\n{"b": 1}\n', [b'{"a": 1', b'{"b": 1}']),
        (b'{"a": {"n": 1}}\n{"b": 1}', [b'{"a": {"n": 1}}', b'{"b": 1}']),
        (b'[{"a": [1, "]"]}, {"b": 1}]', [b'{"a": [1, "]"]}', b'{"b": 1}']),
        (b'{"a": 1}\ngarbage "{\n{"b": 1}', [b'{"a": 1}', b'garbage "', b"{", b'{"b": 1}']),
        (b'[{"a": "\\"}{"}, {"b": 1}]\n[{"c": 1}]', [b'{"a": "\\"}{"}', b'{"b": 1}', b'{"c": 1}']),
        (b"[]", []),
        (b'[{"a": 1}, 7, {"b": 1}]', [b'{"a": 1}', b"7, ", b'{"b": 1}']),
    ],
)
def test_a_broken_object_ends_where_the_next_begins(
    body: bytes, expected: list[bytes], tmp_path: Path
) -> None:
    assert raws(body, tmp_path) == expected


def test_a_byte_order_mark_is_no_part_of_an_object(tmp_path: Path) -> None:
    assert raws(b'\xef\xbb\xbf{"a": 1}', tmp_path) == [b'{"a": 1}']


@pytest.mark.parametrize("body", [b"", b"\n \r\n", b"[]"])
def test_nothing_is_no_record(body: bytes, tmp_path: Path) -> None:
    assert raws(body, tmp_path) == []


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    body = b"\n\nhostName: a\nmetricName: m\nEOT\n\nhostName: b\nEOT\n"

    pieces, _ = read(file_of(tmp_path, body))

    assert [(piece.line, piece.end.record) for piece in pieces] == [(3, 1), (7, 2)]


def test_a_cut_gzip_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT * 50)

    pieces, found = read(file_of(tmp_path, packed[: len(packed) // 2]))

    assert 0 < len(pieces) < len(RECORDS) * 50
    assert {piece.raw for piece in pieces} <= {write_wlcg(record).encode() for record in RECORDS}
    assert "gzip" in (found.damage or "")


def test_several_gzips_in_one_file_are_read_as_one(tmp_path: Path) -> None:
    assert len(raws(gzip.compress(TEXT) + gzip.compress(TEXT), tmp_path)) == 2 * len(RECORDS)


def test_an_array_that_is_not_closed_is_told(tmp_path: Path) -> None:
    pieces, found = read(file_of(tmp_path, ARRAY[:-1]))

    assert len(pieces) == len(RECORDS)
    assert "not closed" in (found.damage or "")


def test_a_file_without_records_needs_no_more_memory_than_a_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.splitter.BLOCK_BYTES", 1000)
    monkeypatch.setattr("sam_pipeline.sql.imports.splitter.LONGEST_RECORD", 4000)
    body = TEXT[: TEXT.index(b"\nEOT\nhost") + 5] + b"detailsData: x\n" + b"all the same\n" * 1000

    pieces, found = read(file_of(tmp_path, body))

    assert len(pieces) == 1
    assert "no line EOT in 4000 bytes" in (found.damage or "")


@settings(deadline=None)
@given(
    body=st.lists(
        st.sampled_from(
            ["{", "}", "[", "]", '"', "\\", ",", "\n", " ", ":", "a", '{"a": "b"}', "\r", "7"]
        ),
        max_size=40,
    ).map(lambda parts: "{" + "".join(parts)),
    size=st.integers(min_value=1, max_value=50),
)
def test_of_the_oddest_json_no_byte_that_counts_is_lost(
    body: str, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("odd") / "records"
    path.write_bytes(body.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sam_pipeline.sql.imports.splitter.BLOCK_BYTES", size)
        pieces, _ = read(path)

    kept = b"".join(piece.raw for piece in pieces)
    assert _solid(kept) == _solid(body.encode())


def _solid(body: bytes) -> bytes:
    """Without what may stand between two objects."""
    return body.translate(None, b" \t\r\n,[]")
