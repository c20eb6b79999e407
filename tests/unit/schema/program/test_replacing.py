"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

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
