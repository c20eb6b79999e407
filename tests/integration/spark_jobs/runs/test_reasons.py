"""The reason of a changed figure belongs to the figure, not to the whole run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, moment
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.sql.database.engine import make_engine, writing
from tests.support.database.sql_rows import query
from tests.support.reports.database import profile
from tests.support.reports.runs import FIRST, day_facts, url_of

START = day_start(FIRST)
NOON = START + DAY_S // 2
HOST_OF = {"LATE": "ce1", "EXCLUDED": "ce2", "DOWN": "ce3", "BOTH": "ce4", "NEW": "ce5"}
EXCLUSIONS = [
    Exclusion(1, "metric", "", "ping", "EXCLUDED", "", "", START, NOON, "wrong probe", "me"),
    Exclusion(2, "group", "", "", "BOTH", "", "", START, NOON, "agreed", "me"),
]
DOWNTIME = Downtime("D1", "", "ce3", "", START, NOON, "SCHEDULED", "OUTAGE", "new switch")
ALL = {"results_digest": "2", "topology_digest": "2", "downtimes_digest": "2"}

Metrics = Mapping[str, str]
"""The status of the metric until noon, by site; it is OK after noon."""


def run(engine: Engine, report: Profile, metrics: Metrics, **facts: object) -> int:
    """A run of a day with a site figure and the metric's timeline for each site."""
    reporter = make_engine(url_of(engine))
    [run_id] = record.begin(reporter, report, {FIRST: 1}, START + 2 * DAY_S)
    sqlite = engine.dialect.name == "sqlite"
    times = [second if sqlite else moment(second) for second in (START, NOON, START + DAY_S)]
    with writing(reporter) as connection:
        for site, status in metrics.items():
            row = {"run_id": run_id, "site": site, "host": HOST_OF[site], "ok_s": run_id}
            connection.execute(
                text(
                    "INSERT INTO site_figure (run_id, site, availability, reliability, ok_s,"
                    " warning_s, critical_s, unknown_s, missing_s, downtime_s, excluded_s)"
                    " VALUES (:run_id, :site, 50, 50, :ok_s, 0, 0, 0, 0, 0, 0)"
                ),
                row,
            )
            for start, end, of_half in ((*times[:2], status), (*times[1:], "OK")):
                connection.execute(
                    text(
                        "INSERT INTO timeline_segment (run_id, level, site, service_flavour,"
                        " host_name, metric_name, function, start_time, end_time, status)"
                        " VALUES (:run_id, 'metric', :site, 'CE', :host, 'ping', '', :start, :end,"
                        " :status)"
                    ),
                    {**row, "start": start, "end": end, "status": of_half},
                )
    of_day = [day_facts(FIRST, **facts)]
    record.note_facts(reporter, report, of_day, [run_id])
    record.publish(reporter, report, of_day, [run_id], START + 2 * DAY_S)
    reporter.dispose()
    return run_id


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    return profile(tmp_path)


def reasons(engine: Engine) -> dict[str, str]:
    rows = query(engine, "SELECT names, reason FROM report_change")
    return {json.loads(names)["site"]: reason for names, reason in rows}


def test_each_figure_has_the_reasons_that_concern_it(engine: Engine, report: Profile) -> None:
    before = dict.fromkeys(("LATE", "EXCLUDED", "DOWN", "BOTH"), "OK")
    old = run(engine, report, before)

    new = run(
        engine,
        report,
        {**before, "LATE": "CRITICAL", "EXCLUDED": "EXCLUDED", "BOTH": "WARNING", "NEW": "OK"},
        exclusions=EXCLUSIONS,
        downtimes=[DOWNTIME],
        exclusions_digest="2",
        **ALL,
    )

    assert reasons(engine) == {
        "LATE": "results changed",
        "EXCLUDED": "exclusions changed",
        "DOWN": "downtimes changed",
        "BOTH": "results changed, exclusions changed",
        "NEW": "topology changed",
    }
    assert query(engine, "SELECT DISTINCT run_id, old_run_id FROM report_change") == [(new, old)]


def test_a_change_of_the_whole_day_is_a_reason_of_every_figure(
    engine: Engine, report: Profile
) -> None:
    run(engine, report, {"LATE": "OK", "DOWN": "OK"}, until=NOON)

    run(engine, report, {"LATE": "CRITICAL", "DOWN": "OK"}, results_digest="2")

    assert reasons(engine) == {
        "LATE": "results changed, the day went on",
        "DOWN": "the day went on",
    }
