"""Files that are read at once, and the errors of files in general."""

from __future__ import annotations

from pathlib import Path

from sam_pipeline.schema.program.command import IO_ERROR, NO_INPUT, NO_PERMISSION
from sam_pipeline.sql.errors import BadInput

_EXIT_CODES = {PermissionError: NO_PERMISSION, FileNotFoundError: NO_INPUT}


def read_whole(path: Path, largest_bytes: int) -> bytes:
    """The contents of a file.

    Raises:
        BadInput: it can't be read, is empty or too large.
    """
    try:
        with path.open("rb") as file:
            contents = file.read(largest_bytes + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(contents) > largest_bytes:
        limit = f"more than {largest_bytes >> 20} MiB, and no export is as large"
        raise BadInput(f"{path}: has {limit}: check what it is; nothing was changed")
    if not contents.strip():
        raise BadInput(f"{path}: the file is empty: fetch it again; nothing was changed")
    return contents


def unreadable(path: Path, error: OSError) -> BadInput:
    """The error of a file that can't be read; its exit code says why."""
    reason = (error.strerror or str(error)).lower()
    code = _EXIT_CODES.get(type(error), IO_ERROR)
    return BadInput(f"{path}: {reason}; nothing was changed", exit_code=code)
