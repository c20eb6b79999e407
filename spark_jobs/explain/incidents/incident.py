"""Incidents of a site, found in its timeline.

An incident begins when the site becomes CRITICAL, and ends with the last CRITICAL second before the
site is up again (OK or WARNING). Time without a known status (UNKNOWN, MISSING, EXCLUDED) between
two CRITICAL times belongs to the incident, because nothing showed that the site had been repaired.
A downtime that counts ends an incident: from then on the outage is announced. So does a day without
figures. Midnight and the end of a month do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sam_pipeline.spark_jobs.explain.causes import Cause, Failure, causes
from sam_pipeline.spark_jobs.runs.published import Segment

_NOT_KNOWN = ("UNKNOWN", "MISSING", "EXCLUDED")


@dataclass(frozen=True)
class Incident:
    """A time [start, end) in epoch seconds in which a site failed, within a period.

    If it `began_before`, the site failed from the first second of the period. If it `is_open`,
    the site was not up again by the end of the period, or of its data.
    """

    site: str
    start: int
    end: int
    began_before: bool
    is_open: bool
    causes: Sequence[Cause] = ()

    @property
    def duration_s(self) -> int:
        return self.end - self.start

    def touches(self, start: int, end: int) -> bool:
        return self.start < end and self.end > start

    @property
    def cause(self) -> Cause | None:
        """The cause with the worst status, and of these the most frequent one."""
        return self.causes[0] if self.causes else None


def find_incidents(site: str, segments: Iterable[Segment], start: int) -> list[Incident]:
    """The incidents of a site in a period from `start` on, without causes.

    `segments` are those of the site, in order of time.
    """
    spans: list[tuple[int, int]] = []
    lasts, last_end = False, start
    for segment in segments:
        lasts = lasts and segment.start == last_end
        last_end = segment.end
        if segment.status == "CRITICAL":
            spans.append((spans.pop()[0] if lasts else segment.start, segment.end))
            lasts = True
        elif segment.status not in _NOT_KNOWN:
            lasts = False
    return [
        Incident(site, *span, began_before=span[0] == start, is_open=lasts and span is spans[-1])
        for span in spans
    ]


def with_causes(incident: Incident, failures: Iterable[Failure]) -> Incident:
    """The incident with the causes of the failures that cost availability while it lasted."""
    # A failure that lasts over midnight is one of both days.
    during = {
        (failure.service_flavour, failure.host_name, failure.metric_name, failure.at): failure
        for failure in failures
        if failure.costs and incident.touches(failure.at, failure.until)
    }
    return replace(incident, causes=causes(during.values()))


def in_order(incidents: Iterable[Incident]) -> list[Incident]:
    """The incidents in order of time, then by site."""
    return sorted(incidents, key=lambda incident: (incident.start, incident.site))
