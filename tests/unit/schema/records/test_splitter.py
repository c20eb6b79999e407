"""A long file is cut into its records, wherever its blocks end."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.input_file import InputFile
from sam_pipeline.schema.records.splitter import Position, Splitter


@pytest.fixture(params=[1, 7, 100, 1000, 10**6])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of bytes read at a time."""
    monkeypatch.setattr("sam_pipeline.schema.records.splitter.BLOCK_BYTES", request.param)
    return int(request.param)


def raws(directory: Path, body: bytes) -> list[bytes]:
    (directory / "records").write_bytes(body)
    with InputFile(str(directory / "records")) as file:
        splitter = Splitter(file, METRIC_OUTPUT.name, METRIC_OUTPUT.keys, Position())
        return [record.raw for record in splitter]


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
def test_a_broken_object_ends_where_the_next_begins(tmp_path: Path) -> None:
    assert {body: raws(tmp_path, body) for body in BROKEN} == BROKEN


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
    path = tmp_path_factory.mktemp("odd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sam_pipeline.schema.records.splitter.BLOCK_BYTES", size)
        kept = b"".join(raws(path, body.encode()))

    separators = b" \t\r\n,[]"
    assert kept.translate(None, separators) == body.encode().translate(None, separators)
