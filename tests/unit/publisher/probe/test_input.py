"""The input of `send`: text or JSON, and reasons of refusals; the record of a plugin's run."""

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
    RecordRules,
    RefusedRecord,
    read_files,
    read_records,
)
from sam_pipeline.publisher.probe.plugin import MAX_OUTPUT_BYTES, PluginRun, record_of
from sam_pipeline.schema.errors import UnreadableInput
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.records import input_file
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.input_file import PipePatience
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.records.text import Record, write_wlcg
from tests.support.builders import NOW, metric_message, metric_result

METRICS = RecordRules(METRIC_OUTPUT.name, lambda: NOW)

RECORDS = [metric_result(hostName=f"ce{number}.example.org") for number in range(50)]
WLCG = "".join(map(write_wlcg, RECORDS))
GOOD = write_wlcg(metric_result())
JSON_FORMS = {
    "array": "\ufeff \n" + json.dumps(RECORDS),
    "pretty": json.dumps(RECORDS, indent=2),
    "lines": "".join(f"{json.dumps(record)}\n" for record in RECORDS),
    "no line feed": "".join(map(json.dumps, RECORDS)),
}


def read(body: str | bytes, message_class: str = "metricOutput") -> list[Record | RefusedRecord]:
    Path("in.txt").write_bytes(body if isinstance(body, bytes) else body.encode())
    return list(read_files(["in.txt"], RecordRules(message_class, lambda: NOW)))


def refusals(found: list[Record | RefusedRecord]) -> list[tuple[int, str]]:
    return [(item.line, item.reason) for item in found if isinstance(item, RefusedRecord)]


@pytest.mark.parametrize("size", [100, 10**6])
@pytest.mark.parametrize("form", JSON_FORMS)
def test_all_forms_give_the_same(form: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "BLOCK_BYTES", size)
    half = len(JSON_FORMS[form]) // 2
    members = [JSON_FORMS[form][:half].encode(), JSON_FORMS[form][half:].encode()]

    assert read(JSON_FORMS[form]) == read(WLCG)
    assert read(b"".join(map(gzip.compress, members))) == read(WLCG)
    assert len(read(WLCG)) == 50


def test_a_refused_record_is_reported_with_its_line_and_the_others_are_read() -> None:
    found = read(GOOD + write_wlcg(metric_result(metricStatus="FINE")) + GOOD)
    (broken,) = read("hostName: a\nthis is no line\nEOT\n")

    assert refusals(found) == [(11, "bad-status")]
    assert str(found[1]).startswith("in.txt:11: record refused, bad-status: ")
    assert found[0] == found[2]
    problem = "'this is no line' is not a line `key: value`"
    assert str(broken) == f"in.txt:1: record refused, no-key: {problem}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "empty"),
        ("EOT\n", "empty"),
        (json.dumps({**metric_result(), "a: b\nhostName": "evil"}), "no-key"),
    ],
)
def test_a_body_without_a_good_record_is_one_refused_record(body: str, reason: str) -> None:
    assert refusals(read(body)) == [(1, reason)]


