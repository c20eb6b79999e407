"""Why something had its status for a time, on one line, down to endpoints, metrics and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sam_pipeline.schema.program.wording import one_line, plural
from sam_pipeline.spark_jobs.explain.evidence import Evidence
from sam_pipeline.spark_jobs.explain.explanation import Reason, SiteDay
from sam_pipeline.spark_jobs.explain.failures import NOT_STORED
from sam_pipeline.spark_jobs.explain.phrases import (
    clock_text,
    downtime_text,
    exclusion_text,
    missing_text,
    threshold_text,
)
from sam_pipeline.spark_jobs.explain.results import JudgedResult
from sam_pipeline.spark_jobs.runs.published import Segment

_MAX_NAMES = 6
_MAX_SUMMARY = 160


def because(reason: Reason, site_day: SiteDay) -> str:
    """The cause of a segment of a site, function, service or endpoint."""
    announced = [*map(exclusion_text, reason.exclusions), *map(downtime_text, reason.downtimes)]
    deciding = _deciding(reason.deciding, reason.start, reason.end, site_day)
    return ", ".join([*announced, *deciding])


def because_of_segment(segment: Segment, start: int, end: int, site_day: SiteDay) -> str:
    """The causes of a segment of a child in [start, end); empty for a metric."""
    thing = site_day.thing_of.get((segment.level, segment.names))
    reasons = [r for r in (thing.reasons if thing else ()) if r.start < end and r.end > start]
    downtime = ["in downtime"] if any(reason.downtimes for reason in reasons) else []
    deciding = [segment for reason in reasons for segment in reason.deciding]
    return ", ".join([*downtime, *_deciding(deciding, start, end, site_day)])


def because_of_metric(evidence: Evidence) -> str:
    """Why a metric was not OK: its exclusion, no result, or the first result and their number."""
    if evidence.exclusions:
        return ", ".join(map(exclusion_text, evidence.exclusions))
    if evidence.status == "MISSING":
        return missing_text(evidence)
    if not evidence.results:
        return NOT_STORED
    first = evidence.results[0]
    judged = f" ({threshold_text(first)})" if isinstance(first, JudgedResult) else ""
    number = len(evidence.results)
    counted = f"; {plural(number, 'result')} until {clock_text(evidence.results[-1].measured)}"
    text = one_line(first.summary, _MAX_SUMMARY) or "(no text)"
    return f"{text}{judged}{counted if number > 1 else ''}"


def _deciding(
    segments: Iterable[Segment], start: int, end: int, site_day: SiteDay
) -> Iterator[str]:
    """Each thing once, with its own causes."""
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
