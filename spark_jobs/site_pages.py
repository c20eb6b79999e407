"""`sam-report site`: an offline HTML site from stored figures. No scripts, no outside sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy import Connection

from spark_jobs.database_inputs import downtimes, results
from spark_jobs.days import Period
from spark_jobs.drawing import HOURS
from spark_jobs.explanation import explain_site
from spark_jobs.figures import Seconds, short
from spark_jobs.levels import GROUP, SITE
from spark_jobs.pages import ReportView, SiteView, report_view, site_link, site_view
from spark_jobs.status import FOLDED
from spark_jobs.stored import Segment, day_figures, published_reports, published_runs, timeline
from spark_jobs.summary import period_figures
from spark_jobs.verdict import LEGEND

TEMPLATES = Path(__file__).parent / "templates"


def write_site(connection: Connection, report: str | None, period: Period, out: Path) -> list[str]:
    """Write the pages into `out`; their paths there.

    A page is replaced at once, so a reader never sees half of one.
    """
    names = published_reports(connection, report, period)
    written = []
    views = []
    for name in names:
        view = _report_view(connection, name, period)
        views.append(view)
        for page in _site_views(connection, view, period):
            path = site_link(name, page.site)
            _write(out / path, "site.html", view=page, up="../", period=period)
            written.append(path)
    _write(out / "index.html", "index.html", reports=views, up="", period=period)
    return ["index.html", *written]


def _report_view(connection: Connection, name: str, period: Period) -> ReportView:
    return report_view(
        name,
        period,
        published_runs(connection, name, period),
        list(day_figures(connection, name, SITE, period)),
        period_figures(connection, name, GROUP, period),
    )


def _site_views(connection: Connection, view: ReportView, period: Period) -> Iterator[SiteView]:
    announced = downtimes(connection, period)
    bad = results(connection, period, view.runs[-1].profile, only_bad=True)
    figures = list(day_figures(connection, view.name, SITE, period))
    for row in view.sites:
        found = timeline(connection, view.name, period, site=row.site)
        by_day = {day: list(each) for day, each in groupby(found, key=_day_of)}
        days = [
            explain_site(view.name, row.site, run, by_day.get(run.day, []), bad, announced)
            for run in view.runs
        ]
        own = [each for each in figures if each.names == (row.site,)]
        yield site_view(view.name, row.site, view.runs, own, days)


def _day_of(segment: Segment) -> object:
    return segment.day


def _write(path: Path, template: str, **values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = _environment().get_template(template).render(**values)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(
        legend=LEGEND, statuses=FOLDED, hours=HOURS, short=short, hours_of=_hours_of
    )
    return environment


def _hours_of(seconds: Seconds, status: str) -> str:
    """Hours with two decimals; nothing where there were none."""
    held: int = getattr(seconds, status.lower())
    return f"{held / 3600:.2f}" if held else ""
