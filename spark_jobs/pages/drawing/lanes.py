"""The lanes of a site's day: what had which status, when, and why.

The texts are those of the explanation of the day, so a page says the same as `sam-report explain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sam_pipeline.schema.program.wording import duration, one_line
from sam_pipeline.spark_jobs.explain.because import Stretch, metric_stretches, stretches
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, Thing
from sam_pipeline.spark_jobs.explain.phrases import downtime_text, exclusion_text, span_text
from sam_pipeline.spark_jobs.explain.timelines import FINE
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.pages.drawing.timelines import (
    ANNOUNCED,
    COUNTS,
    EXCLUDED,
    Spot,
    Stroke,
    shade,
    spoken,
    spot,
    spots,
    status_strokes,
    svg,
)
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, METRIC, SITE
from sam_pipeline.spark_jobs.rules.seconds import short
from sam_pipeline.spark_jobs.runs.published import PublishedRun

# The stretches of a page to point at, and those listed; its days share them. A site that changes
# its status all the time has more than anyone would read.
_MAX_SPOTS = 2400
_MAX_LISTED = 600
_MAX_BECAUSE = 400


@dataclass(frozen=True)
class Lane:
    """The timeline of one thing; `spoken` is its text for screen readers.

    An endpoint has the lanes of its `metrics` that were not OK all day, if there is room;
    `ok_metrics` were.
    """

    level: str
    name: str
    availability: str
    shades: Sequence[Stroke]
    strokes: Sequence[Stroke]
    spots: Sequence[Spot]
    spoken: str
    metrics: Sequence[Lane] = ()
    ok_metrics: Sequence[str] = ()

    @cached_property
    def svg(self) -> str:
        return svg(self.spoken, (*self.shades, *self.strokes), self.spots)


@dataclass(frozen=True)
class StretchRow:
    """A stretch that was not OK in the list below the lanes."""

    level: str
    name: str
    times: str
    length: str
    status: str
    because: str


@dataclass(frozen=True)
class DayLanes:
    """All lanes of a day.

    `ok_endpoints` were OK all day and have no lane. The stretches that were not OK are listed `of`
    the site and of all `below` it; `left_out` is the number of those not listed.
    """

    lanes: Sequence[Lane]
    announced: Sequence[Lane]
    ok_endpoints: Sequence[str]
    of_site: Sequence[StretchRow]
    below: Sequence[StretchRow]
    left_out: int


def day_lanes(site_day: SiteDay, days: int) -> DayLanes:
    """The lanes of one of the `days` of a page, with the reason of every stretch."""
    room = _Room(_MAX_SPOTS // days)
    lanes: list[Lane] = []
    rows: list[StretchRow] = []
    ok_endpoints: list[str] = []
    for thing in site_day.things:
        name = " ".join(thing.names[1:]) or thing.names[0]
        shades = list(_shades(thing, site_day))
        metrics = {}
        if thing.level == ENDPOINT:
            metrics = {
                names[3]: metric_stretches(evidence, site_day.run)
                for names, evidence in site_day.metrics.items()
                if names[:3] == thing.names
            }
            if not (thing.reasons or metrics or shades):
                ok_endpoints.append(name)
                continue
        timeline = stretches(thing, site_day)
        rows += _rows(thing.level, name, timeline)
        lane = _lane(thing.level, name, timeline, room)
        of_metrics = [
            _lane(METRIC, metric, of, room) for metric, of in metrics.items() if room.has(of)
        ]
        for metric, of_metric in metrics.items():
            rows += _rows(METRIC, f"{name} {metric}", of_metric)
        known = site_day.run.profile.metrics_of(thing.names[1]) if metrics else ()
        lanes.append(
            replace(
                lane,
                availability=short(thing.seconds.availability),
                shades=shades,
                metrics=of_metrics,
                ok_metrics=[metric for metric in known if metric not in metrics],
            )
        )
    listed = rows[: _MAX_LISTED // days]
    return DayLanes(
        lanes,
        list(_announced(site_day)),
        ok_endpoints,
        [row for row in listed if row.level == SITE],
        [row for row in listed if row.level != SITE],
        len(rows) - len(listed),
    )


def ok_lane(site: str, run: PublishedRun) -> Lane:
    """The lane of a site that was OK all day."""
    timeline = [Stretch(run.start, run.end, FINE, "")]
    return _lane(SITE, site, timeline, _Room(1))


@dataclass
class _Room:
    """The number of stretches of the day to which one may still be able to point."""

    left: int

    def has(self, timeline: Sequence[Stretch]) -> bool:
        return len(timeline) <= self.left


def _lane(level: str, name: str, timeline: Sequence[Stretch], room: _Room) -> Lane:
    pointed = spots(timeline) if room.has(timeline) else []
    room.left -= len(pointed)
    return Lane(level, name, "", (), status_strokes(timeline), pointed, spoken(timeline))


def _rows(level: str, name: str, timeline: Iterable[Stretch]) -> Iterator[StretchRow]:
    for stretch in timeline:
        if stretch.status != FINE:
            length = duration(stretch.end - stretch.start)
            times = span_text(stretch.start, stretch.end, " to ")
            because = one_line(stretch.because, _MAX_BECAUSE)
            yield StretchRow(level, name, times, length, stretch.status, because)


def _shades(thing: Thing, site_day: SiteDay) -> Iterator[Stroke]:
    """The shades of a lane: an endpoint has its own, a site those that apply to all of it."""
    for downtime in site_day.downtimes:
        of_site = not downtime.host_name and not downtime.service_flavour
        if (thing.level == ENDPOINT and downtime.covers(*thing.names)) or (
            thing.level == SITE and of_site
        ):
            yield from _shade(site_day, downtime)
    measured = {
        (ignored.exclusion, ignored.result.service_flavour, ignored.result.host_name)
        for ignored in site_day.ignored
    }
    for exclusion in site_day.exclusions:
        if thing.level == SITE:
            applies = exclusion.kind == GROUP
        elif thing.level == ENDPOINT:
            metrics = site_day.run.profile.metrics_of(thing.names[1])
            covers = exclusion.covers(*thing.names) and exclusion.metric_name in metrics
            applies = covers or (exclusion, *thing.names[1:]) in measured
        else:
            applies = False
        if applies:
            yield from _shade(site_day, exclusion)


def _announced(site_day: SiteDay) -> Iterator[Lane]:
    """A lane for each downtime and exclusion of the day, which shows where it lies."""
    run = site_day.run
    announced: list[Downtime | Exclusion] = [*site_day.downtimes, *site_day.exclusions]
    for announcement in announced:
        if isinstance(announcement, Downtime):
            kind, name, text = "downtime", announcement.downtime_id, downtime_text(announcement)
        else:
            kind, name = "exclusion", str(announcement.exclusion_id)
            text = exclusion_text(announcement)
        start, end = max(announcement.start, run.start), min(announcement.end, run.end)
        if start < end:
            yield Lane(
                kind,
                name,
                "",
                _shade(site_day, announcement),
                (),
                [spot(start, end, text)],
                text,
            )


def _shade(site_day: SiteDay, announcement: Downtime | Exclusion) -> list[Stroke]:
    kind = EXCLUDED
    if isinstance(announcement, Downtime):
        kind = COUNTS if site_day.run.counts(announcement) else ANNOUNCED
    span = (announcement.start, announcement.end)
    return shade(kind, [span], site_day.run.start, site_day.run.end)
