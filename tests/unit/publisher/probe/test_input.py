"""The input of `send`: text or JSON, and the reasons of refused records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sam_pipeline.publisher.probe import input as records
from sam_pipeline.publisher.probe.input import InputBlock, RefusedRecord, read_blocks, read_records
from sam_pipeline.schema.records.text import Record, write_wlcg
from tests.support.builders import NOW, metric_result


def read(body: str, message_class: str = "metricOutput") -> list[Record | RefusedRecord]:
    return list(read_records(InputBlock("in.txt", body.encode()), message_class, NOW))


def test_text_and_json_give_the_same_records() -> None:
    records = [metric_result(), metric_result(hostName="se02.example.org")]

    from_text = read("".join(map(write_wlcg, records)))
    from_json = read("\ufeff \n" + json.dumps(records))

    assert from_text == from_json
    assert len(from_text) == 2


def test_a_refused_record_is_reported_with_its_line_and_the_others_are_read() -> None:
    valid = write_wlcg(metric_result())
    invalid = write_wlcg(metric_result(metricStatus="FINE"))

    first, refused, last = read(valid + invalid + valid)

    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert isinstance(refused, RefusedRecord)
    assert str(refused).startswith("in.txt:11: record refused, bad-status: ")


def test_a_broken_record_names_its_line_once() -> None:
    (refused,) = read("hostName: a\nthis is no line\nEOT\n")

    problem = "'this is no line' is not a line `key: value`"
    assert str(refused) == f"in.txt:1: record refused, no-key: {problem}"


@pytest.mark.parametrize("body", ["", " \n\n", "EOT\n"])
def test_an_empty_body_is_one_refused_record(body: str) -> None:
    (refused,) = read(body)

    assert isinstance(refused, RefusedRecord)
    assert refused.reason == "empty"


def test_a_record_is_normalised_before_it_is_written() -> None:
    result = metric_result(
        hostName="CE01.Example.Org.", metricStatus="2", timestamp="2026-11-20 13:00:00+01:00"
    )

    (record,) = read(write_wlcg(result))

    assert isinstance(record, dict)
    assert record["hostName"] == "ce01.example.org"
    assert record["metricStatus"] == "CRITICAL"
    assert record["timestamp"] == "2026-11-20T12:00:00Z"


def test_a_list_of_flavours_is_one_record_each() -> None:
    records = read(write_wlcg(metric_result(serviceFlavour="CE, SE")))

    flavours = [record["serviceFlavour"] for record in records if isinstance(record, dict)]
    assert flavours == ["CE", "SE"]


@pytest.mark.parametrize("message_class", ["downtime", "ourOwnClass"])
def test_records_of_other_classes_are_only_checked_for_syntax(message_class: str) -> None:
    valid, invalid = read("colour: red\nsize: not a time\nEOT\nno line\nEOT\n", message_class)

    assert valid == {"colour": "red", "size": "not a time"}
    assert isinstance(invalid, RefusedRecord)


def test_a_key_of_json_that_text_cannot_hold_is_refused() -> None:
    (refused,) = read(json.dumps({**metric_result(), "a: b\nhostName": "evil"}))

    assert isinstance(refused, RefusedRecord)
    assert refused.reason == "no-key"


def in_blocks(file: Path, message_class: str = "metricOutput") -> list[Record | RefusedRecord]:
    return [
        item
        for block in read_blocks([str(file)])
        for item in read_records(block, message_class, NOW)
    ]


@pytest.mark.parametrize("size", [1, 7, 64, 300, 5000])
def test_an_input_read_in_blocks_gives_the_same_as_one_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    details = "first line\nEOT\nhostName is no key here\nEOT\n  \nEOT"
    texts = [
        write_wlcg(metric_result(detailsData="a\nb")).replace("a\nb", details),
        "this is no record\nEOT\n",
        write_wlcg(metric_result()).replace("\n", "\r\n"),
        "\n\n",
        write_wlcg(metric_result(metricStatus="FINE")),
        write_wlcg(metric_result(hostName="last.example.org")),
        "\n",
    ]
    file = tmp_path / "in.txt"
    file.write_text("".join(texts * 3), newline="")
    expected = list(read_records(InputBlock(str(file), file.read_bytes()), "metricOutput", NOW))
    monkeypatch.setattr(records, "BLOCK_BYTES", size)

    assert in_blocks(file) == expected
    assert len(expected) > 6


def test_a_long_input_is_never_completely_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.txt"
    file.write_text(write_wlcg(metric_result()) * 1000)
    monkeypatch.setattr(records, "BLOCK_BYTES", 10_000)

    sizes = [len(block.body) for block in read_blocks([str(file)])]

    assert sum(sizes) == file.stat().st_size
    assert max(sizes) < 21_000


def test_json_is_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "in.json"
    file.write_text(" \n" + json.dumps([metric_result()] * 50))
    monkeypatch.setattr(records, "BLOCK_BYTES", 100)

    assert len(in_blocks(file)) == 50
