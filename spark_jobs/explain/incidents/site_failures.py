"""The failures of a site on some days, read from the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from operator import attrgetter

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.failures import failing_instances, failures
from sam_pipeline.spark_jobs.explain.results import CountedResults, Results, read_results
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.published import Run, timeline

# A site that was down all month has more failing results than anyone would read.
_MAX_RESULTS = 50_000


@dataclass(frozen=True)
class SiteFailures:
    """The timelines of a site, without metrics that were OK, its results that were not OK, and the
    failures that follow from both, by day."""

    timelines: Mapping[date, Timelines]
    results: Results
    failures: Mapping[date, Sequence[Failure]]


def read_site_failures(
    connection: Connection, report: str, site: str, runs: Sequence[Run]
) -> SiteFailures:
    """The failures of a site on the days of the runs, which are in order."""
    run_of = {run.day: run for run in runs}
    period = Period(runs[0].day, runs[-1].day)
    segments = timeline(connection, report, period, site=site, ok_metrics=False)
    timelines = {
        day: Timelines(of_day, run_of[day].profile)
        for day, of_day in groupby(segments, attrgetter("day"))
        if day in run_of
    }
    failing = {instance for of_day in timelines.values() for instance in failing_instances(of_day)}
    results = read_results(connection, runs, failing, with_ok=False, at_most=_MAX_RESULTS)
    found = {
        day: failures(of_day, CountedResults(run_of[day], results))
        for day, of_day in timelines.items()
    }
    return SiteFailures(timelines, results, found)
