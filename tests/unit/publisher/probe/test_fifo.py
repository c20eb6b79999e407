"""Passive results: whole lines from a FIFO, and a record or a refusal for each result."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.errors import FifoError
from sam_pipeline.publisher.probe.input import Found, Pause, RecordRules, RefusedRecord
from sam_pipeline.publisher.probe.passive import (
    FIFO_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_LINE_BYTES,
    TOO_LARGE,
    TRUNCATED,
    Fifo,
    InputLine,
    Lines,
    PassiveResults,
)
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import pack
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.input_file import InputFile, PipePatience
from sam_pipeline.schema.records.passive import Naming


@contextmanager
def opened(path: Path, mode: int = 0o600) -> Iterator[tuple[Fifo, Callable[[], object]]]:
    """A FIFO and a function that ends the reading."""
    stop, end = os.pipe()
    with Fifo(path, mode, PipePatience(0.02, stop)) as fifo:
        yield fifo, lambda: os.write(end, b"x")
    os.close(stop)
    os.close(end)


def write(path: Path, *texts: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for text in texts:
            file.write(text)


def test_what_one_writer_leaves_unfinished_does_not_spoil_the_next(tmp_path: Path) -> None:
    with opened(tmp_path / "f") as (fifo, end):
        lines = fifo.lines()
        write(fifo.path, b"whole\nha")
        found = [next(lines), next(lines)]
        write(fifo.path, b"next\n")
        end()  # what was written before is still read
        found += lines

    assert found[:2] == [InputLine(1, b"whole"), InputLine(2, b"ha", TRUNCATED)]
    assert [line for line in found[2:] if isinstance(line, InputLine)] == [InputLine(3, b"next")]


def test_a_line_may_be_long_but_an_endless_one_takes_little_memory(tmp_path: Path) -> None:
    texts = [b"x" * 500_000 + b"\n", *[b"x" * (MAX_LINE_BYTES // 5)] * 20, b"\nnext\n"]
    with opened(tmp_path / "f") as (fifo, end):
        writer = threading.Thread(target=lambda: (write(fifo.path, *texts), end()))
        writer.start()
        long, endless, following = [i for i in fifo.lines() if isinstance(i, InputLine)]
        writer.join()

    assert long == InputLine(1, b"x" * 500_000)
    assert (endless.number, endless.reason) == (2, TOO_LARGE)
    assert len(endless.body) <= MAX_LINE_BYTES + FIFO_BYTES
    assert following == InputLine(3, b"next")


def test_a_new_fifo_has_the_mode_and_an_existing_one_keeps_its_own(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "old", 0o600)
    before, modes = os.umask(0o077), []
    for name in ("new", "old"):
        with opened(tmp_path / name, 0o662) as (fifo, _):
            modes.append(stat.S_IMODE(fifo.path.stat().st_mode))
    os.umask(before)

    assert modes == [0o662, 0o600]


def test_a_file_that_is_not_a_fifo_or_in_use_is_refused_and_not_changed(tmp_path: Path) -> None:
    Path("file").write_text("x")

    with opened(tmp_path / "f"):
        for name, reason in (
            ("f", "another process"),
            ("file", "not a FIFO"),
            ("no/f", "No such file"),
            (".", "not a FIFO"),
        ):
            with pytest.raises(FifoError, match=reason):
                Fifo(Path(name), 0o600, PipePatience(1.0, 0))
    assert Path("file").read_text() == "x"


def test_a_fifo_that_was_removed_ends_the_reading_after_what_was_read(tmp_path: Path) -> None:
    with opened(tmp_path / "f") as (fifo, _):
        with fifo.path.open("wb", buffering=0) as writer:
            writer.write(b"last\n")
            fifo.path.unlink()

        lines = fifo.lines()
        assert next(lines) == InputLine(1, b"last")
        assert isinstance(next(lines), Pause)
        with pytest.raises(FifoError, match="No such file"):
            next(lines)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_however_the_bytes_arrive_the_lines_are_the_same(data: bytes, cuts: list[int]) -> None:
    lines = Lines()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})

    found = [line for a, b in pairwise(edges) for line in lines.cut(data[a:b])]
    found += lines.end(TRUNCATED)

    *whole, rest = data.split(b"\n")
    expected = [InputLine(n, body) for n, body in enumerate(whole, 1)]
    if rest:
        expected.append(InputLine(len(whole) + 1, rest, TRUNCATED))
    assert found == expected


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
RESULTS = PassiveResults(Naming("CE"), RecordRules(METRIC_OUTPUT.name, lambda: NOW))
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
