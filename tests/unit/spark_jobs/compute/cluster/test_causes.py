"""The innermost cause of what Spark, Java and Python print, on one line."""

from __future__ import annotations

import pytest

from sam_pipeline.spark_jobs.compute.cluster.causes import cause, failure, is_stack
from sam_pipeline.spark_jobs.errors import SparkDiskFull, SparkFailed

FRAME = "\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:603)"
OF_JAVA = f"""An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'
{FRAME}
{FRAME}
"""
OF_TWO_LINES = f"""An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY] System memory 1 is low.
Please increase heap size.
{FRAME}
"""
OF_A_TASK = f"""An error occurred while calling z:org.apache.spark.api.python.PythonRDD.
: org.apache.spark.SparkException: Job aborted due to stage failure: most recent failure:\
 org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "tasks.py", line 1, in fold
TaskError: P0001: this disk is broken

{FRAME}
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "tasks.py", line 1, in fold
sam_pipeline.spark_jobs.compute.tasks.TaskError: P0001: this disk is broken

{FRAME}
\t... 1 more
"""
OF_A_SCRIPT = f"""Exception in thread "main" org.apache.spark.SparkException: Master must be one
{FRAME}
"""


@pytest.mark.parametrize(
    ("text", "innermost"),
    [
        (OF_JAVA, "Could not parse Master URL: 'local[x]'"),
        (
            OF_TWO_LINES,
            "[INVALID_DRIVER_MEMORY] System memory 1 is low. Please increase heap size.",
        ),
        (OF_A_TASK, "P0001: this disk is broken"),
        (OF_A_SCRIPT, "Master must be one"),
        ("Answer from Java side is empty", "Answer from Java side is empty"),
    ],
)
def test_the_innermost_cause_is_a_message_and_never_a_line_of_a_stack(
    text: str, innermost: str
) -> None:
    assert cause(text) == innermost


def test_lines_of_a_trace_of_java_are_known_from_others() -> None:
    lines = [
        FRAME,
        "\t... 12 more",
        "Caused by: java.io.IOException: broken",
        "java.util.concurrent.RejectedExecutionException: Task rejected",
        'Exception in thread "main" java.lang.Error: x',
    ]

    assert all(map(is_stack, lines))
    assert not any(map(is_stack, ["WARNING: sun.misc.Unsafe is deprecated", "at noon", ""]))


def test_a_full_disk_of_spark_is_an_error_of_its_own() -> None:
    full = failure("Spark failed", OSError("/a/blockmgr/15: No space left on device"), ["/a", "/b"])
    other = failure("Spark failed", OSError("broken"), ["/a"])

    assert isinstance(full, SparkDiskFull)
    assert "in /a, /b" in str(full)
    assert isinstance(other, SparkFailed)
    assert str(other) == "Spark failed: broken"
