"""Reads the results of archived days as stretches, in Spark's tasks; no database is needed.

The rows of a file are sorted by instance, so the names of an instance are looked up once for all of
its rows. A task holds one row group at a time, and only the columns that it needs.

Before, tasks look at the files (`survey`): are they intact, and which instances do they have? They
only read names; the numbers of rows are in the footers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.sources.database_slices import TaskError
from sam_pipeline.spark_jobs.compute.stretches import (
    NAMES,
    Flags,
    Results,
    Stretches,
    pack,
    status_of,
    stretches,
)
from sam_pipeline.spark_jobs.inputs.archive.files import (
    ArchivedFile,
    UnreadableFile,
    opened_parquet,
)
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import verdict_of
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.sql.archive.data_source import DataSource
from sam_pipeline.sql.archive.digests import STATUS_CODES

MONITORING_HOST = "monitoring_host"


class ExcludedHost(NamedTuple):
    """A monitoring host whose results in [start, end] do not exist (availability rule 7)."""

    name: str
    start: int
    end: int


class Runs(NamedTuple):
    """Successive rows with the same names: the first row of each run, and its names by column.

    A column is a list of different names, and the place of each run's name in it.
    """

    first: Integers
    columns: Sequence[tuple[pa.Array, Integers]]

    def names(self) -> pa.Table:
        """The names of each run."""
        columns = [names.take(pa.array(places)) for names, places in self.columns]
        return pa.table(columns, list(NAMES))


class NameIndex(NamedTuple):
    """Finds the numbers of instances by their names.

    `names` are the different names of each column, and the code of an instance is made of their
    places. `codes` are in order, and `numbers` are those of their instances.
    """

    names: Sequence[pa.Array]
    codes: Integers
    numbers: Integers

    def numbers_of(self, runs: Runs) -> Integers:
        """The number of the instance of each run."""
        code = np.zeros(len(runs.first), np.int64)
        for all_names, (names, places) in zip(self.names, runs.columns, strict=True):
            place = pc.index_in(names, value_set=all_names).to_numpy().astype(np.int64)
            code = code * len(all_names) + place[places]
        return self.numbers[np.searchsorted(self.codes, code)]


@dataclass(frozen=True)
class SurveyedFile:
    """A file of results of a day (in days since the epoch), and what a run ignores of it."""

    day: int
    file: ArchivedFile
    excluded: Sequence[ExcludedHost]
    end: int


@dataclass(frozen=True)
class ArchiveReader:
    """What all slices share; see compute/stretches.py for `alone` and `apart_s`."""

    source: DataSource
    index: NameIndex
    thresholds: Sequence[Threshold]
    alone: Integers
    apart_s: int | None


@dataclass(frozen=True)
class ArchiveSlice:
    """Some row groups of a file, without results of excluded hosts or at `end` and later."""

    reader: ArchiveReader
    of: SurveyedFile
    groups: range

    @property
    def day(self) -> int:
        return self.of.day

    def read(self) -> Iterator[Stretches]:
        file = self.of.file
        try:
            with opened_parquet(self.reader.source, file, [*NAMES, MONITORING_HOST]) as parquet:
                for group in self.groups:
                    yield self._stretches(parquet, group)
        except UnreadableFile as unreadable:
            raise TaskError(str(unreadable)) from None

    def _stretches(self, parquet: Any, group: int) -> Stretches:
        reader, excluded = self.reader, self.of.excluded
        columns = [*NAMES, "measured_at", "status", *([MONITORING_HOST] if excluded else ())]
        rows = parquet.read_row_group(group, columns=columns, use_threads=False)
        if not len(rows):
            return stretches(Results(*[np.empty(0, np.int64)] * 2), reader.alone, reader.apart_s)
        runs = runs_of(rows)
        lengths = np.diff(runs.first, append=len(rows))
        number = np.repeat(reader.index.numbers_of(runs), lengths)
        second = seconds_of(rows)
        packed = pack(second, STATUS_CODES[rows["status"].to_numpy()])
        # The results of the first and the last instance may continue in another row group, at the
        # same second.
        alone = np.concatenate([reader.alone, number[[0, -1]]])
        exists = second < self.of.end
        if excluded:
            exists &= ~is_excluded(rows, second, excluded)
        if reader.thresholds:
            self._judge(parquet, group, runs, lengths, packed)
        if not exists.all():
            number, packed = number[exists], packed[exists]
        return stretches(Results(number, packed), alone, reader.apart_s)

    def _judge(
        self, parquet: Any, group: int, runs: Runs, lengths: Integers, packed: Integers
    ) -> None:
        """Give results the status that thresholds change them to (availability rule 6)."""
        thresholds = self.reader.thresholds
        (hosts, host), (flavours, flavour), (metrics, metric), *_ = runs.columns
        names = pa.array({threshold.metric_name for threshold in thresholds})
        has_threshold = pc.is_in(metrics, value_set=names).to_numpy(zero_copy_only=False)[metric]
        if not has_threshold.any():
            return
        texts = parquet.read_row_group(group, columns=["performance_data"], use_threads=False)
        rows = np.flatnonzero(np.repeat(has_threshold, lengths))
        run_of_row = np.repeat(np.arange(len(lengths)), lengths)
        host_names, flavour_names, metric_names = (
            names.to_pylist() for names in (hosts, flavours, metrics)
        )
        values = texts["performance_data"].take(pa.array(rows)).to_pylist()
        for row, text in zip(rows.tolist(), values, strict=True):
            if text:
                run = run_of_row[row]
                status = int(status_of(packed[row]))
                verdict = verdict_of(
                    thresholds,
                    host_names[host[run]],
                    flavour_names[flavour[run]],
                    metric_names[metric[run]],
                    STATUSES[status],
                    text,
                )
                packed[row] += STATUSES.index(verdict.status) - status


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
        for each in files:
            columns = [*NAMES, *(["measured_at", MONITORING_HOST] if each.excluded else ())]
            names, count = [findings.names], 0
            with opened_parquet(source, each.file, [*NAMES, MONITORING_HOST]) as parquet:
                for group in range(parquet.num_row_groups):
                    rows = parquet.read_row_group(group, columns=columns, use_threads=False)
                    if not len(rows):
                        continue
                    names.append(runs_of(rows).names())
                    if each.excluded:
                        second = seconds_of(rows)
                        is_out = is_excluded(rows, second, each.excluded) & (second < each.end)
                        count += int(np.count_nonzero(is_out))
                findings.groups[each.file.name] = parquet.num_row_groups
            findings.names = distinct(names)
            findings.excluded[each.day] = findings.excluded.get(each.day, 0) + count
    except UnreadableFile as unreadable:
        findings.problem = unreadable
    yield findings


def distinct(tables: Sequence[pa.Table]) -> pa.Table:
    """The different rows of tables with the columns NAMES."""
    return pa.concat_tables(tables).group_by(list(NAMES), use_threads=False).aggregate([])


def runs_of(rows: pa.Table) -> Runs:
    """The runs of rows that have the columns NAMES, as dictionaries; there is at least one."""
    columns = []
    begins = np.zeros(len(rows), bool)
    begins[0] = True
    for name in NAMES:
        names, places = _dictionary(rows[name])
        columns.append((names, places))
        begins[1:] |= places[1:] != places[:-1]
    first = np.flatnonzero(begins)
    return Runs(first, [(names, places[first]) for names, places in columns])


def seconds_of(rows: pa.Table) -> Integers:
    """The times of results in epoch seconds, rounded down."""
    seconds: Integers = rows["measured_at"].to_numpy().astype("datetime64[s]").astype(np.int64)
    return seconds


def is_excluded(rows: pa.Table, second: Integers, excluded: Sequence[ExcludedHost]) -> Flags:
    """Whether results, measured at these seconds, are of excluded monitoring hosts."""
    names, places = _dictionary(rows[MONITORING_HOST])
    known = names.to_pylist()
    is_out = np.zeros(len(rows), bool)
    for host in excluded:
        if host.name in known:
            of_host = places == known.index(host.name)
            is_out |= of_host & (second >= host.start) & (second <= host.end)
    return is_out


def _dictionary(column: pa.ChunkedArray) -> tuple[pa.Array, Integers]:
    """The different names of a column, and the place of each row's name among them."""
    array = column.unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of older versions of Arrow
        array = array.chunk(0)
    names, places = array.dictionary, array.indices
    if places.null_count:
        names, places = pa.concat_arrays([names, pa.array([""])]), places.fill_null(len(names))
    return names, places.to_numpy()
