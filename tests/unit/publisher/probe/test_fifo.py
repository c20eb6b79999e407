"""Lines from a FIFO: numbered, whole, and none of them lost."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.errors import FifoError
from sam_pipeline.publisher.probe.fifo import (
    BLOCK_BYTES,
    MAX_LINE_BYTES,
    TOO_LARGE,
    TRUNCATED,
    Fifo,
    InputLine,
    Lines,
)
from sam_pipeline.publisher.probe.input import Pause
from sam_pipeline.schema.records.pipe import PipePatience
from tests.support.waiting import eventually


class Reading:
    """A FIFO whose lines are read in a thread."""

    def __init__(self, path: Path, mode: int = 0o600) -> None:
        self.path = path
        self.stop, self._end = os.pipe()
        self.fifo = Fifo(path, mode, PipePatience(0.02, self.stop))
        self.found: list[InputLine | Pause] = []
        self._reader = threading.Thread(target=lambda: self.found.extend(self.fifo.lines()))
        self._reader.start()

    def write(self, *texts: bytes) -> None:
        with self.path.open("wb", buffering=0) as file:
            for text in texts:
                file.write(text)

    def lines(self) -> list[InputLine]:
        """The lines up to the end."""
        os.write(self._end, b"x")
        self._reader.join()
        return [line for line in self.found if isinstance(line, InputLine)]

    def close(self) -> None:
        self.lines()
        os.close(self._end)
        self.fifo.__exit__()
        os.close(self.stop)


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    reading = Reading(tmp_path / "results.cmd")
    yield reading
    reading.close()


def test_what_one_writer_leaves_unfinished_does_not_spoil_the_next(reading: Reading) -> None:
    reading.write(b"whole\nha")
    eventually(lambda: len(reading.found) >= 2)  # its end was noticed
    reading.write(b"next\n")

    whole, half, following = reading.lines()
    assert (whole, following) == (InputLine(1, b"whole"), InputLine(3, b"next"))
    assert half == InputLine(2, b"ha", TRUNCATED)


def test_a_line_may_be_long_but_an_endless_one_takes_little_memory(reading: Reading) -> None:
    reading.write(b"x" * 500_000 + b"\n")
    reading.write(*[b"x" * (MAX_LINE_BYTES // 5)] * 20, b"\nnext\n")

    long, endless, following = reading.lines()
    assert long == InputLine(1, b"x" * 500_000)
    assert (endless.number, endless.reason) == (2, TOO_LARGE)
    assert len(endless.body) <= MAX_LINE_BYTES + BLOCK_BYTES
    assert following == InputLine(3, b"next")


def test_what_was_written_before_the_end_is_still_read(tmp_path: Path) -> None:
    stop, end = os.pipe()
    with Fifo(tmp_path / "f", 0o600, PipePatience(1.0, stop)) as fifo:
        writer = os.open(fifo.path, os.O_WRONLY)
        os.write(end, b"x")
        os.write(writer, b"last\nunfinished")

        found = [*fifo.lines()]
        os.close(writer)
    os.close(stop)
    os.close(end)

    assert found == [InputLine(1, b"last"), InputLine(2, b"unfinished", TRUNCATED)]


def test_a_new_fifo_has_the_mode_and_an_existing_one_keeps_its_own(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "old", 0o600)
    before = os.umask(0o077)
    try:
        readings = [Reading(tmp_path / name, 0o662) for name in ("new", "old")]
    finally:
        os.umask(before)

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "old")]
    assert modes == [0o662, 0o600]
    for reading in readings:
        reading.close()


def test_a_file_that_is_not_a_fifo_or_in_use_is_refused_and_not_changed(reading: Reading) -> None:
    Path("file").write_text("x")

    for path, reason in (
        (reading.path, "another process"),
        (Path("file"), "not a FIFO"),
        (Path("no/f"), "No such file"),
        (Path(), "not a FIFO"),
    ):
        with pytest.raises(FifoError, match=reason):
            Fifo(path, 0o600, PipePatience(1.0, 0))
    assert Path("file").read_text() == "x"


def test_a_fifo_that_was_removed_ends_the_reading_after_what_was_read(tmp_path: Path) -> None:
    stop, end = os.pipe()
    with Fifo(tmp_path / "f", 0o600, PipePatience(10.0, stop)) as fifo:
        with (tmp_path / "f").open("wb", buffering=0) as writer:
            writer.write(b"last\n")
            (tmp_path / "f").unlink()

        lines = fifo.lines()
        assert next(lines) == InputLine(1, b"last")
        assert isinstance(next(lines), Pause)
        with pytest.raises(FifoError, match="No such file"):
            next(lines)
    os.close(stop)
    os.close(end)


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
