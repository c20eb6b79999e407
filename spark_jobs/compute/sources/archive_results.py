"""The results of a run in the archive: which files it reads, in which slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import SparkContext

from sam_pipeline.spark_jobs.compute.sources.archive_slices import (
    ArchiveReader,
    ArchiveSlice,
    ExcludedHost,
    NameIndex,
)
from sam_pipeline.spark_jobs.compute.sources.instances import Instances
from sam_pipeline.spark_jobs.compute.sources.survey import Surveyed, SurveyedFile, survey
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Announced
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays, archive_error
from sam_pipeline.spark_jobs.profiles.profile import Threshold
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_number, day_start
from sam_pipeline.sql.archive.manifest import RESULTS

_FILES_PER_CORE = 4


@dataclass(frozen=True)
class ArchiveResults:
    """The files of results, and what a survey found in them."""

    days: ArchivedDays
    files: Sequence[SurveyedFile]
    findings: Surveyed

    def slices(
        self,
        instances: Instances,
        thresholds: Sequence[Threshold],
        apart_s: int | None,
        cores: int,
    ) -> list[ArchiveSlice]:
        """The files in slices of row groups, at least one per core if they have enough."""
        reader = ArchiveReader(
            self.days.source,
            name_index(instances),
            thresholds,
            instances.shared(),
            apart_s,
        )
        per_file = -(-cores // max(len(self.files), 1))
        return [
            ArchiveSlice(reader, each.day, each.file, range(low, high), each.excluded, each.end)
            for each in self.files
            for groups in [self.findings.groups[each.file.name]]
            for low, high in pairwise(groups * number // per_file for number in range(per_file + 1))
            if low < high
        ]


def survey_results(
    context: SparkContext,
    archived: ArchivedDays,
    announced: Mapping[date, Announced],
    now: int,
) -> ArchiveResults:
    """Look at the files of all archived days.

    Raises:
        ArchiveError: a file cannot be read, or is not what its manifest says.
    """
    first = min(announced)
    files = [
        SurveyedFile(
            day_number(day),
            file,
            # Of the days before the first, those results count that the first day begins with.
            _excluded_hosts(announced[max(day, first)], day),
            min(day_start(day) + DAY_S, now),
        )
        for day in sorted(archived.manifests)
        for file in archived.files(day, RESULTS)
    ]
    findings = Surveyed()
    if files:
        source = archived.source
        tasks = min(len(files), _FILES_PER_CORE * context.defaultParallelism)
        for found in (
            context.parallelize(files, tasks)
            .mapPartitions(lambda of_task: survey(source, of_task))
            .collect()
        ):
            findings.add(found)
    if findings.problem is not None:
        raise archive_error(findings.problem.kind, findings.problem.text)
    return ArchiveResults(archived, files, findings)


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


def _excluded_hosts(announced: Announced, day: date) -> list[ExcludedHost]:
    start = day_start(day)
    return [
        ExcludedHost(exclusion.monitoring_host, exclusion.start, exclusion.end)
        for exclusion in announced.exclusions
        if exclusion.kind == MONITORING_HOST and exclusion.touches(start - 1, start + DAY_S)
    ]
