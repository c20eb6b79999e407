"""The lanes of a site's day as SVG: what had which status, when, and why.

For each status a lane has one path of horizontal strokes, in minutes of the day. It is 1440 units
wide and 20 high, and scales to any width. On top of it lie invisible spots as high as the lane,
with the times and the reason of a stretch as their title. The style sheet sets the width and dashes
of strokes in pixels (`vector-effect: non-scaling-stroke`), so scaling does not distort them.

The texts are those of the explanation of the day: a page shows the same as `sam-report explain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape

from sam_pipeline.schema.program.wording import one_line, printable
from sam_pipeline.spark_jobs.explain.as_text import (
    Stretch,
    downtime_text,
    exclusion_text,
    metric_stretches,
    span_text,
    stretches,
)
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, Thing
from sam_pipeline.spark_jobs.explain.timelines import FINE
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, SITE
from sam_pipeline.spark_jobs.rules.seconds import short
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.spark_jobs.runs.published import PublishedRun

HOURS = range(0, 25, 3)
# The number of segments of a timeline that a screen reader reads.
_MAX_SPOKEN = 4
_MAX_TITLE = 160
# The minimum drawn length of a segment that is not OK: a minute would be invisible.
_MIN_DRAWN_S = 240
# The stretches of a page to point at, and those listed; its days share them. A site that changes
# its status all the time has more than anyone would read.
_MAX_SPOTS = 2400
_MAX_LISTED = 600


@dataclass(frozen=True)
class Stroke:
    """A path: `kind` is its class in the style sheet, `d` its data."""

    kind: str
    d: str


@dataclass(frozen=True)
class Spot:
    """An invisible path to point at."""

    d: str
    title: str


# Short class names, as a page has many lanes.
ALL_DAY = "M0 0h1440"
KINDS = {status: status[:2].lower() for status in STATUSES}
LEGEND = [(Stroke(KINDS[status], ALL_DAY), status) for status in STATUSES]
COUNTS, ANNOUNCED, EXCLUDED = "sc", "sa", "se"
SHADES = [
    (Stroke(COUNTS, ALL_DAY), "announced downtime that counts"),
    (Stroke(ANNOUNCED, ALL_DAY), "announced downtime that does not count"),
    (Stroke(EXCLUDED, ALL_DAY), "exclusion"),
]


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


StretchRow = tuple[str, str, Stretch]
"""Level and name of a stretch that was not OK."""


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
        rows += ((thing.level, name, stretch) for stretch in timeline)
        lane = _lane(thing.level, name, timeline, room)
        of_metrics = [
            _lane(METRIC, metric, of, room) for metric, of in metrics.items() if room.has(of)
        ]
        for metric, of_metric in metrics.items():
            rows += ((METRIC, f"{name} {metric}", stretch) for stretch in of_metric)
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
    rows = [row for row in rows if row[2].status != FINE]
    listed = rows[: _MAX_LISTED // days]
    return DayLanes(
        lanes,
        list(_announced(site_day)),
        ok_endpoints,
        [row for row in listed if row[0] == SITE],
        [row for row in listed if row[0] != SITE],
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
            applies = exclusion.kind == SITE
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


def status_strokes(timeline: Iterable[Stretch]) -> list[Stroke]:
    """A path for each status that occurs; the worst are drawn last, on top."""
    lines: dict[str, list[str]] = {}
    for stretch in timeline:
        min_s = 0 if stretch.status == STATUSES[0] else _MIN_DRAWN_S
        lines.setdefault(stretch.status, []).append(_line(stretch.start, stretch.end, min_s))
    return [Stroke(KINDS[status], "".join(lines[status])) for status in STATUSES if status in lines]


def spots(timeline: Iterable[Stretch]) -> list[Spot]:
    """A spot for each stretch; short ones lie on top, so that one can point at them."""
    longest_first = sorted(timeline, key=lambda stretch: stretch.start - stretch.end)
    return [spot(stretch.start, stretch.end, str(stretch)) for stretch in longest_first]


def spot(start: int, end: int, title: str) -> Spot:
    return Spot(_line(start, end, _MIN_DRAWN_S), one_line(title, _MAX_TITLE))


def svg(label: str, strokes: Iterable[Stroke], spots: Sequence[Spot]) -> str:
    """A lane as markup; a page has too many of them for a template."""
    paths = "".join(f'<path class="{stroke.kind}" d="{stroke.d}"/>' for stroke in strokes)
    titled = "".join(
        f'<path d="{spot.d}"><title>{escape(spot.title)}</title></path>' for spot in spots
    )
    points = f"<g>{titled}</g>" if spots else ""
    return (
        '<svg class="l" viewBox="0 -10 1440 20" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(printable(label))}">{paths}{points}</svg>'
    )


def shade(kind: str, spans: Iterable[tuple[int, int]], start: int, end: int) -> list[Stroke]:
    """One path to draw behind the statuses, for spans clipped to [start, end); none if empty."""
    clipped = [(max(first, start), min(last, end)) for first, last in spans]
    d = "".join(_line(first, last, _MIN_DRAWN_S) for first, last in clipped if first < last)
    return [Stroke(kind, d)] if d else []


def spoken(timeline: Sequence[Stretch]) -> str:
    """The timeline as a screen reader reads it; the list below the lanes has the reasons."""
    if len(timeline) == 1 and timeline[0].end - timeline[0].start == DAY_S:
        return f"{timeline[0].status} all day"
    parts = [f"{s.status} {span_text(s.start, s.end)}" for s in timeline[:_MAX_SPOKEN]]
    left_out = len(timeline) - _MAX_SPOKEN
    if left_out > 0:
        parts.append(f"and {left_out} more")
    return ", ".join(parts)


def _line(start: int, end: int, min_s: int) -> str:
    # A page has many lines, and no screen more pixels than minutes for one.
    first = min(start % DAY_S, DAY_S - min_s)
    left, right = (round(second / 60) for second in (first, first + max(end - start, min_s)))
    return f"M{left} 0h{right - left}"
