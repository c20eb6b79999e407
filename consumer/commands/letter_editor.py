"""A person's own editor, on the body of a dead letter."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sam_pipeline.consumer.errors import EditorFailed

logger = logging.getLogger(__name__)


@contextmanager
def edited_by_hand(body: bytes, editor: Sequence[str], suffix: str) -> Iterator[bytes]:
    """The body as somebody edited it; if the block fails, it is kept in a file and the log says so.

    Raises:
        EditorFailed: there is no such editor, or it failed: nothing is to be changed.
    """
    handle, name = tempfile.mkstemp(suffix, "sam-dead-letter-")  # for us alone: mode 0600
    os.close(handle)
    file = Path(name)
    edited = body
    try:
        file.write_bytes(body)
        try:
            code = subprocess.run([*editor, name]).returncode
        except OSError as error:
            raise EditorFailed(f"editor {editor[0]}: {error.strerror}; nothing changed") from error
        if code:
            raise EditorFailed(f"editor {editor[0]} ended with {code}; nothing changed")
        edited = file.read_bytes()
        yield edited
    except BaseException:
        if edited == body:
            file.unlink()
        else:
            logger.error("what you wrote is in %s (edit ID --body FILE takes it)", file)
        raise
    file.unlink()
