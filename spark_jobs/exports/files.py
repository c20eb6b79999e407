"""Output files, each written completely or not at all."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.spark_jobs.errors import CannotMakeFile, CannotWriteFile

# Characters that a directory name cannot contain, or that readers would interpret.
_UNSAFE = re.compile(r"^\.|[\x00-\x1f\x7f\"%'*/:=?\\{}\[\]^<>|&;$`!~#, ()]")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which replaces the one at `path` at the end of the block.

    Raises:
        CannotMakeFile: its directory cannot be created, or is not writable.
        CannotWriteFile: the disk is full or broken.
    """
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        message = f"{path}: {error.strerror or error}; existing files are unchanged"
        if error.errno in _NO_ROOM:
            raise CannotWriteFile(f"{message}: make room, then run it again") from error
        raise CannotMakeFile(message) from error


def path_part(name: str) -> str:
    """A name as part of a path, with unsafe characters escaped as in URLs: `%2F` for a slash.

    Programs that read directories like `report=NAME` (Spark, DuckDB, pyarrow) decode it.
    """
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
