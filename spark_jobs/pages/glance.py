"""The month in ten seconds: which sites missed a target and why, and what many had at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sam_pipeline.schema.program.wording import duration, one_line
from sam_pipeline.spark_jobs.explain.incidents import Incident, ReportIncidents, SharedCause
from sam_pipeline.spark_jobs.pages.month import Matrix, MatrixRow, Month
from sam_pipeline.spark_jobs.pages.verdict import DOWNTIME, MISSED, PARTLY
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.seconds import Seconds, percent, short
from sam_pipeline.spark_jobs.runs.published import DayFigure

# The table of sites by day, and the page of incidents, have all.
_MAX_SITES, _MAX_SHARED = 8, 5
_MAX_TEXT = 100


@dataclass(frozen=True)
class MissedSite:
    """A site that missed a target, and what cost it most, in words."""

    row: MatrixRow
    why: str


@dataclass(frozen=True)
class Glance:
    """The sites that missed a target, the worst first, and causes that many sites shared."""

    missed: Sequence[MissedSite] = ()
    more: int = 0
    shared: Sequence[SharedCause] = ()


def glance(
    month: Month,
    matrix: Matrix,
    figures: Mapping[str, Sequence[DayFigure]],
    found: ReportIncidents,
) -> Glance:
    """The summary of a month, from the figures of each site's days and the incidents."""
    of_site: dict[str, list[Incident]] = {}
    for incident in found.longest_first:
        of_site.setdefault(incident.site, []).append(incident)
    missed = matrix.missed
    return Glance(
        [
            MissedSite(row, _why(month, row, figures[row.name], of_site.get(row.name, ())))
            for row in missed[:_MAX_SITES]
        ],
        len(missed[_MAX_SITES:]),
        found.shared[:_MAX_SHARED],
    )


def _why(
    month: Month, row: MatrixRow, days: Sequence[DayFigure], longest_first: Sequence[Incident]
) -> str:
    """The longest incident; or the time that is not known, or in downtime, if that decided."""
    seconds = sum((day.seconds for day in days), Seconds())
    if row.verdict is DOWNTIME:
        return _downtime(month, row.name, seconds)
    if longest_first and row.verdict in (MISSED, PARTLY) and not row.total.known.misses:
        return _incident(longest_first)
    parts = {"missing": seconds.missing, "unknown": seconds.unknown, "excluded": seconds.excluded}
    shares = [
        f"{name} {short(percent(part, seconds.total), 1)} %" for name, part in parts.items() if part
    ]
    most = max(days, key=lambda day: day.seconds.not_known).day
    why = f"{', '.join(shares).capitalize()} of the time, most on {most.day} {most:%B}"
    return f"{why}; {_incident(longest_first)}" if longest_first else why


def _incident(longest_first: Sequence[Incident]) -> str:
    incident = longest_first[0]
    begin = "before this month on" if incident.began_before else moment_text(incident.start)
    text = f"{duration(incident.duration_s)} from {begin}"
    if incident.is_open:
        text += ", open at the end"
    if cause := incident.cause:
        said = one_line(cause.example.text, _MAX_TEXT) or "(no text)"
        text += f": {said} ({cause.service_flavour} {cause.metric_name})"
    if len(longest_first) > 1:
        text += f"; {len(longest_first)} incidents in all"
    return text


def _downtime(month: Month, site: str, seconds: Seconds) -> str:
    announced = {
        downtime
        for run in month.runs
        for downtime in run.downtimes
        if downtime.site == site and run.counts(downtime)
    }
    text = f"Announced downtime for {duration(seconds.downtime)}"
    if announced:
        longest = max(announced, key=lambda d: (d.end - d.start, d.downtime_id))
        named = filter(None, (longest.downtime_id, one_line(longest.description, _MAX_TEXT)))
        text += f": {': '.join(named)}"
    return text


def moment_text(second: int) -> str:
    """A moment of the month: "7 October, 09:12"."""
    at = moment(second)
    return f"{at.day} {at:%B, %H:%M}"
