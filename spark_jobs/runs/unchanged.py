"""Due days of which a report would read again what its run has read.

Of changes that are not of results, few concern every report: a downtime may be that of a site of
another one. Reading them is cheap, so this is found out before Spark starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.inputs.announced import Announced, read_announced
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import as_day, periods
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.spark_jobs.runs.due import DueReport, changed_days, has_changed

# The candidate of a sealed day is newer than its published run.
_RUNS = text(
    "SELECT day, run_id, change_no, look_back, results_digest, input_digest, downtimes, exclusions"
    " FROM report_run WHERE report = :report AND state IN ('published', 'candidate')"
    " AND until IS NULL AND day BETWEEN :first AND :last ORDER BY run_id"
)
_SAME = text("UPDATE run SET change_no = :change_no WHERE run_id = :run_id")


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
            facts = _facts(report.profile, day, announced[day], run.results_digest, now)
            if (run.input_digest, run.downtimes, run.exclusions) == (
                record.input_digests(report.profile, facts)["input_digest"],
                record.as_json(facts.downtimes),
                record.as_json(facts.exclusions),
            ):
                same.add(day)
                connection.execute(_SAME, {"change_no": change_no, "run_id": run.run_id})
        days = [day for day in report.period.days() if day not in same]
        changed += [DueReport(report.profile, period) for period in periods(days)]
    return changed


def _facts(
    profile: Profile, day: date, of: Announced, results_digest: str, now: int
) -> record.DayFacts:
    """The facts of a run that would read the same results."""
    expected = expect(day, of, profile, now)
    return record.DayFacts(
        day=day,
        until=None,
        results_read=0,
        results_ignored={},
        instances=expected.instances(profile),
        results_digest=results_digest,
        topology_digest=expected.topology_digest,
        downtimes_digest=expected.downtimes_digest,
        members=of.members,
        exclusions_digest=expected.exclusions_digest,
        downtimes=expected.downtimes,
        exclusions=expected.exclusions,
    )
