"""The file of tokens on a disk that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.tokens import make_token
from tests.support.small_disk import small_disk


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=16k") as disk:
        path = disk / "tokens"
        make_token(path, "nagios-a")
        room = 4096 - path.stat().st_size
        with path.open("a") as file:  # to the end of its page, so that the next line needs another
            file.write("#" * (room - 2) + "\n")
        before = path.read_bytes()
        with (disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(b"x" * 4096)
        with pytest.raises(ConfigError):
            make_token(path, "nagios-b")

        assert path.read_bytes() == before
