"""What a run has read and done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from sam_pipeline.spark_jobs.compute.rows import EXCLUDED_HOST, REASONS
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_number
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published


@dataclass(frozen=True)
class Summary:
    """What a run did for one report."""

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
        newest_result: the last result_id that was there when reading began.
    """
    by_day = {row["day"]: row for row in counts}
    facts = []
    for day in expected:
        number = day_number(day.day)
        own, before = by_day.get(number, {}), by_day.get(number - 1, {})
        ignored = {**own, EXCLUDED_HOST: excluded.get(number)}
        facts.append(
            DayFacts(
                day=day.day,
                until=now if now < Period(day.day, day.day).end else None,
                results_read=(own.get("read") or 0) + excluded.get(number, 0),
                results_ignored={r: ignored[r] for r in REASONS if ignored.get(r)},
                instances=day.instances(profile),
                results_digest=f"{own.get('digest') or 0} {before.get('carried_digest') or 0}",
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
