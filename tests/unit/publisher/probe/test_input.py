"""The input of `send`: text or JSON, and the reasons of refused records."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sam_pipeline.publisher.probe import input as records
from sam_pipeline.publisher.probe.input import (
    InputBlock,
    Pause,
    RefusedRecord,
    read_blocks,
    read_files,
    read_records,
)
from sam_pipeline.schema.errors import MessageRefused, UnreadableInput
from sam_pipeline.schema.records import splitter
from sam_pipeline.schema.records.input_file import InputFile
from sam_pipeline.schema.records.pipe import PipePatience
from sam_pipeline.schema.records.text import Record, write_wlcg
from tests.support.builders import NOW, metric_result


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(
    body: str | bytes, message_class: str = "metricOutput", name: str = "in.txt"
) -> list[Record | RefusedRecord]:
    Path(name).write_bytes(body if isinstance(body, bytes) else body.encode())
    return list(read_files([name], message_class, lambda: NOW))


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


def test_records_of_other_classes_are_only_checked_for_syntax() -> None:
    valid, invalid = read("colour: red\nsize: not a time\nEOT\nno line\nEOT\n", "ourOwnClass")

    assert valid == {"colour": "red", "size": "not a time"}
    assert isinstance(invalid, RefusedRecord)


GROUP = "siteName: S\ngroupName: G\ngroupType: T\n"


@pytest.mark.parametrize(
    ("message_class", "record", "reason"),
    [
        ("siteGroup", GROUP, "missing-key"),
        ("SITEGROUP", f"{GROUP}validFrom: soon\n", "bad-time"),
        ("siteGroup", f"{GROUP}validFrom: 2026-01-01\nweight: many\n", "bad-weight"),
        ("serviceEndpoint", "siteName: S\nhostName: a b\nserviceFlavour: CE\n", "bad-host"),
        ("downtime", "startTime: 2026-01-01\nendTime: 2026-01-02\n", "missing-key"),
    ],
)
def test_records_of_built_in_classes_are_checked_as_by_the_consumer(
    message_class: str, record: str, reason: str
) -> None:
    valid = f"{GROUP}validFrom: 2026-01-31\nEOT\n"
    first, refused = read(f"{valid}{record}EOT\n", message_class)

    assert isinstance(refused, RefusedRecord)
    assert (refused.reason, refused.line) == (reason, 6)
    assert isinstance(first, dict) == (message_class.lower() == "sitegroup")


def test_a_large_record_is_shortened_by_the_sender_or_refused_by_its_line() -> None:
    def refuse(record: Record) -> Record:
        raise MessageRefused("too-large", "5 bytes")

    small, large = write_wlcg(metric_result()), write_wlcg(metric_result(detailsData="x" * 20_000))
    block = InputBlock("in.txt", (small + large + small).encode())

    first, refused, last = read_records(block, "metricOutput", NOW, refuse)

    assert str(refused) == "in.txt:11: record refused, too-large: 5 bytes"
    assert isinstance(first, dict)
    assert first == last


def test_a_key_of_json_that_text_cannot_hold_is_refused() -> None:
    (refused,) = read(json.dumps({**metric_result(), "a: b\nhostName": "evil"}))

    assert isinstance(refused, RefusedRecord)
    assert refused.reason == "no-key"


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

    assert list(read_files([str(file)], "metricOutput", lambda: NOW)) == expected
    assert len(expected) > 6


def test_a_long_input_is_never_completely_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "in.txt"
    file.write_text(write_wlcg(metric_result()) * 1000)
    monkeypatch.setattr(records, "BLOCK_BYTES", 10_000)

    with InputFile(str(file)) as opened:
        blocks = list(read_blocks(opened))

    sizes = [len(block.body) for block in blocks if isinstance(block, InputBlock)]

    assert sum(sizes) == file.stat().st_size
    assert max(sizes) < 21_000


RECORDS = [metric_result(hostName=f"ce{number}.example.org") for number in range(50)]
WLCG = "".join(map(write_wlcg, RECORDS))
JSON_FORMS = {
    "array": json.dumps(RECORDS),
    "pretty": json.dumps(RECORDS, indent=2),
    "lines": "".join(f"{json.dumps(record)}\n" for record in RECORDS),
    "no line feed": "".join(map(json.dumps, RECORDS)),
}


@pytest.mark.parametrize("size", [100, 10**6])
@pytest.mark.parametrize("form", JSON_FORMS)
def test_json_may_be_an_array_or_one_object_per_line(
    form: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitter, "BLOCK_BYTES", size)

    assert read(JSON_FORMS[form]) == read(WLCG)


def test_a_bad_object_among_lines_is_refused_with_its_line_and_the_others_are_read() -> None:
    lines = JSON_FORMS["lines"].splitlines()
    lines[1] = '{"hostName": "a", metricName}'
    lines[3] = '{"hostName": {"a": 1}}'

    items = read("\n".join(lines))

    bad = [item for item in items if isinstance(item, RefusedRecord)]
    assert [(item.line, item.reason) for item in bad] == [(2, "not-json"), (4, "nested")]
    assert "line 2, column" in bad[0].text
    assert "item" not in bad[1].text
    assert len(items) == len(RECORDS)


def test_an_array_without_an_end_is_refused_after_its_complete_objects() -> None:
    *items, refused = read(JSON_FORMS["pretty"][:-100])

    assert isinstance(refused, RefusedRecord)
    assert refused.reason == "truncated"
    assert len([item for item in items if isinstance(item, dict)]) == len(RECORDS) - 1


@pytest.mark.parametrize("body", [WLCG, *JSON_FORMS.values()], ids=["wlcg", *JSON_FORMS])
def test_a_gzip_of_several_members_is_read_as_one(body: str) -> None:
    half = len(body) // 2
    packed = gzip.compress(body[:half].encode()) + gzip.compress(body[half:].encode())

    assert read(packed) == read(body)


@pytest.mark.parametrize("body", [WLCG, JSON_FORMS["lines"]], ids=["wlcg", "lines"])
def test_of_a_truncated_gzip_the_complete_records_are_read_and_the_rest_is_refused(
    body: str,
) -> None:
    packed = gzip.compress(body.encode())

    *items, refused = read(packed[:-60])

    assert isinstance(refused, RefusedRecord)
    assert refused.reason == "truncated"
    assert "after" in refused.text
    assert "bytes" in refused.text
    assert 0 < len(items) < len(RECORDS)
    assert items == read(body)[: len(items)]
    lines = body.splitlines()
    assert refused.line <= len(lines)
    assert "ce" + str(len(items)) in "\n".join(lines[refused.line - 1 :][:12])


@pytest.mark.parametrize("head", [b"hostName: a\ndetailsData: ", b'[{"hostName": "', b"\n", b"[ "])
def test_a_gzip_that_expands_without_end_is_refused_in_little_memory(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LONGEST_RECORD", 1_000_000)
    monkeypatch.setattr(splitter, "LONGEST_RECORD", 1_000_000)
    filling = b" " * 50_000_000
    Path("bomb.gz").write_bytes(gzip.compress(head + filling))
    del filling
    tracemalloc.start()

    [refused] = read_files(["bomb.gz"], "metricOutput", lambda: NOW)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(refused, RefusedRecord)
    assert peak < 10_000_000


def test_closed_standard_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(UnreadableInput, match="standard input is closed"):
        list(read_files([], "metricOutput", lambda: NOW))


@contextmanager
def pipe(
    flush_s: float = 60.0,
) -> Iterator[tuple[Iterator[object], Callable[[bytes], object], int]]:
    """The records of a pipe as they are read, a function that writes to it, and what stops it."""
    with ExitStack() as stack:
        reading, writing, stopped, stop = (*os.pipe(), *os.pipe())
        for descriptor in (reading, writing, stopped, stop):
            stack.callback(os.close, descriptor)
        found = read_files(
            [f"/dev/fd/{reading}"],
            "metricOutput",
            lambda: NOW,
            patience=PipePatience(flush_s, stopped),
        )
        assert isinstance(next(found), Pause)  # of what precedes the pipe
        yield found, lambda data: os.write(writing, data), stop


def in_lines(record: Record) -> bytes:
    return write_wlcg(record).encode()


def in_json(record: Record) -> bytes:
    return json.dumps(record, indent=1).encode()


@pytest.mark.parametrize("write", [in_lines, in_json])
def test_records_of_a_pipe_come_before_a_pause_and_half_a_record_after_it(
    write: Callable[[Record], bytes],
) -> None:
    first, second = write(metric_result(hostName="a")), write(metric_result(hostName="b"))

    with pipe(flush_s=0.02) as (found, send, _):
        send(first)
        before = [next(found), next(found)]
        send(second[:30])
        half = next(found)
        send(second[30:])
        after = [next(found), next(found)]

    assert [host_of(item) for item in [*before, half, *after]] == ["a", None, None, "b", None]


@pytest.mark.parametrize("write", [in_lines, in_json])
def test_a_pipe_that_is_stopped_gives_what_it_brought_and_refuses_half_a_record(
    write: Callable[[Record], bytes],
) -> None:
    record = write(metric_result(hostName="a"))

    with pipe(flush_s=0.02) as (found, send, stop):
        send(record + record[:-6])
        whole = [next(found), next(found)]
        os.write(stop, b"!")
        rest = list(found)

    assert [host_of(item) for item in whole] == ["a", None]
    assert [item.line for item in rest if isinstance(item, RefusedRecord)] == [
        1 + record.count(b"\n")
    ]


def host_of(item: object) -> str | None:
    return item["hostName"] if isinstance(item, dict) else None
