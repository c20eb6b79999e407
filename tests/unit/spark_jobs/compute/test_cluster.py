"""Masters that are looked for, workers that are waited for, and the cause of what Spark prints."""

from __future__ import annotations

import socket

import pytest

from sam_pipeline.spark_jobs.compute.cluster.session import Step, Tasks, WorkerWait
from sam_pipeline.spark_jobs.compute.cluster.start import cause, failure, require_master
from sam_pipeline.spark_jobs.errors import SparkDiskFull, SparkFailed

FRAME = "\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:603)"
OF_JAVA = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
OF_PYTHON = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "tasks.py", line 1, in fold
TaskError: P0001: this disk is broken

"""
WAITING = Tasks(total=4)
RUNNING = Tasks(total=4, done=1, running=2)


@pytest.mark.parametrize(
    ("text", "innermost"),
    [
        (
            (
                f"{OF_JAVA}org.apache.spark.SparkRuntimeException: [MEMORY] Memory is low.\n"
                f"Please increase heap size.\n{FRAME}\n"
            ),
            "[MEMORY] Memory is low. Please increase heap size.",
        ),
        (
            (
                f"{OF_JAVA}org.apache.spark.SparkException: Job aborted: {OF_PYTHON}{FRAME}\n"
                f"Caused by: {OF_PYTHON}{FRAME}\n\t... 1 more"
            ),
            "P0001: this disk is broken",
        ),
        ("Answer from Java side is empty", "Answer from Java side is empty"),
    ],
)
def test_the_innermost_cause_is_a_message_and_never_a_line_of_a_stack(
    text: str, innermost: str
) -> None:
    assert cause(text) == innermost


def test_a_full_disk_of_spark_is_an_error_of_its_own() -> None:
    full = failure("Spark failed", OSError("/a/blockmgr/15: No space left on device"), ["/a", "/b"])
    other = failure("Spark failed", OSError("broken"), ["/a"])

    assert isinstance(full, SparkDiskFull) and "in /a, /b" in str(full)
    assert isinstance(other, SparkFailed) and str(other) == "Spark failed: broken"


def test_one_standalone_master_that_listens_is_enough_and_others_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away, there = (f"127.0.0.1:{of.getsockname()[1]}" for of in (closed, listening))

        for master in (f"spark://{away},{there}", "local[2]", "yarn"):
            require_master(master)
        with pytest.raises(SparkFailed) as refused:
            require_master(f"spark://{away},here,here:x")

    for problem in (f"{away}: connection refused", "here: not a master", "here:x: not a master"):
        assert problem in str(refused.value)


def test_a_job_without_a_running_task_warns_after_ten_seconds_and_is_given_up_in_the_end() -> None:
    def steps(wait: WorkerWait, first_s: int, last_s: int, tasks: Tasks) -> dict[int, Step]:
        looks = {second: wait.look(second, tasks) for second in range(first_s, last_s + 1)}
        return {second: step for second, step in looks.items() if step is not Step.NOTHING}

    wait = WorkerWait(timeout_s=20)

    before = steps(wait, 0, 9, WAITING)
    during = steps(wait, 10, 100, RUNNING)
    after = steps(wait, 101, 121, WAITING)

    assert before == during == {}
    assert after == {111: Step.WARN, 121: Step.GIVE_UP}
    patient = steps(WorkerWait(timeout_s=600), 0, 150, WAITING)
    assert patient == {10: Step.WARN, 70: Step.WARN, 130: Step.WARN}
    for no_job in (Tasks(), Tasks(total=4, done=4)):
        assert steps(WorkerWait(timeout_s=20), 0, 100, no_job) == {}
