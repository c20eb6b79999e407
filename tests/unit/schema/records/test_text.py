"""The record text and the JSON payload: strict writers, tolerant readers, and long files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.input_file import InputFile, Position, Splitter
from sam_pipeline.schema.records.json_form import MAX_DEPTH, MIN_VALUES, read_json, write_json
from sam_pipeline.schema.records.text import BadRecord, ReadRecord, read_wlcg, write_wlcg
from tests.support.builders import metric_result


def read(body: bytes | str, **options: Any) -> list[ReadRecord | BadRecord]:
    body = body.encode() if isinstance(body, str) else body
    return list(read_wlcg(body, message_class=METRIC_OUTPUT, **options))


def fields_of(body: bytes | str, **options: Any) -> list[dict[str, str]]:
    return [cast(ReadRecord, record).fields for record in read(body, **options)]


def reasons_of(body: bytes, **options: Any) -> list[str]:
    return [record.reason for record in read(body, **options) if isinstance(record, BadRecord)]


def test_a_long_summary_is_cut_and_repeated_in_full_in_the_details() -> None:
    summary = "x" * 300

    [record] = fields_of(write_wlcg(metric_result(summaryData=summary, detailsData="more")))
    [ending] = fields_of(write_wlcg(metric_result(detailsData="one\nEOT\nhostName: two")))

    assert record["summaryData"] == "x" * 255
    assert record["detailsData"] == f"{summary}\nmore"
    assert ending["detailsData"] == "one\n EOT\nhostName: two"  # a line that would end it


VARIANTS = (
    "hostName: a\r\nmetricName: b: c\r\nEOT\r\n",
    "\ufeffhostName: a\nmetricName: b: c\nEOT\n",
    "hostName:a\nmetricName:  \t b: c\nEOT",
    "\n\nhostName: a\n\nmetricName: b: c\nEOT\n\n",
    "  hostName: a \nMETRICNAME: b: c\nEOT \n",
)


def test_the_reader_accepts_variants_of_known_writers() -> None:
    for body in VARIANTS:
        assert fields_of(body) == [{"hostName": "a", "metricName": "b: c"}]


def test_an_eot_inside_details_ends_the_record_only_before_a_known_key() -> None:
    body = "hostName: a\ndetailsData: x\nEOT\nnot a key: but text\nEOT\n\nmetricName: b\nEOT\n"

    first, second = fields_of(body)

    assert first["detailsData"] == "x\nEOT\nnot a key: but text"
    assert second == {"metricName": "b"}
    own = "uuid: 1\ndetailsData: x\nEOT\nuuid: 2\nEOT\n"  # of a custom class
    assert (len(fields_of(own)), len(fields_of(own, columns=["UUID"]))) == (1, 2)


def test_invalid_utf8_is_replaced_and_flagged() -> None:
    body = b"hostName: a\nsummaryData: caf\xe9\nEOT\n"

    [record] = read_wlcg(body)

    assert isinstance(record, ReadRecord)
    assert record.fields["summaryData"] == "caf\ufffd"
    assert record.notes == ("invalid UTF-8 replaced",)
    assert record.raw == body


BAD = {
    "duplicate-key": b"hostName: a\nHOSTNAME: b\nEOT\n",
    "no-key": b"hostName: a\nno key here\nEOT\n",
    "nul-byte": b"hostName: a\0b\nEOT\n",
}


def test_a_bad_record_does_not_affect_its_neighbours() -> None:
    valid = b"hostName: a\nEOT\n"
    for nothing in (b"", b"  \n\n", b"EOT\n", b"\r\nEOT\r\n"):
        assert reasons_of(nothing) == ["empty"]
    for reason, bad in BAD.items():
        before, invalid, after = read_wlcg(valid + bad + valid)
        assert isinstance(before, ReadRecord) and isinstance(after, ReadRecord)
        assert isinstance(invalid, BadRecord)
        assert (invalid.reason, invalid.raw) == (reason, bad)


def test_a_missing_final_eot_is_accepted_only_where_nothing_can_be_lost() -> None:
    record = write_wlcg(metric_result()).removesuffix("EOT\n").encode()
    with_details = record + b"detailsData: maybe more\n"

    assert reasons_of(record) == reasons_of(with_details, record_count=1) == []
    for cut in (record.rstrip(b"\n"), b"hostName: a\n", with_details):
        assert reasons_of(cut) == ["truncated"]
    assert reasons_of(with_details, record_count=2) == ["truncated"]


def test_an_object_is_one_record_of_texts_and_an_array_many() -> None:
    commas = '\\",' * 2 * MIN_VALUES  # in a text they are not values
    [record] = read_json(b'{"weight": 1.50, "big": 36893488147419103232, "up": true, "x": null}')
    [long] = read_json(write_json([{"hostName": commas}]).encode(), max_records=1)
    first, invalid, last = read_json(b'[{"a": "1"}, {"a": [1]}, {"a": "3"}]')

    assert isinstance(record, ReadRecord) and isinstance(long, ReadRecord)
    assert record.fields == {"weight": "1.50", "big": "36893488147419103232", "up": "true"}
    assert long.fields == {"hostName": commas}
    # A bad object keeps its text and does not affect the others.
    assert isinstance(first, ReadRecord) and isinstance(last, ReadRecord)
    assert isinstance(invalid, BadRecord) and "item 2" in invalid.text
    assert invalid.raw == b'{"a": ["1"]}'


NOT_JSON = (b"hostName: a", b'"x"', b'{"a": NaN}', b'{"a": 1} {"a": 2}', b"\xff", b"[" * 99_999)
BAD_JSON = {
    **dict.fromkeys((b"", b"[]", b"{}"), "empty"),
    **dict.fromkeys(NOT_JSON, "not-json"),
    b'{"a": {"b": 1}}': "nested",
    b'{"a": 1, "A": 2}': "duplicate-key",
    b'{"a": "\\u0000"}': "nul-byte",
    b'{"a": "\\ud800"}': "bad-text",
}


def test_bad_json_is_one_bad_record() -> None:
    for body, reason in BAD_JSON.items():
        [record] = read_json(body)
        assert isinstance(record, BadRecord)
        assert (record.reason, body) == (reason, body)


@pytest.mark.parametrize("item", ["{}", "12", "[]", '"ab"', '{"a": "\\\\"}', '"\\","'])
def test_values_are_counted_before_they_take_memory(item: str) -> None:
    def body(count: int) -> bytes:
        return f"[[{','.join([item] * count)}]]".encode()

    with pytest.raises(MessageRefused, match="more than 10000 values") as refusal:
        read_json(body(MIN_VALUES + 2), max_records=1)

    assert refusal.value.reason == "too-many-records"
    assert read_json(body(MIN_VALUES), max_records=1)
    assert read_json(body(MIN_VALUES + 2), max_records=MIN_VALUES)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_an_item_that_is_nested_too_deeply_makes_the_body_one_bad_record() -> None:
    for levels in (MAX_DEPTH + 1, 300, 500, 980, 5000):
        body = f'[{{"a": "1"}}, {nested(levels)}, {nested(levels)}]'.encode()
        [record] = read_json(body)
        assert isinstance(record, BadRecord)
        assert (record.reason, record.raw) == ("not-json", body)
    good, deep = read_json(f'[{{"a": "1"}}, {nested(MAX_DEPTH)}]'.encode())
    assert isinstance(good, ReadRecord) and isinstance(deep, BadRecord)
    assert deep.raw == nested(MAX_DEPTH).encode()


def raws(directory: Path, body: bytes) -> list[bytes]:
    (directory / "records").write_bytes(body)
    with InputFile(str(directory / "records")) as file:
        splitter = Splitter(file, METRIC_OUTPUT.name, METRIC_OUTPUT.keys, Position())
        return [record.raw for record in splitter]


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
        patch.setattr("sam_pipeline.schema.records.input_file.BLOCK_BYTES", size)
        kept = b"".join(raws(path, body.encode()))

    separators = b" \t\r\n,[]"
    assert kept.translate(None, separators) == body.encode().translate(None, separators)
