"""The facts of a run: what it read for each day, and what it did for each report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.compute.rows import EXCLUDED_HOST, REASONS
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_number, moment
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published


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
        totals = {r: sum(day.results_ignored.get(r, 0) for day in self.facts) for r in REASONS}
        return {reason: count for reason, count in totals.items() if count}

    @property
    def days_without_data(self) -> list[date]:
        """The days on which no result counts."""
        return [
            day.day for day in self.facts if day.results_read == sum(day.results_ignored.values())
        ]

    def __str__(self) -> str:
        ignored = ", ".join(f"{count} {reason}" for reason, count in self.ignored.items())
        parts = [
            plural(self.results, "result") + (f" ({ignored} ignored)" if ignored else ""),
            plural(self.instances, "metric instance"),
        ]
        if not self.instances:
            parts.append("nothing expected: the topology is empty")
        elif self.days_without_data:
            parts.append(f"no data on {', '.join(map(str, self.days_without_data))}")
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
            "figures_changed": self.published.changes,
            "sealed_days": self.published.sealed_days,
            "figures_that_would_change": self.published.candidates,
            "seconds": round(self.seconds, 3),
        }


def day_facts(
    expected: Iterable[DayExpectation],
    members: Mapping[date, Sequence[Member]],
    counts: Iterable[Mapping[str, Any]],
    excluded: Mapping[int, int],
    newest_result: int,
    profile: Profile,
    now: int,
) -> list[DayFacts]:
    """The facts of each day.

    Args:
        counts: the rows of rows.counts.
        excluded: the number of results of excluded hosts, by day since the epoch.
        newest_result: the highest result_id when reading began.
    """
    by_day = {row["day"]: row for row in counts}
    facts = []
    for day in expected:
        number = day_number(day.day)
        counted, carried = by_day.get(number, {}), by_day.get(number - 1, {})
        ignored = {**counted, EXCLUDED_HOST: excluded.get(number)}
        facts.append(
            DayFacts(
                day=day.day,
                until=now if now < Period(day.day, day.day).end else None,
                results_read=(counted.get("read") or 0) + excluded.get(number, 0),
                results_ignored={r: ignored[r] for r in REASONS if ignored.get(r)},
                instances=day.instances(profile),
                results_digest=f"{counted.get('digest') or 0} {carried.get('carried_digest') or 0}",
                topology_digest=day.topology_digest,
                downtimes_digest=day.downtimes_digest,
                exclusions_digest=day.exclusions_digest,
                newest_result=newest_result,
                downtimes=day.downtimes,
                exclusions=day.exclusions,
                members=members[day.day],
            )
        )
    return facts
