"""What Java and the scripts that start it write to standard error."""

from __future__ import annotations

import logging
import os
import sys
import threading

from sam_pipeline.schema.program.command import print_lines
from sam_pipeline.spark_jobs.compute.cluster.causes import cause, is_stack

# Lines that the JVM and Spark print before they read any log configuration.
_NOISE = ("WARNING: Using incubator modules", "Setting default log level", "To adjust logging")
# Java says this after the reason why it does not start.
_FAREWELL = ("Error: Could not create the Java Virtual Machine", "Error: A fatal exception has")

logger = logging.getLogger(__name__)


class JavaOutput:
    """Passes the lines on once Java has started; traces of exceptions go to the debug log.

    Until then they are kept: they say why Java does not start.
    """

    def __init__(self) -> None:
        reading, self.file = os.pipe()
        self._early: list[str] | None = []
        self._is_muted = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Java alone writes to `file` now, and its end is the end of the lines."""
        os.close(self.file)

    def started(self) -> None:
        with self._lock:
            early, self._early = self._early or [], None
        for line in early:
            self._pass_on(line)

    def mute(self) -> None:
        """Discard what Java prints from now on, because it is being ended."""
        self._is_muted = True

    def reason(self) -> str:
        """Why Java did not start, on one line; empty if it printed no reason."""
        self._thread.join(timeout=2)
        with self._lock:
            lines = [line for line in self._early or () if not line.startswith(_FAREWELL)]
        if any(map(is_stack, lines)):
            return cause("\n".join(lines))
        return ": ".join(line.rstrip(".:") for line in lines)

    def _read(self, reading: int) -> None:
        with open(reading, "rb") as lines:
            for raw in lines:
                line = raw.decode(errors="backslashreplace").rstrip("\n")
                if line.startswith(_NOISE):
                    continue
                with self._lock:
                    if self._early is not None:
                        self._early.append(line)
                        continue
                self._pass_on(line)

    def _pass_on(self, line: str) -> None:
        if self._is_muted or is_stack(line):
            logger.debug("Java: %s", line)
        else:
            print_lines(line, file=sys.stderr)
