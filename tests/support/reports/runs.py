"""Runs of a report without Spark, described in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from sqlalchemy import Engine

from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.runs import record as run_record
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.support.database.roles import acting_as
from tests.support.reports.published_days import Timeline, write_day

FIRST = date(2025, 10, 1)
"""A day that is closed whenever the tests run."""


def day_facts(day: date, **changes: object) -> DayFacts:
    """The facts that a run has read about a closed day."""
    facts = DayFacts(
        day=day,
        until=None,
        results_read=3,
        results_ignored={},
        instances=1,
        results_digest="results",
        topology_digest="topology",
        downtimes_digest="downtimes",
        members=(),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def computed(
    engine: Engine,
    profile: Profile,
    facts: DayFacts,
    endpoints: Mapping[str, Timeline] | None = None,
    *,
    ok_h: int = 24,
    publish: bool = True,
    now: int | None = None,
) -> tuple[int, Published | None]:
    """Run one day as sam_reporter; without `endpoints` that of site A is OK for `ok_h` hours.

    Returns:
        The run's number, and the publication if `publish`.
    """
    failing = {} if ok_h == 24 else {f"{ok_h:02}:00": "CRITICAL"}
    moment = day_start(facts.day) + 2 * DAY_S if now is None else now
    with acting_as("reporter", engine) as reporter:
        with writing(reporter) as connection:
            change_no = take_changes(connection)
        [run_id] = run_record.begin(reporter, profile, {facts.day: change_no}, moment)
        with writing(reporter) as connection:
            timelines = endpoints or {"A CE h1": {"00:00": "OK", **failing}}
            write_day(connection, run_id, facts.day, timelines, facts.until)
        run_record.note_facts(reporter, profile, [facts], [run_id])
        done = None
        if publish:
            done = run_record.publish(reporter, profile, [facts], [run_id], moment)
    return run_id, done
