"""A published October in which one site failed from the 2nd to the 19th, for one cause."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.spark_jobs.rules.days import Period, day_start, moment
from sam_pipeline.sql.database.engine import writing
from tests.support.reports.database import Grid, profile
from tests.support.reports.month import insert
from tests.support.reports.published_days import Timeline, publish

OCTOBER = Period(date(2026, 10, 1), date(2026, 10, 31))
FIRST_BAD, LAST_BAD = date(2026, 10, 2), date(2026, 10, 19)
BAD, GOOD = "PINE-T2", "ASTER-T1"
ENDPOINT = "SRM se1.pine.example.org"
FAILED: Timeline = {"00:00": "OK", "06:00": "CRITICAL", "18:00": "OK"}
RESULTS_A_DAY = 12


def fill(database: str | Engine, directory: Path) -> Grid:
    """Fill the database."""
    grid = Grid(database)
    report = profile(
        directory,
        ('["ping", "submit"]', '["ping"]'),
        ('["put"]', '["ping"]'),
        ("[functions.compute]", "[functions.ce]"),
        ("[functions.storage]", "[functions.srm]"),
    )
    for day in OCTOBER.days():
        of_bad: Timeline = FAILED if FIRST_BAD <= day <= LAST_BAD else {"00:00": "OK"}
        of_sites = {f"{BAD} {ENDPOINT}": of_bad, f"{GOOD} CE ce1": {"00:00": "OK"}}
        publish(grid.engine, report, day, of_sites)
    rows = [
        {
            "hostName": ENDPOINT.split()[1],
            "serviceFlavour": "SRM",
            "metricName": "ping",
            "metricStatus": "CRITICAL",
            "voName": "ops",
            "gatheredAt": "wn1",
            "timestamp": f"{moment(day_start(day) + hour * 3600):%Y-%m-%dT%H:%M:%SZ}",
            "summaryData": f"CRITICAL: checksum mismatch ({day.day * hour} tries)",
            "messageId": f"m-{day}-{hour}",
            "publisher": "key:nagios",
        }
        for day in Period(FIRST_BAD, LAST_BAD).days()
        for hour in range(6, 6 + RESULTS_A_DAY)
    ]
    with writing(grid.loader) as connection:
        insert(connection, "metricOutput", rows)
    return grid
