"""Files that are found whole or not at all: written under another name, then renamed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sam_pipeline.spark_jobs.errors import CannotMakeFile, CannotWriteFile

# What may not stand in a name of a directory, or would be read there as something else.
_UNSAFE = re.compile(r"^\.|[\x00-\x1f\x7f\"%'*/:=?\\{}\[\]^<>|&;$`!~#, ()]")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which on leaving the block is at `path`.

    Whatever fails before leaves there what was there, whole.

    Raises:
        CannotMakeFile: its directory is closed to us, or is none.
        CannotWriteFile: the disk is full or broken.
    """
    # Readers of directories pass over names with a dot; two of us don't share one.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        words = f"{path}: {error.strerror or error}; what was there is as it was"
        if error.errno in _NO_ROOM:
            raise CannotWriteFile(f"{words}: make room, then run the same again") from error
        raise CannotMakeFile(words) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def path_part(name: str) -> str:
    """A name as a part of a path: what can't stand there is written as in URLs, `%2F` for a slash.

    So readers of directories like `report=NAME` (Spark, DuckDB, pyarrow) get the name back.
    """
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", name)
