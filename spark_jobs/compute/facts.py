"""The facts of a run: what it read for each day, and what it did for each report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.compute.counts import ResultCounts
from sam_pipeline.spark_jobs.compute.plan import REASONS
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, in_ranges, moment
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published

EXCLUDED_HOST = "excluded-monitoring-host"
"""Why results were not even read; they are counted like those that are ignored by REASONS."""


@dataclass(frozen=True)
class Summary:
    """What a run did for one report; `str` is the line that `sam-report run` prints."""

    report: str
    period: Period
    facts: Sequence[DayFacts]
    published: Published
    seconds: float

    @property
    def results(self) -> int:
        return sum(day.results_read for day in self.facts)

    @property
    def instances(self) -> int:
        """The largest number of metric instances expected on one day."""
        return max(day.instances for day in self.facts)

    @property
    def until(self) -> int | None:
        """The time of the run, if the last day is still open."""
        return self.facts[-1].until

    @property
    def ignored(self) -> dict[str, int]:
        """The number of results that do not count, by reason."""
        reasons = (*REASONS, EXCLUDED_HOST)
        totals = {r: sum(day.results_ignored.get(r, 0) for day in self.facts) for r in reasons}
        return {reason: count for reason, count in totals.items() if count}

    @property
    def days_without_data(self) -> list[date]:
        """The days on which no result counts."""
        return [
            day.day for day in self.facts if day.results_read == sum(day.results_ignored.values())
        ]

    @property
    def archived(self) -> dict[date, int]:
        """The versions of days that were read from the archive."""
        return {day: version for facts in self.facts for day, version in facts.archived.items()}

    def __str__(self) -> str:
        ignored = ", ".join(f"{count} {reason}" for reason, count in self.ignored.items())
        parts = [
            plural(self.results, "result") + (f" ({ignored} ignored)" if ignored else ""),
            plural(self.instances, "metric instance"),
        ]
        if not self.instances:
            parts.append("nothing expected: the topology is empty")
        elif self.days_without_data:
            parts.append(f"no data on {in_ranges(self.days_without_data)}")
        if from_archive := sum(facts.day in facts.archived for facts in self.facts):
            parts.append(f"{plural(from_archive, 'day')} from the archive")
        if self.until is not None:
            parts.append(f"until {format_time(moment(self.until))}")
        if self.published.changes:
            parts.append(f"{plural(self.published.changes, 'figure')} changed")
        if self.published.sealed_days:
            days, figures = self.published.sealed_days, self.published.candidates
            parts.append(f"{plural(days, 'day')} sealed: {plural(figures, 'figure')} would change")
        return f"{self.report} {self.period}: {', '.join(parts)}, {self.seconds:.1f} s"

    def document(self) -> dict[str, Any]:
        """The object that `sam-report run --json` prints."""
        return {
            "report": self.report,
            "first_day": self.period.first,
            "last_day": self.period.last,
            "until": None if self.until is None else moment(self.until),
            "results_read": self.results,
            "results_ignored": self.ignored,
            "instances": self.instances,
            "days_without_data": self.days_without_data,
            "archive_versions": {str(day): number for day, number in self.archived.items()},
            "figures_changed": self.published.changes,
            "sealed_days": self.published.sealed_days,
            "figures_that_would_change": self.published.candidates,
            "seconds": round(self.seconds, 3),
        }


def day_facts(
    expected: DayExpectation,
    members: Sequence[Member],
    counts: ResultCounts,
    excluded: int,
    newest_result: int,
    archived: Mapping[date, int],
    profile: Profile,
    now: int,
) -> DayFacts:
    """The facts of a day.

    Args:
        counts: of all results that were read for the day.
        excluded: the number of results of excluded hosts.
        newest_result: the highest result_id when reading began.
        archived: the versions of days that were read from the archive.
    """
    ignored = {**dict(zip(REASONS, counts.ignored, strict=True)), EXCLUDED_HOST: excluded}
    return DayFacts(
        day=expected.day,
        until=now if now < Period(expected.day, expected.day).end else None,
        results_read=counts.read + excluded,
        results_ignored={reason: count for reason, count in ignored.items() if count},
        instances=expected.instances(profile),
        results_digest=f"{counts.digest:016x} {counts.carried_digest:016x}",
        topology_digest=expected.topology_digest,
        downtimes_digest=expected.downtimes_digest,
        exclusions_digest=expected.exclusions_digest,
        newest_result=newest_result,
        downtimes=expected.downtimes,
        exclusions=expected.exclusions,
        members=members,
        archived=archived,
    )
