"""Reads days from the archive: which files, in which slices; a first look finds the instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.compute.planning import Instances
from sam_pipeline.spark_jobs.compute.run import DaysToRead, Run
from sam_pipeline.spark_jobs.compute.sources.archive_slices import (
    ArchiveReader,
    ArchiveSlice,
    ExcludedHost,
    NameIndex,
    Surveyed,
    SurveyedFile,
    survey,
)
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Announced
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays
from sam_pipeline.spark_jobs.inputs.archive.reading import archive_error, files_of, read_archived
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_number, day_start
from sam_pipeline.sql.archive.manifest import RESULTS

_FILES_PER_CORE = 4


class ArchiveSource:
    """The days that are `archived`; of their files, a first look collects the instances."""

    def __init__(self, run: Run, read: DaysToRead, archived: ArchivedDays) -> None:
        self.days = sorted(archived.manifests)
        self._run = run
        self._read = read
        self._archived = archived
        self._files: Sequence[SurveyedFile] = ()
        self._findings = Surveyed()

    def announced(self, others: Mapping[date, Announced]) -> Mapping[date, Announced]:
        stored = next((of_day.exclusions for of_day in others.values()), ())
        return read_archived(self._archived, self._read.period, self._read.look_back, stored)

    def instances(self, announced: Mapping[date, Announced]) -> pa.Table:
        self._files = [
            SurveyedFile(day_number(day), file, excluded, min(start + DAY_S, self._read.now))
            for day in self.days
            for start in [day_start(day)]
            for excluded in [
                [
                    ExcludedHost(exclusion.monitoring_host, exclusion.start, exclusion.end)
                    for exclusion in announced[max(day, self._read.period.first)].exclusions
                    if exclusion.kind == MONITORING_HOST
                    and exclusion.touches(start - 1, start + DAY_S)
                ]
            ]
            for file in files_of(self._archived, day, RESULTS)
        ]
        if self._files:
            self._run.progress.stage("looking at the files of the archive")
            context, source = self._run.context, self._archived.source
            tasks = min(len(self._files), _FILES_PER_CORE * context.defaultParallelism)
            files = context.parallelize(self._files, tasks)
            with self._run.watching():
                for found in files.mapPartitions(lambda of_task: survey(source, of_task)).collect():
                    self._findings.add(found)
        if (problem := self._findings.problem) is not None:
            raise archive_error(problem.kind, problem.text)
        return self._findings.names

    def slices(
        self, instances: Instances, thresholds: Sequence[Threshold], apart_s: int | None, cores: int
    ) -> list[ArchiveSlice]:
        """The files in slices of row groups."""
        index, alone = name_index(instances), instances.shared()
        reader = ArchiveReader(self._archived.source, index, thresholds, alone, apart_s)
        per_file = -(-cores // max(len(self._files), 1))
        return [
            ArchiveSlice(reader, each, range(low, high))
            for each in self._files
            for groups in [self._findings.groups[each.file.name]]
            for low, high in pairwise(groups * number // per_file for number in range(per_file + 1))
            if low < high
        ]

    def excluded(self) -> Mapping[int, int]:
        return self._findings.excluded

    def newest_result(self, day: date) -> int:
        return self._archived.manifests[day].source.newest_result

    def version(self, day: date) -> int:
        return self._archived.manifests[day].version


def name_index(instances: Instances) -> NameIndex:
    """Finds the instances by their names in files."""
    flavour, host = (
        pa.array(names, pa.string()).dictionary_encode()
        for names in zip(*instances.endpoints or [("", "")], strict=True)
    )
    columns = [
        (host.dictionary, host.indices.to_numpy()[instances.endpoint]),
        (flavour.dictionary, flavour.indices.to_numpy()[instances.endpoint]),
        *(
            (pa.array(names, pa.string()), places)
            for names, places in (
                (instances.metrics, instances.metric),
                (instances.vos, instances.vo),
                (instances.fqans, instances.fqan),
            )
        ),
    ]
    code = np.zeros(len(instances.ids), np.int64)
    for names, places in columns:
        code = code * len(names) + places
    in_order = np.argsort(code)
    return NameIndex([names for names, _ in columns], code[in_order], in_order)
