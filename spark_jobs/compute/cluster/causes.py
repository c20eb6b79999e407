"""What went wrong in Spark, on one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.spark_jobs.errors import SparkDiskFull, SparkFailed

# The message of an exception of Java or Python, until the next one or the frames of its stack.
_EXCEPTION = r"[\w.$]*(?:Error|Exception)(?:: |$)"
_CAUSE = re.compile(
    rf'^(?:Caused by: |: |Exception in thread "[^"]*" )?{_EXCEPTION}'
    rf"(\S.*(?:\n(?!\s|Caused by: |{_EXCEPTION}).+)*)",
    re.MULTILINE,
)
_STACK = re.compile(
    rf"^(?:\s+at |\s+\.\.\. \d+ |Caused by: |Exception in thread |{_EXCEPTION})", re.MULTILINE
)
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "Failed to create a temp directory")


def cause(text: str) -> str:
    """The innermost cause, which a trace of Java or Python prints last."""
    causes = _CAUSE.findall(text) or text.splitlines() or ["unknown"]
    return one_line(causes[-1])


def is_stack(line: str) -> bool:
    """Whether a line is part of the trace of an exception of Java."""
    return _STACK.match(line) is not None


def failure(what: str, error: Exception, directories: Sequence[str]) -> SparkFailed | SparkDiskFull:
    """An error of Spark as one of ours.

    Args:
        what: what failed.
        directories: where Spark writes temporary files.
    """
    innermost = cause(str(error) or type(error).__name__)
    if any(text in innermost for text in _NO_SPACE):
        return SparkDiskFull(
            f"no room for Spark's temporary files in {', '.join(directories)}: {innermost};"
            " make room, or choose another directory with --conf spark.local.dir=DIR"
        )
    return SparkFailed(f"{what}: {innermost}", innermost)
