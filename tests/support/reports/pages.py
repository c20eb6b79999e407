"""Data for pages with every feature: two months, one of them sealed, an open day, downtimes,
exclusions, changes and a candidate; and for pages of the largest size."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.explain.results import ReadResults
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Downtime, Exclusion
from sam_pipeline.spark_jobs.pages.glance import Glance
from sam_pipeline.spark_jobs.pages.month import Month, site_matrix
from sam_pipeline.spark_jobs.pages.site import explained_days, site_view
from sam_pipeline.spark_jobs.pages.writer import PageFiles
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.spark_jobs.rules.levels import METRIC, SITE
from sam_pipeline.spark_jobs.runs.published import DayFigure, PublishedRun
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets
from sam_pipeline.sql.database.engine import writing
from tests.support.reports.database import Grid, profile
from tests.support.reports.month import (
    Size,
    insert,
    site_name,
    site_seconds,
    site_segments,
    write_month,
    write_results,
)

FIRST, LAST = date(2026, 10, 28), date(2026, 11, 4)
PERIOD = Period(FIRST, LAST)
OCTOBER, NOVEMBER = PERIOD.months()
SIZE = Size(sites=10, days=8, endpoints=5)
# This site fails on most days.
BAD_SITE = site_name(9)
MARKED_DAY = date(2026, 11, 2)
UNTIL = day_start(LAST) + 12 * 3600
REPORT = "test"


def fill(url: str, directory: Path) -> Grid:
    """Fill the database at `url`."""
    grid = Grid(url)
    with writing(grid.engine) as connection:
        write_month(connection, profile(directory), FIRST, SIZE)
        _mark(connection)
        _leave_open(connection)
        add_change(connection, 3, "results changed")
        seal = {"month": "2026-10", "revision": 1, "who": "boss", "reason": "", "sealed_at": UNTIL}
        insert(connection, "seal", [{"report": REPORT, **seal}])
        runs = enumerate(Period(FIRST, OCTOBER.last).days(), 1)
        of_seal = {"report": REPORT, "month": seal["month"], "revision": 1}
        rows = [{**of_seal, "day": str(day), "run_id": run_id} for run_id, day in runs]
        insert(connection, "revision_run", rows)
    with writing(grid.loader) as connection:
        write_results(connection, PERIOD, SIZE)
    return grid


def add_candidate(connection: Connection, number: int, day: date) -> None:
    """A run of a sealed day that would change a figure."""
    key = {"run_id": number, "report": REPORT, "day": str(day)}
    of_day = text("SELECT run_id, profile FROM report_run WHERE report = :report AND day = :day")
    old_run_id, stored = connection.execute(of_day, key).one()
    times = {"started_at": UNTIL, "finished_at": UNTIL + 60}
    insert(connection, "run", [{**key, **times, "state": "superseded", "profile": stored}])
    insert(connection, "candidate_run", [key])
    add_change(connection, number, "late results", old_run_id)


def add_change(
    connection: Connection, run_id: int, reason: str, old_run_id: int | None = None
) -> None:
    of_site = {"site": BAD_SITE}
    figures = {
        "old": '{"availability": 50.0, "reliability": 60.0}',
        "new": '{"availability": 75.12345, "reliability": null}',
    }
    for level, names in (("site", of_site), ("service", {**of_site, "service_flavour": "CE"})):
        row = {"run_id": run_id, "level": level, "names": json.dumps(names), **figures}
        insert(
            connection, "report_change_row", [{**row, "reason": reason, "old_run_id": old_run_id}]
        )


def _mark(connection: Connection) -> None:
    """Add downtimes and exclusions to the run of the day."""
    noon = day_start(MARKED_DAY) + DAY_S // 2
    times = (noon, noon + 7200)
    downtimes = [
        Downtime("D1", BAD_SITE, "", "", *times, "SCHEDULED", "OUTAGE", "new <kernel>"),
        Downtime("D2", BAD_SITE, "", "SRM", *times, "SCHEDULED", "WARNING", ""),
    ]
    exclusions = [
        Exclusion(1, METRIC, "", "put", "", "", "", *times, "the probe was wrong", "ada"),
        Exclusion(2, SITE, "", "", BAD_SITE, "", "", *times, "power cut", "ada"),
        Exclusion(3, MONITORING_HOST, "m1", "", "", "", "", *times, "its clock was wrong", "ada"),
    ]
    marks = {
        "downtimes": json.dumps([asdict(row) for row in downtimes]),
        "exclusions": json.dumps([asdict(row) for row in exclusions]),
        "day": str(MARKED_DAY),
    }
    connection.execute(
        text("UPDATE run SET downtimes = :downtimes, exclusions = :exclusions WHERE day = :day"),
        marks,
    )


def _leave_open(connection: Connection) -> None:
    until = ":until" if connection.dialect.name == "sqlite" else "to_timestamp(:until)"
    connection.execute(
        text(f"UPDATE run SET until = {until} WHERE day = :day"), {"until": UNTIL, "day": str(LAST)}
    )


def section_of(page: str, day: date) -> str:
    """The section of a day on the page of a site."""
    rest = page.partition(f'<div class="anchor" id="{day}">')[2]
    return re.split(r'<div class="anchor"|</section>', rest)[0]


def write_large_pages(out: Path, directory: Path) -> tuple[Path, Path]:
    """The month of 500 sites, and a site whose 20 endpoints change their status all the time."""

    def of_days(number: int, size: Size) -> list[DayFigure]:
        names = (site_name(number),)
        return [DayFigure(day, names, site_seconds(day, number, size)) for day in days.days()]

    files = PageFiles(out)
    days = Period(date(2026, 10, 1), date(2026, 10, 31))
    of_report = profile(directory)
    facts: tuple[Any, ...] = ("", None, 0, {}, 0, "", "", "", of_report, 0, (), ())
    runs = [PublishedRun(1, day, *facts) for day in days.days()]
    month = Month(REPORT, days, "large", runs, None, PeriodTargets(of_report))
    figures = {site_name(number): of_days(number, Size(500, 31, 5)) for number in range(500)}
    matrix = site_matrix(month, figures, [])
    files.write(
        "large/index.html", "month.html", view=matrix, month=month, groups=[], glance=Glance()
    )
    size = Size(1, 31, 20, flapping=48)
    timelines = {day: Timelines(site_segments(day, 0, size), of_report) for day in days.days()}
    explained = explained_days(month, site_name(0), timelines, ReadResults())
    view = site_view(month, of_days(0, size), explained)
    files.write("large/site.html", "site.html", view=view, month=month)
    return out / "large/index.html", out / "large/site.html"
