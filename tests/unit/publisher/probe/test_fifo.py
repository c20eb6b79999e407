"""Lines from a FIFO: numbered, whole, and none of them lost."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    assert len(endless.body) <= MAX_LINE_BYTES + BLOCK_BYTES
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
