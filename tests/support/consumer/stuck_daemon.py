"""`sam-consume run` with one defect, named by the first argument."""

from __future__ import annotations

import sys
import threading
import time

from sam_pipeline.consumer.cli import main
from sam_pipeline.consumer.sinks.database import DatabaseSink


def hang(*_: object) -> None:
    """Block the main loop, like a call that never returns."""
    time.sleep(3600)


def fail_beside() -> None:
    """Raise in a thread that nothing supervises."""
    time.sleep(1)
    raise ValueError("of a thread beside")


if __name__ == "__main__":
    if sys.argv[1] == "hanging":
        DatabaseSink.load = hang  # type: ignore[assignment,method-assign]
    elif sys.argv[1] == "failing":
        threading.Thread(target=fail_beside, daemon=True).start()
    sys.exit(main(["run"]))
