"""Downtimes and exclusions of a site's day: shades behind the timelines, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.phrases import downtime_words, exclusion_words
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.pages.drawing import ANNOUNCED, COUNTS, EXCLUDED, Stroke, shade
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, METRIC, SITE
from sam_pipeline.spark_jobs.runs.published import Names

_EFFECTS = {
    MONITORING_HOST: "what it measured does not count",
    METRIC: "this time counts as not known",
    GROUP: "the site is UNKNOWN, its services keep what they had",
}


@dataclass(frozen=True)
class Marks:
    """What was announced or excluded on a day that ends at `end`, of a site with `endpoints`."""

    profile: Profile
    downtimes: Sequence[Downtime]
    exclusions: Sequence[Exclusion]
    start: int
    end: int

    def shades(self, level: str, names: Names) -> list[Stroke]:
        """The shades of a lane: an endpoint's own; of a site what is meant for all of it."""
        downtimes, exclusions = self._of(level, names)
        counting = [(each.start, each.end) for each in downtimes if self._counts(each)]
        announced = [(each.start, each.end) for each in downtimes if not self._counts(each)]
        excluded = [(each.start, each.end) for each in exclusions]
        return [
            *shade(COUNTS, counting, self.start, self.end),
            *shade(ANNOUNCED, announced, self.start, self.end),
            *shade(EXCLUDED, excluded, self.start, self.end),
        ]

    def notes(self, site: str, endpoints: Sequence[Names]) -> list[str]:
        """Each downtime and exclusion that touches the site on this day, in words."""
        return [*self._downtime_notes(endpoints), *self._exclusion_notes(site, endpoints)]

    def _of(self, level: str, names: Names) -> tuple[list[Downtime], list[Exclusion]]:
        if level == ENDPOINT:
            return (
                [each for each in self.downtimes if each.covers(*names)],
                [each for each in self.exclusions if self._excludes(each, names)],
            )
        if level != SITE:
            return [], []
        return (
            [
                each
                for each in self.downtimes
                if each.site == names[0] and not each.host_name and not each.service_flavour
            ],
            [each for each in self.exclusions if each.kind == GROUP and each.site == names[0]],
        )

    def _counts(self, downtime: Downtime) -> bool:
        return self.profile.counts(downtime.classification, downtime.severity)

    def _excludes(self, exclusion: Exclusion, endpoint: Names) -> bool:
        metrics = self.profile.metrics_of(endpoint[1])
        return (
            exclusion.kind != GROUP
            and exclusion.covers(*endpoint)
            and (not exclusion.metric_name or exclusion.metric_name in metrics)
        )

    def _downtime_notes(self, endpoints: Sequence[Names]) -> Iterator[str]:
        for each in self.downtimes:
            if self._touches(each) and any(each.covers(*names) for names in endpoints):
                effect = "it counts" if self._counts(each) else "of a kind that changes no figure"
                yield f"{downtime_words(each)} ({effect})"

    def _exclusion_notes(self, site: str, endpoints: Sequence[Names]) -> Iterator[str]:
        for each in self.exclusions:
            of_site = each.kind == GROUP and each.site == site
            if self._touches(each) and (
                of_site or any(self._excludes(each, names) for names in endpoints)
            ):
                yield f"{exclusion_words(each)} ({_EFFECTS[each.kind]})"

    def _touches(self, each: Downtime | Exclusion) -> bool:
        return each.start < self.end and each.end > self.start
