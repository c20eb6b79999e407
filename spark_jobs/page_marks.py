"""Downtimes and exclusions of a site's day: shades behind the timelines, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_jobs.database_inputs import GROUP, METRIC, Downtime, Exclusion
from spark_jobs.days import moment
from spark_jobs.drawing import ANNOUNCED, COUNTS, EXCLUDED, Stroke, shade
from spark_jobs.levels import ENDPOINT, SITE
from spark_jobs.profile import Profile
from spark_jobs.stored import Names

_EFFECTS = {
    METRIC: "EXCLUDED: this time counts as not known",
    GROUP: "UNKNOWN for the site, its services keep what they had",
}
_NO_RESULTS = "results measured from there don't exist"


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
        site, flavour, host = endpoint
        return (
            exclusion.kind != GROUP
            and exclusion.site in ("", site)
            and exclusion.service_flavour in ("", flavour)
            and exclusion.host_name in ("", host)
            and (
                not exclusion.metric_name
                or exclusion.metric_name in self.profile.metrics_of(flavour)
            )
        )

    def _downtime_notes(self, endpoints: Sequence[Names]) -> Iterator[str]:
        for each in self.downtimes:
            if self._touches(each) and any(each.covers(*names) for names in endpoints):
                effect = "counts" if self._counts(each) else "changes no figure"
                of = _named(each.service_flavour, each.host_name) or "the whole site"
                text = f": {each.description}" if each.description else ""
                yield (
                    f"Downtime {each.classification}/{each.severity} ({effect}) of {of},"
                    f" {_span(each.start, each.end)}{text}"
                )

    def _exclusion_notes(self, site: str, endpoints: Sequence[Names]) -> Iterator[str]:
        for each in self.exclusions:
            of_site = each.kind == GROUP and each.site == site
            if self._touches(each) and (
                of_site or any(self._excludes(each, names) for names in endpoints)
            ):
                what = (
                    _named(
                        each.monitoring_host, each.metric_name, each.service_flavour, each.host_name
                    )
                    or site
                )
                effect = _EFFECTS.get(each.kind, _NO_RESULTS)
                yield (
                    f"Exclusion {each.exclusion_id} of {each.kind} {what} ({effect}),"
                    f" {_span(each.start, each.end)}: {each.reason} ({each.who})"
                )

    def _touches(self, each: Downtime | Exclusion) -> bool:
        return each.start < self.end and each.end > self.start


def _named(*names: str) -> str:
    return " ".join(filter(None, names))


def _span(start: int, end: int) -> str:
    return f"{moment(start):%Y-%m-%d %H:%M:%S} to {moment(end):%Y-%m-%d %H:%M:%S}"
