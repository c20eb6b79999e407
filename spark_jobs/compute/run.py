"""What a computation carries, and the seam to its sources: the database, and the archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import SparkContext
from sqlalchemy import Engine

from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.spark_jobs.compute.sources.instances import Instances
from sam_pipeline.spark_jobs.compute.tasks import Slice
from sam_pipeline.spark_jobs.inputs.announced import Announced
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import Period


def current_second() -> int:
    return int(time.time())


@dataclass(frozen=True)
class Run:
    """Spark at work on a database; `watching` encloses each of its jobs."""

    context: SparkContext
    engine: Engine
    clock: Callable[[], int] = current_second
    progress: Progress = field(default_factory=Progress)
    watching: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True)
class DaysToRead:
    """The days of a run that begins at `now` (epoch s): a period, and `look_back` days before it.

    Of the days before the period, only the results count that its first day begins with.
    """

    period: Period
    look_back: int
    now: int


class ResultSource(Protocol):
    """Where a run reads some of its days from.

    The methods are called in this order, `slices` once for each set of thresholds.
    """

    @property
    def days(self) -> Sequence[date]: ...

    def announced(self, others: Mapping[date, Announced]) -> Mapping[date, Announced]:
        """What is announced for its days in the period, and maybe for others.

        Args:
            others: what the sources before it have returned.
        """

    def instances(self, announced: Mapping[date, Announced]) -> pa.Table:
        """All metric instances that may have results, with the columns that `numbered` takes.

        Raises:
            ArchiveError: a file cannot be read, or is not what its manifest says.
        """

    def slices(
        self, instances: Instances, thresholds: Sequence[Threshold], apart_s: int | None, cores: int
    ) -> Sequence[Slice]:
        """The results in slices, at least one per core if there are enough.

        Args:
            apart_s: see compute/stretches.py.
        """

    def excluded(self) -> Mapping[int, int]:
        """The number of results from excluded monitoring hosts, by days since the epoch."""

    def newest_result(self, day: date) -> int:
        """The highest result_id that the results of a day may have."""

    def version(self, day: date) -> int | None:
        """The version of a day that is read, if the source has versions."""
