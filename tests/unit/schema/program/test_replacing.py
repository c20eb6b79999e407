"""Files that are replaced as a whole, and the progress of long commands."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

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


def test_a_terminal_shows_the_share_and_rate_of_a_long_command_and_a_file_shows_nothing() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for stream in (terminal, file):
        drained = Progress("drained", 1000, "records", stream, clock=iter([0, 1, 3]).__next__)
        drained.show(100)  # too soon
        drained.show(500)
        drained.end()
        of_file = Progress("a.txt", None, "records", stream, clock=iter([0, 2, 4]).__next__)
        of_file.show(3000, share=0.5, skipped=1000)
        of_file.show(5000, share=None)
        of_file.end()
        stages = Progress("", None, "records", stream, clock=iter([0, 1, 2.5, 3, 5]).__next__)
        stages.stage("reading")
        stages.stage("folding")
        stages.share(0.5)
        stages.interrupt()
        stages.end()

    assert file.getvalue() == ""
    assert terminal.getvalue().replace(ERASE, "") == (
        f"\rdrained {HALF}  500 of 1 000 records, 167 a second\r"
        f"\ra.txt {HALF}  3 000 records, 1 000 a second\ra.txt  5 000 records, 1 250 a second\r"
        f"  reading … 1.5 s\n  folding … \r  folding … {HALF}\n\r  folding … 2.0 s\n"
    )
