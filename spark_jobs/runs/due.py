"""The days that `sam-report run` computes: those on the command line, or those that are due.

Loaders record the days whose inputs they change. Before it reads anything, `sam-report run` numbers
the recorded changes (`take_changes`), and its runs store that number. A later change has no number
yet, or a higher one, so its day is due again.

Of changes that are not of results, few concern every report: a downtime may be that of a site of
another one. Reading them is cheap, so `only_changed` finds that out before Spark starts.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import Announced, read_announced
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges, periods
from sam_pipeline.spark_jobs.runs import record

_ONE_DAY = timedelta(days=1)
# The candidate of a sealed day is newer than its published run.
_RUNS = text(
    "SELECT day, run_id, change_no, look_back, results_digest, input_digest, downtimes, exclusions"
    " FROM report_run WHERE report = :report AND state IN ('published', 'candidate')"
    " AND until IS NULL AND day BETWEEN :first AND :last ORDER BY run_id"
)
_SAME = text("UPDATE run SET change_no = :change_no WHERE run_id = :run_id")


@dataclass(frozen=True)
class DueReport:
    """A report to compute over days that are published together."""

    profile: Profile
    period: Period


def requested_reports(
    connection: Connection,
    profiles: Sequence[Profile],
    period: Period,
    *,
    force: bool,
    archived: Container[date] = (),
) -> list[DueReport]:
    """Every report with the same days, those of a period.

    Args:
        archived: the days that are read from the archive.
    Raises:
        ReportUsage: results of its first days were pruned, and the archive does not have them.
            Unless `force` is set, the figures that were computed from all results stay.
    """
    first_day = horizon(connection) or date.min
    frozen = [day for day in period.days() if day < first_day and day not in archived]
    if frozen and not force:
        raise ReportUsage(
            f"{in_ranges(frozen)}: frozen, as results before {first_day} were pruned;"
            " use --force to compute from the rest"
        )
    return [DueReport(profile, period) for profile in profiles]


def due_days(connection: Connection, report: str, today: date) -> list[date]:
    """The closed days since the first result that must be computed or recomputed, oldest first.

    Such a day was never computed, was open when it was computed, or has changed since; so may have
    the days before it whose results count. Days before the horizon are never due.
    """
    changed = changed_days(connection)
    if not changed:
        return []
    rows = connection.execute(
        text(
            "SELECT day, until, change_no, look_back FROM report_run"
            " WHERE report = :report AND state IN ('published', 'candidate') ORDER BY run_id"
        ),
        {"report": report},
    )
    # The candidate of a sealed day is newer than its published run.
    computed = {as_day(day): row for day, *row in rows}
    first = max(min(changed), horizon(connection) or date.min)
    changed = {day: number for day, number in changed.items() if day >= first}

    def is_due(day: date) -> bool:
        if day not in computed:
            return True
        until, seen_no, look_back = computed[day]
        return until is not None or has_changed(changed, day, look_back, seen_no)

    return list(filter(is_due, Period(first, today - _ONE_DAY).days()))


def only_changed(
    connection: Connection, due: Sequence[DueReport], change_no: int, now: int
) -> list[DueReport]:
    """The due reports without the days whose inputs are the same, which no longer are due."""
    look_back = max((report.profile.look_back for report in due), default=1)
    results = changed_days(connection, "results_no")
    announced: dict[date, Announced] = {}
    changed = []
    for report in due:
        rows = connection.execute(_RUNS, {"report": report.profile.name, **report.period.bounds})
        runs = {
            day: row
            for row in rows
            for day in [as_day(row.day)]
            if not has_changed(results, day, row.look_back, row.change_no)
        }
        for period in periods(sorted(day for day in runs if day not in announced)):
            announced |= read_announced(connection, period, look_back)
        same = set()
        for day, run in runs.items():
            of_day, profile = announced[day], report.profile
            expected = expect(day, of_day, profile, now)
            facts = record.DayFacts.of(profile, expected, of_day.members, run.results_digest)
            if (run.input_digest, run.downtimes, run.exclusions) == (
                record.input_digests(profile, facts)["input_digest"],
                record.as_json(facts.downtimes),
                record.as_json(facts.exclusions),
            ):
                same.add(day)
                connection.execute(_SAME, {"change_no": change_no, "run_id": run.run_id})
        days = [day for day in report.period.days() if day not in same]
        changed += [DueReport(report.profile, period) for period in periods(days)]
    return changed


def changed_days(connection: Connection, column: str = "change_no") -> dict[date, int | None]:
    """The newest change of each day, or of its results; None if no run has read it yet."""
    rows = connection.execute(text(f"SELECT day, {column} FROM report_changed_day"))
    return {as_day(day): number for day, number in rows}


def has_changed(
    changed: Mapping[date, int | None], day: date, look_back: int, seen_no: int
) -> bool:
    """Whether a day, or one of those before it whose results count, has changed after `seen_no`."""
    # A result also marks the day after its own, so the first day that counts is not asked for.
    read = (day - number * _ONE_DAY for number in range(look_back))
    newest = [changed[each] for each in read if each in changed]
    return any(number is None or number > seen_no for number in newest)


def first_result_day(connection: Connection) -> date | None:
    """The day of the first result; None without results, or if the first ones were pruned."""
    if horizon(connection) is not None:
        return None
    day = connection.scalar(text("SELECT min(day) FROM report_changed_day"))
    return None if day is None else as_day(day)


def horizon(connection: Connection) -> date | None:
    """The first day that still has all its results; None if no results were ever pruned."""
    day = connection.scalar(text("SELECT day FROM report_horizon"))
    return None if day is None else as_day(day)
