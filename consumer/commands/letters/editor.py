"""Opens the body of a dead letter in the editor of the user."""

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
    """The edited body; if the block fails, it is kept in a file whose name is logged.

    Raises:
        EditorFailed: the editor was not found, or failed.
    """
    handle, name = tempfile.mkstemp(suffix, "sam-dead-letter-")  # with mode 0600
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
            raise EditorFailed(f"editor {editor[0]} failed with status {code}; nothing changed")
        edited = file.read_bytes()
        yield edited
    except BaseException:
        if edited == body:
            file.unlink()
        else:
            logger.error("your text is in %s (use it with: edit ID --body FILE)", file)
        raise
    file.unlink()
