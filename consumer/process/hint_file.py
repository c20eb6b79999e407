"""Files in the state directory that only make recovery from a kill better or faster."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from sam_pipeline.consumer.process.name_lock import open_state_file

logger = logging.getLogger(__name__)


class HintFile:
    """A file that may be lost: an error of writing it is logged once and stops nothing.

    It is not fsynced, since it need only survive the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = open_state_file(path, os.O_APPEND)
        self._failed = False

    def read(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def append(self, data: bytes) -> None:
        try:
            os.write(self.descriptor, data)
        except OSError as error:
            if not self._failed:
                logger.warning("%s: %s; continuing without it", self.path, error.strerror)
            self._failed = True

    def replace(self, data: bytes) -> None:
        """Replace the content."""
        os.ftruncate(self.descriptor, 0)
        if data:
            self.append(data)

    def close(self) -> None:
        os.close(self.descriptor)
