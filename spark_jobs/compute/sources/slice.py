"""The seam between the sources of results and the tasks that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sam_pipeline.spark_jobs.compute.stretches import Stretches

NAMES = ("host_name", "service_flavour", "metric_name", "vo", "fqan")
"""The names of an instance."""


class Slice(Protocol):
    """A part of the results of a day, or of the last ones of some days, that one task reads."""

    @property
    def day(self) -> int:
        """The last day of its results, in days since the epoch."""

    def read(self) -> Iterator[Stretches]:
        """The stretches, of instances by their numbers.

        Raises:
            TaskError: the source cannot be read.
        """