@pytest.mark.parametrize("size", [1, 7, 64, 300, 5000])
def test_reading_in_blocks_gives_the_same(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    details = "first line\nEOT\nhostName is no key here\nEOT\n  \nEOT"
    texts = [
        write_wlcg(metric_result(detailsData="a\nb")).replace("a\nb", details),
        "this is no record\nEOT\n",
        GOOD.replace("\n", "\r\n"),
        "\n\n",
        write_wlcg(metric_result(metricStatus="FINE")),
        write_wlcg(metric_result(hostName="last.example.org")),
        "\n",
    ]
    body = "".join(texts * 3).encode()
    expected = list(read_records(InputBlock("in.txt", body), METRICS))
    monkeypatch.setattr(records, "BLOCK_BYTES", size)

    assert read(body) == expected
    assert len(expected) > 6


@pytest.mark.parametrize("head", [b"hostName: a\ndetailsData: ", b'[{"hostName": "', b"\n", b"[ "])
def test_an_endless_gzip_takes_little_memory(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST_RECORD", 1_000_000)
    monkeypatch.setattr(input_file, "LONGEST_RECORD", 1_000_000)
    bomb = gzip.compress(head + b" " * 50_000_000)
    tracemalloc.start()

    [refused] = read(bomb)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(refused, RefusedRecord)
    assert peak < 10_000_000


def test_closed_standard_input_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(UnreadableInput, match="standard input is closed"):
        list(read_files([], METRICS))


@contextmanager
def pipe() -> Iterator[tuple[Iterator[object], Callable[[bytes], object], int]]:
    """The records of a pipe as they are read, a function that writes to it, and what stops it."""
    with ExitStack() as stack:
        reading, writing, stopped, stop = (*os.pipe(), *os.pipe())
        for descriptor in (reading, writing, stopped, stop):
            stack.callback(os.close, descriptor)
        patience, names = PipePatience(0.02, stopped), [f"/dev/fd/{reading}"]
        found = read_files(names, METRICS, patience)
        assert isinstance(next(found), Pause)  # of what precedes the pipe
        yield found, lambda data: os.write(writing, data), stop


def in_json(record: Record) -> bytes:
    return json.dumps(record, indent=1).encode()


@pytest.mark.parametrize("write", [lambda record: write_wlcg(record).encode(), in_json])
def test_half_a_record_of_a_pipe_waits_or_is_refused(write: Callable[[Record], bytes]) -> None:
    first, second = write(metric_result(hostName="a")), write(metric_result(hostName="b"))

    with pipe() as (found, send, stop):
        send(first)
        items = [next(found), next(found)]
        send(second[:30])
        items.append(next(found))
        send(second[30:] + first[:-6])
        items += [next(found), next(found)]
        os.write(stop, b"!")
        rest = list(found)

    hosts = [item["hostName"] if isinstance(item, dict) else None for item in items]
    assert hosts == ["a", None, None, "b", None]
    line = 1 + (first + second).count(b"\n")
    assert [item.line for item in rest if isinstance(item, RefusedRecord)] == [line]


@pytest.mark.parametrize(
    ("output", "summary", "stem"),
    [
        (b"CRIT caf\xe9\n", "CRIT caf\ufffd", "not UTF-8"),
        (b"CRIT a\0b\n", "CRIT a\ufffdb", "NUL"),
        (b"CRIT | a=1\n" + b"caf\xc3\xa9 " * MAX_OUTPUT_BYTES, "CRIT", "wrote more than"),
        (b"CRIT " + b"x" * MAX_OUTPUT_BYTES, "CRIT", "wrote more than"),
    ],
)
def test_the_status_does_not_depend_on_the_output(output: bytes, summary: str, stem: str) -> None:
    record, [warning] = record_of(PluginRun(NOW, 2, output), "check_it")

    assert (record["metricStatus"], record["summaryData"]) == ("CRITICAL", summary)
    assert stem in warning


def test_output_that_is_too_long_is_cut_between_words_and_characters_with_a_note() -> None:
    words = b"OK | " + b"load=12345 " * (MAX_OUTPUT_BYTES // 11 + 1)
    characters = b"x" + "é".encode() * MAX_OUTPUT_BYTES

    of_words, _ = record_of(PluginRun(NOW, 0, words), "check_it")
    of_characters, _ = record_of(PluginRun(NOW, 0, characters), "check_it")

    assert set(of_words["performanceData"].split()) == {"load=12345"}
    assert f"check_it wrote more than {MAX_OUTPUT_BYTES} bytes]" in of_words["detailsData"]
    assert set(of_characters["summaryData"]) == {"x", "é"}


def test_standard_error_is_recorded_only_without_output() -> None:
    errors = b"\nTraceback (most recent call last):\n  oh | no\nValueError: 7\n"

    alone, _ = record_of(PluginRun(NOW, 1, b" \n", errors), "check_it")
    beside, warnings = record_of(PluginRun(NOW, 0, b"fine\n", b"noise \xff"), "check_it")

    assert alone["metricStatus"] == "WARNING"
    assert alone["summaryData"] == "Traceback (most recent call last):"
    assert (alone["detailsData"], alone["performanceData"]) == (errors.decode().strip(), "")
    assert (beside["summaryData"], beside["detailsData"], warnings) == ("fine", "", [])


@pytest.mark.parametrize(
    "output", [b"", b"\n \n", b"\r\n", b"\0", b"|", b"\xef\xbb\xbf", b"x" * 2000 + b"\r\n|y\0"]
)
def test_any_output_makes_a_record_that_can_be_sent(output: bytes) -> None:
    record = {**metric_result(), **record_of(PluginRun(NOW, 1, output), "check_it")[0]}

    [sent] = normalise(record, "metricOutput", {}, NOW)

    [received] = decode(metric_message(sent), METRIC_OUTPUT.keys, NOW).rows
    assert received.values["metricStatus"] == "WARNING"
    assert received.values["summaryData"]
