"""The page of the incidents of a month: causes that sites share, figures, and each incident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.explain.incidents.figures import IncidentFigures, ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.incident import Incident
from sam_pipeline.spark_jobs.explain.incidents.shared_causes import SharedCause, shared_causes
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.published import Names

# `sam-report incidents` lists them all.
_MAX_INCIDENTS, _MAX_SHARED = 200, 12
# An incident is drawn at least as wide as this share of the month.
_MIN_DRAWN = 300


@dataclass(frozen=True)
class IncidentRow:
    """A site with incidents; `d` draws them over the month, in seconds from its start."""

    site: str
    figures: IncidentFigures
    d: str


@dataclass(frozen=True)
class IncidentsView:
    """The longest incidents, and the causes that most sites had at once."""

    total: IncidentFigures
    sites: Sequence[IncidentRow]
    groups: Sequence[tuple[Names, IncidentFigures]]
    shared: Sequence[SharedCause]
    incidents: Sequence[Incident]

    @property
    def more(self) -> int:
        """The number of incidents that the page does not list."""
        return self.total.number - len(self.incidents)


def incidents_view(found: ReportIncidents) -> IncidentsView:
    spans: dict[str, list[tuple[int, int]]] = {}
    for incident in found.incidents:
        spans.setdefault(incident.site, []).append((incident.start, incident.end))
    longest = sorted(found.incidents, key=lambda i: (-i.duration_s, i.start, i.site))
    return IncidentsView(
        found.total,
        [
            IncidentRow(site, figures, _drawn(spans[site], found.period))
            for (site,), figures in found.by_site().items()
        ],
        list(found.by_group().items()),
        shared_causes(found.incidents)[:_MAX_SHARED],
        longest[:_MAX_INCIDENTS],
    )


def _drawn(spans: Sequence[tuple[int, int]], period: Period) -> str:
    """One path for the spans, which are in order; those that would overlap are drawn as one."""
    least = (period.end - period.start) // _MIN_DRAWN
    drawn: list[tuple[int, int]] = []
    for start, end in spans:
        if drawn and start < drawn[-1][1]:
            drawn[-1] = (drawn[-1][0], max(drawn[-1][1], end))
        else:
            drawn.append((start, max(end, start + least)))
    return "".join(f"M{start - period.start} 10h{end - start}" for start, end in drawn)
