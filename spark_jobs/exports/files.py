"""Files of an export: named after what is in them, and there as a whole or not at all."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.spark_jobs.errors import CannotMakeFile, CannotWriteFile

# Characters that a directory's name can't have, or that its readers would interpret.
_UNSAFE = re.compile(r"^\.|[\x00-\x1f\x7f\"%'*/:=?\\{}\[\]^<>|&;$`!~#, ()]")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which replaces the one at `path` when the block ends.

    Raises:
        CannotMakeFile: its directory is not writable, or not a directory.
        CannotWriteFile: the disk is full or broken.
    """
    try:
        with replacing(path) as file:
            yield file
    except OSError as error:
        message = f"{path}: {error.strerror or error}; what was there is as it was"
        if error.errno in _NO_ROOM:
            raise CannotWriteFile(f"{message}: make room, then run the same again") from error
        raise CannotMakeFile(message) from error


def path_part(name: str) -> str:
    """A name as a part of a path, with unsafe characters escaped as in URLs: `%2F` for a slash.

    So readers of directories like `report=NAME` (Spark, DuckDB, pyarrow) get the name back.
    """
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", name)
