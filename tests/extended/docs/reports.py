"""Stored reports that the pages about reports show."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import month_of
from sam_pipeline.spark_jobs.rules.figures import Member
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.fold import fold_all
from tests.support.reports.database import DAY, Grid, profile
from tests.support.reports.published_days import publish
from tests.support.reports.stored import execute

SITE, HOST = "EXAMPLE-SITE", "ce01.example.org"
RED_DAY = date(2026, 10, 14)
PROFILE = """
name = "critical"
validity_s = "off"
[flavours.CE]
metrics = ["ping"]
[functions.ce]
flavours = ["CE"]
"""
RESULTS = {
    "00:00": "OK",
    "06:00": "CRITICAL",
    "07:30": "CRITICAL",
    "09:00": "OK",
    "20:00": "UNKNOWN",
}


def fill_october(database: str) -> None:
    """A computed month, the results of its one red day, and critical.toml."""
    Path("critical.toml").write_text(PROFILE)
    grid = Grid(database)
    grid.endpoint(SITE, "CE", HOST)
    for time, status in RESULTS.items():
        grid.result(f"CE {HOST} ping", time, status, day=RED_DAY)
    times = {"startTime": f"{RED_DAY}T10:00:00Z", "endTime": f"{RED_DAY}T12:00:00Z"}
    grid.downtime("10:00", "12:00", siteName=SITE, **times)
    grid.group(SITE, "NORTH")
    grid.dispose()
    engine = make_engine(database)
    report = read_profile(Path("critical.toml"))
    for day in month_of(RED_DAY).days():
        timeline = {"00:00": "OK"}
        if day == RED_DAY:
            timeline = {**RESULTS, "10:00": "DOWNTIME", "12:00": "OK"}
            timeline = {at: timeline[at] for at in sorted(timeline) if at != "07:30"}
        members = [Member("federation", "NORTH", SITE, 1)]
        publish(engine, report, day, {f"{SITE} CE {HOST}": timeline}, members)
    fold_all(engine)
    engine.dispose()
    execute(database, "DELETE FROM changed_day")  # as after the night


def fill_two_days(database: str) -> None:
    engine = make_engine(database)
    report = profile(Path(), ('name = "test"', 'name = "critical"'))
    for day in (DAY, DAY + timedelta(days=1)):
        endpoints = {"A CE h1": {"00:00": "OK", "06:00": "CRITICAL"}, "B CE h2": {"00:00": "OK"}}
        publish(engine, report, day, endpoints, [Member("federation", "NORTH", "A", 1)])
    engine.dispose()


def fill_two_bad_days(database: str) -> None:
    engine = make_engine(database)
    Path("critical.toml").write_text(PROFILE)
    report = read_profile(Path("critical.toml"))
    for day, good_until in ((date(2026, 10, 14), "12:00"), (date(2026, 10, 15), "06:00")):
        timeline = {"00:00": "OK", good_until: "CRITICAL"}
        publish(
            engine, report, day, {"SITE-A CE ce01": timeline, "SITE-B CE ce02": {"00:00": "OK"}}
        )
    engine.dispose()


def fill_pings(database: str) -> None:
    """A result for each hour of a day."""
    grid = Grid(database)
    grid.endpoint("SITE-A", "CE", HOST)
    for hour in range(24):
        grid.result(f"CE {HOST} org.sam.CE-Ping", f"{hour:02}:00", "OK", day=DAY)
    grid.dispose()
