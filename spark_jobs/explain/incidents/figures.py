"""Figures of incidents: their number, their durations, the time to repair and between failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.explain.incidents.incident import Incident
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.figures import Member
from sam_pipeline.spark_jobs.runs.published import DayFigure, Names, PublishedRun


@dataclass(frozen=True)
class IncidentFigures:
    """The incidents of a site, a group or a report over a period, in seconds.

    `mttr_s` is the mean time to repair: the mean duration of the incidents that began and ended
    within the period. `mtbf_s` is the mean time between failures: the time in which the sites were
    up, divided by the number of incidents. Both are None if there is nothing to divide by.
    """

    number: int
    open: int
    longest_s: int
    total_s: int
    mttr_s: int | None
    mtbf_s: int | None


def figures_of(incidents: Sequence[Incident], up_s: int) -> IncidentFigures:
    durations = [incident.duration_s for incident in incidents]
    whole = [i.duration_s for i in incidents if not i.is_open and not i.began_before]
    return IncidentFigures(
        number=len(incidents),
        open=sum(incident.is_open for incident in incidents),
        longest_s=max(durations, default=0),
        total_s=sum(durations),
        mttr_s=sum(whole) // len(whole) if whole else None,
        mtbf_s=up_s // len(incidents) if incidents else None,
    )


@dataclass(frozen=True)
class ReportIncidents:
    """The incidents of a report over a period, in order of time.

    `days` are the figures of its sites, and `members` the members of groups, on each day.
    """

    report: str
    period: Period
    runs: Sequence[PublishedRun]
    incidents: Sequence[Incident]
    days: Sequence[DayFigure]
    members: Sequence[tuple[date, Member]] = ()

    @property
    def total(self) -> IncidentFigures:
        return figures_of(self.incidents, sum(day.seconds.up for day in self.days))

    def by_site(self) -> dict[Names, IncidentFigures]:
        """The sites with incidents: the longest total first."""
        return self._by({(day.day, day.names[0]): [day.names] for day in self.days})

    def by_group(self) -> dict[Names, IncidentFigures]:
        """The groups with incidents, by type and name: the longest total first.

        An incident counts in the groups of which its site was a member when it began.
        """
        groups: dict[tuple[date, str], list[Names]] = {}
        for day, member in self.members:
            group = (member.group_type, member.group_name)
            groups.setdefault((day, member.site), []).append(group)
        return self._by(groups)

    def _by(
        self, things: Mapping[tuple[date, str], Sequence[Names]]
    ) -> dict[Names, IncidentFigures]:
        """The figures of all things with incidents that a site counts in on a day."""
        incidents: dict[Names, list[Incident]] = {}
        for incident in self.incidents:
            for names in things.get((moment(incident.start).date(), incident.site), ()):
                incidents.setdefault(names, []).append(incident)
        up_s = dict.fromkeys(incidents, 0)
        for day in self.days:
            for names in things.get((day.day, day.names[0]), ()):
                if names in up_s:
                    up_s[names] += day.seconds.up
        figures = {
            names: figures_of(of_thing, up_s[names]) for names, of_thing in incidents.items()
        }
        return dict(sorted(figures.items(), key=lambda item: (-item[1].total_s, item[0])))
