"""A person's own editor, on the body of a dead letter."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sam_pipeline.consumer.errors import EditorFailed

logger = logging.getLogger(__name__)


@contextmanager
def edited_by_hand(body: bytes, editor: Sequence[str], suffix: str = ".txt") -> Iterator[bytes]:
    """What a person made of the body; if the block fails, it is kept in a file that is named.

    Raises:
        EditorFailed: there is no such editor, or it said that nothing shall be done.
    """
    handle, path = tempfile.mkstemp(suffix, "sam-dead-letter-")  # for us alone: mode 0600
    with os.fdopen(handle, "wb") as file:
        file.write(body)
    edited = body
    try:
        _run([*editor, path])
        with open(path, "rb") as file:
            edited = file.read()
        yield edited
    except BaseException:
        if edited != body:
            logger.error("what you wrote is in %s (edit ID --body FILE takes it)", path)
        else:
            os.unlink(path)
        raise
    os.unlink(path)


def _run(command: Sequence[str]) -> None:
    try:
        code = subprocess.run(command).returncode
    except OSError as error:
        raise EditorFailed(f"editor {command[0]}: {error.strerror}; nothing changed") from error
    if code:
        raise EditorFailed(f"editor {command[0]} ended with {code}; nothing changed")
