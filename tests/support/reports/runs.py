"""Runs of a report without Spark, described in a few lines."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.runs import record as run_record
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.services.postgres import as_role

FIRST = date(2025, 10, 1)
"""A day that is closed whenever the tests run."""


def url_of(engine: Engine) -> str:
    """The URL for the reporter role, which all runs here use."""
    if engine.dialect.name == "sqlite":
        return f"sqlite:///{engine.get_execution_options()['sam_file']}"
    return as_role(engine.url.render_as_string(hide_password=False), "reporter")


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
    ok_s: int = DAY_S,
    *,
    publish: bool = True,
    now: int | None = None,
) -> tuple[int, Published | None]:
    """Run one day as sam_reporter: site A is OK for `ok_s`, then CRITICAL.

    Returns:
        The run's number, and the publication if `publish`.
    """
    reporter = make_engine(url_of(engine))
    moment = day_start(facts.day) + 2 * DAY_S if now is None else now
    with writing(reporter) as connection:
        change_no = take_changes(connection)
    [run_id] = run_record.begin(reporter, profile, {facts.day: change_no}, moment)
    with writing(reporter) as connection:
        connection.execute(
            text(
                "INSERT INTO site_figure (run_id, site, availability, reliability, ok_s, warning_s,"
                " critical_s, unknown_s, missing_s, downtime_s, excluded_s)"
                " VALUES (:run_id, 'A', :percent, :percent, :ok_s, 0, :critical_s, 0, 0, 0, 0)"
            ),
            {
                "run_id": run_id,
                "percent": 100.0 * ok_s / DAY_S,
                "ok_s": ok_s,
                "critical_s": DAY_S - ok_s,
            },
        )
    run_record.note_facts(reporter, profile, [facts], [run_id])
    done = None
    if publish:
        done = run_record.publish(reporter, profile, [facts], [run_id], moment)
    reporter.dispose()
    return run_id, done
