"""A small file system."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services import PRIVILEGED, missing


@contextmanager
def small_disk(directory: Path, options: str) -> Iterator[Path]:
    """A tmpfs mounted on a new directory, with options such as `size=4m` or `nr_inodes=12`."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True).returncode:
        missing("the privilege to mount", PRIVILEGED)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
