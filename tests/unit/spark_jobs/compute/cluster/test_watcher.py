"""What is done while no worker of a cluster takes a task."""

from __future__ import annotations

from sam_pipeline.spark_jobs.compute.cluster.watcher import Step, Tasks, WorkerWait

WAITING = Tasks(total=4)
RUNNING = Tasks(total=4, done=1, running=2)


def steps(wait: WorkerWait, first_s: int, last_s: int, tasks: Tasks) -> dict[int, Step]:
    """The seconds at which a look each second does something."""
    looks = {second: wait.look(second, tasks) for second in range(first_s, last_s + 1)}
    return {second: step for second, step in looks.items() if step is not Step.NOTHING}


def test_a_warning_comes_after_ten_seconds_and_then_every_minute() -> None:
    wait = WorkerWait(timeout_s=600)

    warned = steps(wait, 0, 150, WAITING)

    assert warned == {10: Step.WARN, 70: Step.WARN, 130: Step.WARN}
    assert wait.waited(150) == "2 min 30 s"


def test_a_job_that_no_worker_takes_in_time_is_given_up() -> None:
    assert steps(WorkerWait(timeout_s=20), 0, 20, WAITING) == {10: Step.WARN, 20: Step.GIVE_UP}


def test_only_time_without_any_running_task_counts() -> None:
    wait = WorkerWait(timeout_s=20)

    before = steps(wait, 0, 9, WAITING)
    during = steps(wait, 10, 100, RUNNING)
    after = steps(wait, 101, 121, WAITING)

    assert before == during == {}
    assert after == {111: Step.WARN, 121: Step.GIVE_UP}


def test_a_context_without_a_job_waits_for_nothing() -> None:
    assert steps(WorkerWait(timeout_s=20), 0, 100, Tasks()) == {}
    assert steps(WorkerWait(timeout_s=20), 0, 100, Tasks(total=4, done=4)) == {}
