"""A database whose pages show everything: two months, one of them sealed; an open day; downtimes,
exclusions, changes and a candidate."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

from sqlalchemy import Connection, text

from spark_jobs.database_inputs import GROUP, METRIC, MONITORING_HOST, Downtime, Exclusion
from spark_jobs.days import DAY_S, Period, day_start
from sql.engine import writing
from tests.integration.report_database import Grid, profile
from tests.integration.report_month import Size, insert, site_name, write_month, write_results

FIRST, LAST = date(2026, 10, 26), date(2026, 11, 4)
PERIOD = Period(FIRST, LAST)
OCTOBER, NOVEMBER = PERIOD.months()
SIZE = Size(sites=20, days=10, endpoints=5)
# Fails every other day.
BAD_SITE = site_name(18)
MARKED_DAY = date(2026, 11, 2)
UNTIL = day_start(LAST) + 12 * 3600
REPORT = "test"


def fill(url: str, directory: Path) -> Grid:
    """The database at `url`, filled."""
    grid = Grid(url)
    with writing(grid.engine) as connection:
        write_month(connection, profile(directory), FIRST, SIZE)
        _mark(connection)
        _leave_open(connection)
        add_change(connection, 3, "results changed")
        insert(
            connection,
            "seal",
            [{"report": REPORT, "month": "2026-10", "who": "boss", "sealed_at": UNTIL}],
        )
    with writing(grid.loader) as connection:
        write_results(connection, PERIOD, SIZE)
    return grid


def add_candidate(connection: Connection, number: int, day: date) -> None:
    """A run of a sealed day that would change a figure."""
    insert(
        connection,
        "run",
        [
            {
                "run_id": number,
                "report": REPORT,
                "day": str(day),
                "started_at": UNTIL,
                "finished_at": UNTIL + 60,
                "state": "superseded",
                "profile": "{}",
            }
        ],
    )
    insert(connection, "candidate_run", [{"report": REPORT, "day": str(day), "run_id": number}])
    add_change(connection, number, "late results")


def add_change(connection: Connection, run_id: int, reason: str) -> None:
    named = [{"site": BAD_SITE}, {"site": BAD_SITE, "service_flavour": "CE"}]
    insert(
        connection,
        "report_change_row",
        [
            {
                "run_id": run_id,
                "level": level,
                "names": json.dumps(names),
                "old": '{"availability": 50.0, "reliability": 60.0}',
                "new": '{"availability": 75.12345, "reliability": null}',
                "reason": reason,
            }
            for level, names in zip(("site", "service"), named, strict=True)
        ],
    )


def _mark(connection: Connection) -> None:
    """Downtimes and exclusions of the day, as its run has recorded them."""
    noon = day_start(MARKED_DAY) + DAY_S // 2
    times = (noon, noon + 7200)
    downtimes = [
        Downtime("D1", BAD_SITE, "", "", *times, "SCHEDULED", "OUTAGE", "new <kernel>"),
        Downtime("D2", BAD_SITE, "", "SRM", *times, "SCHEDULED", "WARNING", ""),
    ]
    exclusions = [
        Exclusion(1, METRIC, "", "put", "", "", "", *times, "the probe was wrong", "ada"),
        Exclusion(2, GROUP, "", "", BAD_SITE, "", "", *times, "power cut", "ada"),
        Exclusion(3, MONITORING_HOST, "m1", "", "", "", "", *times, "its clock was wrong", "ada"),
    ]
    connection.execute(
        text("UPDATE run SET downtimes = :downtimes, exclusions = :exclusions WHERE day = :day"),
        {
            "downtimes": json.dumps([asdict(each) for each in downtimes]),
            "exclusions": json.dumps([asdict(each) for each in exclusions]),
            "day": str(MARKED_DAY),
        },
    )


def _leave_open(connection: Connection) -> None:
    until = ":until" if connection.dialect.name == "sqlite" else "to_timestamp(:until)"
    connection.execute(
        text(f"UPDATE run SET until = {until} WHERE day = :day"), {"until": UNTIL, "day": str(LAST)}
    )
