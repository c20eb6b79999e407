"""When something had which status, and why: on one line, down to endpoints, metrics and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.spark_jobs.explain.evidence import Evidence
from sam_pipeline.spark_jobs.explain.explanation import SiteDay, Thing
from sam_pipeline.spark_jobs.explain.phrases import (
    clock_text,
    downtime_text,
    exclusion_text,
    missing_text,
    span_text,
    threshold_text,
)
from sam_pipeline.spark_jobs.explain.results import JudgedResult
from sam_pipeline.spark_jobs.explain.timelines import FINE, uncovered
from sam_pipeline.spark_jobs.runs.published import PublishedRun, Segment

_MAX_NAMES = 6
_MAX_SUMMARY = 160


@dataclass(frozen=True)
class Stretch:
    """A time in which something had one status; `because` is empty if it was OK."""

    start: int
    end: int
    status: str
    because: str

    def __str__(self) -> str:
        because = f": {self.because}" if self.because else ""
        return f"{span_text(self.start, self.end)} {self.status}{because}"


def stretches(thing: Thing, site_day: SiteDay) -> list[Stretch]:
    """The day of a site, function, service or endpoint, each time with its cause."""
    because = {
        reason.start: ", ".join(
            [
                *map(exclusion_text, reason.exclusions),
                *map(downtime_text, reason.downtimes),
                *_deciding(reason.deciding, reason.start, reason.end, site_day),
            ]
        )
        for reason in thing.reasons
    }
    return [
        Stretch(segment.start, segment.end, segment.status, because.get(segment.start, ""))
        for segment in thing.segments
    ]


def metric_stretches(evidence: Sequence[Evidence], run: PublishedRun) -> list[Stretch]:
    """The day of a metric that was not always OK, each other time with its first result."""
    spans = [(each.start, each.end) for each in evidence]
    return sorted(
        [
            *(Stretch(*span, FINE, "") for span in uncovered(run.start, run.end, spans)),
            *(
                Stretch(each.start, each.end, each.status, _because_of_metric(each))
                for each in evidence
            ),
        ],
        key=attrgetter("start"),
    )


def because_of_segment(segment: Segment, start: int, end: int, site_day: SiteDay) -> str:
    """The causes of a segment of a child in [start, end); empty for a metric."""
    thing = site_day.thing_of.get((segment.level, segment.names))
    reasons = [r for r in (thing.reasons if thing else ()) if r.start < end and r.end > start]
    downtime = ["in downtime"] if any(reason.downtimes for reason in reasons) else []
    deciding = [segment for reason in reasons for segment in reason.deciding]
    return ", ".join([*downtime, *_deciding(deciding, start, end, site_day)])


def _deciding(
    segments: Iterable[Segment], start: int, end: int, site_day: SiteDay
) -> Iterator[str]:
    """The children that decide, each of them once, with their own causes."""
    last_of_thing = {
        (segment.level, segment.names): segment
        for segment in segments
        if segment.start < end and segment.end > start
    }
    for segment in list(last_of_thing.values())[:_MAX_NAMES]:
        first, last = max(start, segment.start), min(end, segment.end)
        below = because_of_segment(segment, first, last, site_day)
        yield f"{segment.level} {segment.names[-1]}{f': {below}' if below else ''}"
    if len(last_of_thing) > _MAX_NAMES:
        yield f"{len(last_of_thing) - _MAX_NAMES} more"


def _because_of_metric(evidence: Evidence) -> str:
    """Why a metric was not OK: its exclusion, no result, or the first result and their number."""
    if evidence.exclusions:
        return ", ".join(map(exclusion_text, evidence.exclusions))
    if evidence.status == "MISSING":
        return missing_text(evidence)
    if not evidence.results:
        return evidence.why_none
    first = evidence.results[0]
    judged = f" ({threshold_text(first)})" if isinstance(first, JudgedResult) else ""
    number = len(evidence.results)
    counted = f"; {number} results, the last at {clock_text(evidence.results[-1].measured)}"
    text = one_line(first.summary, _MAX_SUMMARY) or "(no text)"
    return f"{text}{judged}{counted if number > 1 else ''}"
