"""Work in several processes, in order, with the errors of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from sam_pipeline.spark_jobs.errors import CannotWriteFile
from sam_pipeline.spark_jobs.pages.drawing.processes import in_processes


def pid_and(number: int) -> tuple[int, int]:
    return os.getpid(), number


def test_results_come_in_order_from_other_processes() -> None:
    results = list(in_processes((partial(pid_and, number) for number in range(7)), at_most=3))

    assert [number for _, number in results] == list(range(7))
    assert os.getpid() not in {pid for pid, _ in results}


def test_an_error_of_another_process_is_raised_here_with_its_lines() -> None:
    def full() -> None:
        raise CannotWriteFile("a.html: No space left on device")

    works: list[Callable[[], object]] = [partial(pid_and, 1), full, partial(pid_and, 2)]

    with pytest.raises(CannotWriteFile) as raised:
        list(in_processes(works, at_most=2))

    assert raised.value.lines == ("a.html: No space left on device",)


def test_a_process_that_is_killed_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="code 9"):
        list(in_processes([lambda: os._exit(9)], at_most=2))
