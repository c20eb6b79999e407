"""A day of site A as a run has stored it, for tests of explanations and pages."""

from __future__ import annotations

from pathlib import Path

from sam_pipeline.spark_jobs.explain.explanation import SiteDay, explain_site
from sam_pipeline.spark_jobs.explain.results import ReadResults, Result
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import NAMES
from sam_pipeline.spark_jobs.runs.published import PublishedRun, Segment
from tests.support.reports.database import DAY, profile

MIDNIGHT = day_start(DAY)


class StoredDay:
    """Segments and results of the day, downtimes and exclusions."""

    def __init__(self, tmp_path: Path, *changes: tuple[str, str]) -> None:
        self.profile: Profile = profile(tmp_path, ('vo = "ops"\n', ""), *changes)
        self.segments: list[Segment] = []
        self.results: list[Result] = []
        self.downtimes: list[Downtime] = []
        self.announcers: dict[Downtime, str] = {}
        self.exclusions: list[Exclusion] = []

    def segment(self, level: str, names: str, *stretches: str) -> None:
        """Add segments; `names` are the keys below the site, a stretch is "06:00-24:00 OK"."""
        keys = ("A", *names.split())
        assert len(keys) == len(NAMES[level])
        for stretch in stretches:
            times, status = stretch.split()
            start, end = map(at, times.split("-"))
            self.segments.append(Segment(DAY, level, keys, start, end, status))

    def everywhere(self, *stretches: str) -> None:
        """Add the same segments at all levels above metric submit of the only CE; ping is OK."""
        self.segment("metric", "CE h1 ping", "00:00-24:00 OK")
        self.segment("endpoint", "CE h1", *stretches)
        self.segment("service", "CE", *stretches)
        self.segment("function", "compute", *stretches)
        self.segment("site", "", *stretches)

    def result(self, instance: str, time: str, status: str, **more: str) -> None:
        flavour, host, metric = instance.split()
        values = {"summary": f"{status} says {metric}", "message_id": f"m-{time}"}
        values |= {"publisher": "anonymous", "performance_data": "", "monitoring_host": "nagios"}
        values |= more
        self.results.append(Result(host, flavour, metric, at(time), status, **values))

    @property
    def run(self) -> PublishedRun:
        announced = (self.downtimes, self.exclusions)
        return PublishedRun(1, DAY, "", None, 0, {}, 0, "", "", "", self.profile, 2**62, *announced)

    @property
    def results_of(self) -> ReadResults:
        results = ReadResults()
        for result in sorted(self.results, key=lambda result: result.measured):
            instance = (result.service_flavour, result.host_name, result.metric_name)
            results.setdefault(instance, []).append(result)
        return results

    def day(self) -> SiteDay:
        timelines = Timelines(self.segments, self.profile)
        return explain_site("test", "A", self.run, timelines, self.results_of, self.announcers)


def at(time: str) -> int:
    """The epoch second of hh:mm on the day; each leading tilde is a day before."""
    hours, minutes = time.lstrip("~").split(":")
    return MIDNIGHT + int(hours) * 3600 + int(minutes) * 60 - time.count("~") * DAY_S
