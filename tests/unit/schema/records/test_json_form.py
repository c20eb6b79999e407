"""The JSON payload."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.records.json_form import MAX_DEPTH, MIN_VALUES, read_json, write_json
from sam_pipeline.schema.records.text import BadRecord, ReadRecord
from tests.support.builders import metric_result


def test_an_object_is_one_record_of_texts_and_an_array_many() -> None:
    [record] = read_json(b'{"weight": 1.50, "big": 36893488147419103232, "up": true, "x": null}')

    assert isinstance(record, ReadRecord)
    assert record.fields == {"weight": "1.50", "big": "36893488147419103232", "up": "true"}
    assert len(read_json(write_json([metric_result(), metric_result()]).encode())) == 2


BAD = {
    "empty": (b"", b"[]", b"{}"),
    "not-json": (
        b"hostName: a",
        b'"x"',
        b'{"a": NaN}',
        b'{"a": 1} {"a": 2}',
        b"\xff",
        b"[" * 99999,
    ),
    "nested": (b'{"a": {"b": 1}}',),
    "duplicate-key": (b'{"a": 1, "A": 2}',),
    "nul-byte": (b'{"a": "\\u0000"}',),
    "bad-text": (b'{"a": "\\ud800"}',),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_json_is_one_bad_record(reason: str) -> None:
    for body in BAD[reason]:
        [record] = read_json(body)
        assert isinstance(record, BadRecord)
        assert record.reason == reason


def test_a_bad_object_keeps_its_text_and_does_not_affect_the_others() -> None:
    first, invalid, last = read_json(b'[{"a": "1"}, {"a": [1]}, {"a": "3"}]')

    assert isinstance(first, ReadRecord) and isinstance(last, ReadRecord)
    assert isinstance(invalid, BadRecord)
    assert invalid.raw == b'{"a": ["1"]}'
    assert "item 2" in invalid.text


@pytest.mark.parametrize("item", ["{}", "12", "[]", '"ab"', '{"a": "\\\\"}', '"\\","'])
def test_values_are_counted_before_they_take_memory(item: str) -> None:
    def body(count: int) -> bytes:
        return f"[[{','.join([item] * count)}]]".encode()

    with pytest.raises(MessageRefused, match="more than 10000 values") as refusal:
        read_json(body(MIN_VALUES + 2), max_records=1)

    assert refusal.value.reason == "too-many-records"
    assert read_json(body(MIN_VALUES), max_records=1)
    assert read_json(body(MIN_VALUES + 2), max_records=MIN_VALUES)


def test_commas_in_texts_are_not_values() -> None:
    text = '\\",' * 2 * MIN_VALUES

    [record] = read_json(write_json([{"hostName": text}]).encode(), max_records=1)

    assert isinstance(record, ReadRecord)
    assert record.fields == {"hostName": text}


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
