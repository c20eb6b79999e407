"""SIGINT and SIGTERM while a load test runs: it ends with its measurements.

with StopSignal() as stop:
    …
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any, Optional

from sam_pipeline.schema.program.command import INTERRUPTED, OK, TERMINATED

EXIT_CODES = {None: OK, signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class StopSignal:
    """Handles both signals in the block; `received` is the first one.

    From then on `descriptor` can be read, which ends a wait. A second signal interrupts at once.
    """

    def __init__(self) -> None:
        self.received: Optional[signal.Signals] = None
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.received]

    def __enter__(self) -> StopSignal:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before: list[tuple[signal.Signals, Any]] = [
            (number, signal.signal(number, self._receive)) for number in numbers
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._end)

    def _receive(self, number: int, frame: Optional[FrameType]) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        os.write(self._end, b"!")
