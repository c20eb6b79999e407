"""Output files, each written completely or not at all, and CSV for spreadsheets."""

from __future__ import annotations

import csv
import errno
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.spark_jobs.errors import CannotMakeFile, CannotWriteFile

# Characters that a directory name cannot contain, or that readers would interpret.
_UNSAFE = re.compile(r"^\.|[\x00-\x1f\x7f\"%'*/:=?\\{}\[\]^<>|&;$`!~#, ()]")
# Spreadsheets treat a cell that starts with one of these as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
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


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """The rows as lines of CSV; a quote precedes each cell that looks like a formula."""
    body = io.StringIO()
    writer = csv.writer(body, lineterminator="\n")
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    return body.getvalue()


def csv_table(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows with a header, without a final line end; empty if there are no rows."""
    if not rows:
        return ""
    return csv_lines([rows[0], *(row.values() for row in rows)]).rstrip("\n")


def _cell(value: object) -> object:
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
