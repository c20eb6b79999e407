"""Files that are replaced as a whole, and the progress of long commands."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.replacing import replacing


def test_the_file_and_new_directories_have_the_given_modes(tmp_path: Path) -> None:
    path = tmp_path / "state" / "file"
    before = os.umask(0o022)
    try:
        with replacing(path, 0o600, directory_mode=0o700) as file:
            file.write(b"new")
    finally:
        os.umask(before)

    assert path.read_bytes() == b"new"
    assert [stat.S_IMODE(name.stat().st_mode) for name in (path, path.parent)] == [0o600, 0o700]


def test_a_failure_leaves_only_the_old_file_and_a_planted_link_is_not_followed(
    tmp_path: Path,
) -> None:
    path, victim = tmp_path / "file", tmp_path / "victim"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

    victim.write_bytes(b"theirs")
    (tmp_path / f".file.{os.getpid()}.new").symlink_to(victim)
    with replacing(path) as file:
        file.write(b"ours")
    assert (path.read_bytes(), victim.read_bytes()) == (b"ours", b"theirs")
    assert not path.is_symlink()


HALF = "[############............]  50%"
ERASE = "\x1b[K"


def progress_at(seconds: list[float], *name_and_total: Any) -> tuple[Progress, io.StringIO]:
    """Progress on a terminal, with a clock of these readings."""
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    clock = iter(seconds).__next__
    return Progress(*name_and_total, "records", stream, clock=clock), stream


def test_share_and_rate_of_a_command_that_takes_longer_than_two_seconds() -> None:
    of_total, drained = progress_at([0, 1, 3], "drained", 1000)
    of_file, file = progress_at([0, 2, 4], "a.txt", None)

    of_total.show(100)  # too soon
    of_total.show(500)
    of_file.show(3000, share=0.5, skipped=1000)
    of_file.show(5000, share=None)
    for progress in (of_total, of_file):
        progress.end()

    line = f"\rdrained {HALF}  500 of 1 000 records, 167 a second{ERASE}"
    assert drained.getvalue() == f"{line}\r{ERASE}"
    assert file.getvalue() == (
        f"\ra.txt {HALF}  3 000 records, 1 000 a second{ERASE}"
        f"\ra.txt  5 000 records, 1 250 a second{ERASE}\r{ERASE}"
    )


def test_a_stage_has_its_share_and_duration_on_a_terminal_alone() -> None:
    progress, terminal = progress_at([0, 1, 2.5, 3, 5], "", None)
    silent = Progress("", None, "records", file := io.StringIO())
    for each in (progress, silent):
        each.stage("reading")
        each.stage("folding")
        each.share(0.5)
        each.interrupt()
        each.end()

    line = f"  folding … \r  folding … {HALF}{ERASE}\n\r  folding … 2.0 s{ERASE}\n"
    assert (terminal.getvalue(), file.getvalue()) == (f"  reading … 1.5 s\n{line}", "")
