"""Passive results from lines and documents: each becomes a record, or is refused by its line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.probe.fifo import TOO_LARGE, TRUNCATED, InputLine, Lines
from sam_pipeline.publisher.probe.input import Found, Pause, RefusedRecord
from sam_pipeline.publisher.probe.passive import MAX_DOCUMENT_BYTES, PassiveResults
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import pack
from sam_pipeline.schema.records.check_result import Naming
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.input_file import InputFile

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
RESULTS = PassiveResults(
    METRIC_OUTPUT.name, Naming("CE"), lambda record: record, lambda record: record, lambda: NOW
)
GOOD = b"[1795176000] PROCESS_SERVICE_CHECK_RESULT;ce01;m;0;OK"


def of_lines(*bodies: bytes) -> list[Found]:
    return [*RESULTS.of_lines("f", (InputLine(n, body) for n, body in enumerate(bodies, 1)))]


def of_file(tmp_path: Path, content: bytes, is_cut: bool = False) -> list[Found]:
    (tmp_path / "input").write_bytes(content)
    with InputFile(str(tmp_path / "input")) as file:
        return [*RESULTS.of_input(file, lambda: is_cut)]


def refusals(found: Iterable[Found]) -> list[tuple[int, str]]:
    return [(item.line, item.reason) for item in found if isinstance(item, RefusedRecord)]


def test_a_bad_line_is_refused_by_its_number_and_the_others_are_records() -> None:
    found = of_lines(GOOD, b"garbage", b"", GOOD.replace(b";0;", b";7;"), GOOD)

    assert refusals(found) == [(2, "no-command"), (4, "bad-status")]
    assert sum(isinstance(item, dict) for item in found) == 2


def test_a_line_without_an_end_is_refused_and_pauses_are_passed_on(tmp_path: Path) -> None:
    lines = [InputLine(1, GOOD, TRUNCATED), Pause(), InputLine(2, GOOD, TOO_LARGE)]

    found = [*RESULTS.of_lines("f", lines)]

    assert refusals(found) == [(1, TRUNCATED), (2, TOO_LARGE)]
    assert found[1] is lines[1]
    assert refusals(of_file(tmp_path, GOOD + b"\n" + GOOD, is_cut=True)) == [(2, TRUNCATED)]
    assert refusals(of_file(tmp_path, GOOD + b"\n" + GOOD)) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<checkresults>", "not-xml"),
        (b"<!DOCTYPE a><checkresults/>", "not-xml"),
        (b'{"checkresults": 1}', "not-json"),
        (b"{" + b" " * MAX_DOCUMENT_BYTES, TOO_LARGE),
        (b"{" + b" " * (MAX_DOCUMENT_BYTES - 1), "not-json"),
        (b"<checkresults/>", "empty"),
    ],
)
def test_a_bad_document_is_refused_as_a_whole(tmp_path: Path, content: bytes, reason: str) -> None:
    assert refusals(of_file(tmp_path, content)) == [(1, reason)]


def test_a_bad_result_of_a_document_is_refused_by_its_number(tmp_path: Path) -> None:
    results = [{"hostname": "a", "state": "0"}, {"hostname": "a", "state": "x"}]

    good, bad = of_file(tmp_path, json.dumps({"checkresults": results}).encode())

    assert isinstance(good, dict) and good["metricName"] == "Host-Check"
    assert isinstance(bad, RefusedRecord) and "check result 2" in bad.text


WORDS = b"[ ] ; 1795176000 0 3 4 \\n | t=1;2 ce01 m ' \xff PROCESS_SERVICE_CHECK_RESULT".split(b" ")
TOKENS = st.sampled_from([*WORDS, b"PROCESS_HOST_CHECK_RESULT", b" ", b"\0"])


@given(st.lists(st.lists(TOKENS, max_size=14).map(b"".join) | st.just(GOOD) | st.binary()))
def test_each_line_is_a_row_for_the_consumer_or_refused_by_number(bodies: list[bytes]) -> None:
    bodies = [body.replace(b"\n", b"") for body in bodies]
    lines = [*Lines().cut(b"".join(body + b"\n" for body in bodies))]

    found = [*RESULTS.of_lines("f", lines)]

    records = [item for item in found if isinstance(item, dict)]
    refused = {line for line, _ in refusals(found)}
    ignored = sum(not body.strip() for body in bodies)
    assert len(records) + len(refused) + ignored == len(bodies) == len(lines)
    parts = (decode(packed, METRIC_OUTPUT.keys, NOW) for packed in pack(records, "metricOutput"))
    assert sum(len(part.rows) for part in parts) == len(records)
