"""A first look at the files of archived days: are they intact, and which instances do they have?

The files are looked at by tasks, which only read names; the numbers of rows are in the footers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.sources.archive_slices import (
    MONITORING_HOST,
    ExcludedHost,
    is_excluded,
    runs_of,
    seconds_of,
)
from sam_pipeline.spark_jobs.compute.sources.slice import NAMES
from sam_pipeline.spark_jobs.inputs.archive.files import (
    ArchivedFile,
    UnreadableFile,
    opened_parquet,
)
from sam_pipeline.sql.archive.data_source import DataSource


@dataclass(frozen=True)
class SurveyedFile:
    """A file of results of a day (in days since the epoch), and what a run ignores of it."""

    day: int
    file: ArchivedFile
    excluded: Sequence[ExcludedHost]
    end: int


@dataclass
class Surveyed:
    """What some files contain: the row groups of each by name, and the names of all instances.

    `excluded` counts the results before `end` of excluded hosts, by day. `problem` is why one of
    the files could not be read.
    """

    names: pa.Table = field(
        default_factory=lambda: pa.table({name: pa.array([], pa.string()) for name in NAMES})
    )
    groups: dict[str, int] = field(default_factory=dict)
    excluded: dict[int, int] = field(default_factory=dict)
    problem: UnreadableFile | None = None

    def add(self, other: Surveyed) -> None:
        self.names = distinct([self.names, other.names])
        self.groups |= other.groups
        for day, count in other.excluded.items():
            self.excluded[day] = self.excluded.get(day, 0) + count
        self.problem = self.problem or other.problem


def survey(source: DataSource, files: Iterable[SurveyedFile]) -> Iterator[Surveyed]:
    """Look at some files, until one cannot be read."""
    findings = Surveyed()
    try:
        for file in files:
            findings.add(_look_at(source, file))
    except UnreadableFile as unreadable:
        findings.problem = unreadable
    yield findings


def distinct(tables: Sequence[pa.Table]) -> pa.Table:
    """The different rows of tables with the columns NAMES."""
    return pa.concat_tables(tables).group_by(list(NAMES), use_threads=False).aggregate([])


def _look_at(source: DataSource, surveyed: SurveyedFile) -> Surveyed:
    findings = Surveyed()
    columns = [*NAMES, *(["measured_at", MONITORING_HOST] if surveyed.excluded else ())]
    names, count = [findings.names], 0
    with opened_parquet(source, surveyed.file, [*NAMES, MONITORING_HOST]) as parquet:
        findings.groups[surveyed.file.name] = parquet.num_row_groups
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, columns=columns, use_threads=False)
            if not len(rows):
                continue
            names.append(runs_of(rows).names())
            if surveyed.excluded:
                second = seconds_of(rows)
                is_out = is_excluded(rows, second, surveyed.excluded) & (second < surveyed.end)
                count += int(np.count_nonzero(is_out))
    findings.names = distinct(names)
    findings.excluded[surveyed.day] = count
    return findings
