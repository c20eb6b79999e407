"""The archive as commands pass it on: it is opened only if a day is wanted from it."""

from __future__ import annotations

from collections.abc import Callable

from sam_pipeline.sql.archive.store import Store

OpenArchive = Callable[[], Store | None]
"""Opens the archive; returns None if none is configured."""


def no_archive() -> Store | None:
    return None
