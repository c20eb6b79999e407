"""`sam-report pages`: offline HTML pages from stored figures, without external sources.

    index.html                       every report and month
    REPORT/2026.html                 sites and groups by month (--year)
    REPORT/2026-11/index.html        sites by day
    REPORT/2026-11/SITE.html#DAY     a site, with the explanation of each day
    REPORT/2026-11/groups/TYPE.html  federations, regions, VOs
    REPORT/2026-11/days/DAY.html     all sites over the hours of a day
    REPORT/2026-11/trends.html       the most status changes
    REPORT/2026-11/incidents.html    how often sites failed, for how long, and why
    REPORT/2026-11/changes.html      figures that a later run changed
    REPORT/2026-11/revisions.html    figures that each seal of the month changed

The period only chooses the months: the pages of a month always show all of it, and depend only on
what is published and on which other months have pages, so links stay valid. A month is left as it
is if none of this has changed. Some sites are in memory at a time, and are drawn on all processors.
Pages that link to others are written after them.
"""

from __future__ import annotations

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date
from functools import partial
from itertools import chain, groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection

from sam_pipeline.schema.messages.message import chunks
from sam_pipeline.spark_jobs.explain.explanation import read_failing
from sam_pipeline.spark_jobs.explain.incidents import (
    Incident,
    ReportIncidents,
    in_order,
    site_incidents,
)
from sam_pipeline.spark_jobs.explain.results import MAX_RESULTS_OF_SITE, ReadResults
from sam_pipeline.spark_jobs.explain.timelines import Timelines
from sam_pipeline.spark_jobs.inputs.announced import announcers, site_contacts
from sam_pipeline.spark_jobs.pages.glance import glance
from sam_pipeline.spark_jobs.pages.hours import HourRow, hour_rows, hours_pages
from sam_pipeline.spark_jobs.pages.lists import (
    changes_page,
    incidents_page,
    revisions_page,
    trends_page,
)
from sam_pipeline.spark_jobs.pages.month import Month, by_site, group_matrices, site_matrix
from sam_pipeline.spark_jobs.pages.navigation import Key, neighbours, pages_of_month
from sam_pipeline.spark_jobs.pages.site import explained_days, site_view
from sam_pipeline.spark_jobs.pages.start import start_view
from sam_pipeline.spark_jobs.pages.writer import (
    CHANGES,
    INCIDENTS,
    INDEX,
    REVISIONS,
    TRENDS,
    PageFiles,
    month_path,
    site_page,
    year_page,
)
from sam_pipeline.spark_jobs.pages.year import year_view
from sam_pipeline.spark_jobs.rules.days import Period, as_day, month_of
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.months import (
    month_digest,
    published_months,
    report_history,
    sites_in_bad_row,
    year_to,
)
from sam_pipeline.spark_jobs.runs.published import (
    DayFigure,
    Segment,
    day_figures,
    day_members,
    published_reports,
    published_runs,
    require_site,
    timeline,
)
from sam_pipeline.spark_jobs.runs.seal import seals
from sam_pipeline.spark_jobs.runs.summary import period_targets
from sam_pipeline.sql.archive.store import OpenArchive, no_archive

# The sites that a process draws, and that are in memory for each processor.
_SITES_AT_ONCE = 20
T = TypeVar("T")

# A forked process has the values to work on already: they need not be sent.
_FORK = get_context("fork")
_day = attrgetter("day")

_SiteData = tuple[Sequence[DayFigure], Mapping[date, Sequence[Segment]], ReadResults]
"""What the page of a site is drawn from."""
_Drawn = tuple[Mapping[str, str], Sequence[Incident], Sequence[HourRow]]
"""The digests of pages, and the incidents of their sites and their rows on the pages of days."""


def write_pages(
    connection: Connection,
    report: str | None,
    period: Period,
    out: Path,
    site: str | None = None,
    archive: OpenArchive = no_archive,
    *,
    public: bool = False,
) -> list[str]:
    """Write the pages of the months in which the period lies into `out`.

    A month that is new there is linked from the months beside it, so these are written as well. The
    start page shows all months with pages. With a `site`, only its own page of each month is
    written, and all others stay as they are.

    Returns:
        The paths of the pages of these months, the start page first.
    Raises:
        CannotMakeFile, CannotWriteFile: see output_file.
        ReportUsage: no report has figures of the site.
    """
    files = PageFiles(out)
    chosen = period.in_whole_months()
    reports = published_reports(connection, report, chosen)
    published = published_months(connection)
    recorded = {key: pages for key in published if (pages := files.recorded(month_path(*key)))}
    wanted = {
        (name, month)
        for name, month in published
        if name in reports and chosen.first <= month <= chosen.last
    }
    new = wanted - recorded.keys()
    months = _months(connection, wanted, recorded)
    if public:
        months = [month.for_the_public() for month in months]
    if site is not None:
        require_site(connection, reports, site, chosen)
        for month in months:
            if (month.report, month.period.first) in wanted:
                days = list(day_figures(connection, month.report, SITE, month.period, site))
                if days:
                    _draw(month, files, [_read_site(connection, month, days, archive)])
        return list(files.digests)
    for month in months:
        if (month.report, month.period.first) in wanted or new & month.beside.keys:
            of_year = year_to(month.period.first)
            beside = sorted(month.contacts.items()), sorted(map(str, month.announcers.items()))
            others = (month.sealed, month.beside, *beside, month.public)
            inputs = month_digest(connection, month.report, month.period, of_year, *others)
            if not files.keep(month.path, inputs):
                _write_month(connection, month, files, archive)
                files.record(month.path, inputs)
    files.write(INDEX, "start.html", view=start_view(months, out))
    return [INDEX, *(path for path in files.digests if path != INDEX)]


def write_years(
    connection: Connection,
    report: str | None,
    period: Period,
    out: Path,
    archive: OpenArchive = no_archive,
    *,
    public: bool = False,
) -> list[str]:
    """Write the page of a year for each report with figures in it, and the start page.

    Args:
        period: the year, until today at most.
    Returns:
        The paths of the pages, the start page first.
    Raises:
        CannotMakeFile, CannotWriteFile: see output_file.
        ReportUsage: no report was ever run under that name.
    """
    files = PageFiles(out)
    for name in published_reports(connection, report, period):
        view = year_view(connection, name, period, files, archive)
        if public:
            view = view.for_the_public()
        files.write(year_page(name, period.first), "year.html", view=view)
    published = published_months(connection)
    recorded = {key: pages for key in published if (pages := files.recorded(month_path(*key)))}
    months = _months(connection, set(), recorded)
    if public:
        months = [month.for_the_public() for month in months]
    files.write(INDEX, "start.html", view=start_view(months, out))
    return [INDEX, *(path for path in files.digests if path != INDEX)]


def _months(
    connection: Connection, wanted: Set[Key], recorded: Mapping[Key, Sequence[str]]
) -> list[Month]:
    """The months that are wanted or have pages, by report: all that the start page shows."""
    shown = sorted(wanted | recorded.keys())
    histories = {}
    for name, keys in groupby(shown, itemgetter(0)):
        firsts = [first for _, first in keys]
        histories[name] = report_history(connection, name, Period(firsts[0], firsts[-1]))
    seal_of = {(seal.report, as_day(f"{seal.month}-01")): seal for seal in seals(connection)}
    pages = {
        key: pages_of_month(histories[key[0]], key[1], key in seal_of)
        if key in wanted
        else recorded[key]
        for key in shown
    }
    contacts = site_contacts(connection)
    months = []
    for name, first in shown:
        period = month_of(first)
        runs = published_runs(connection, name, period)
        # EGI's rule is about whole months.
        is_over = any(run.day == period.last and run.until is None for run in runs)
        bad = sites_in_bad_row(connection, name, first, histories[name]) if is_over else ()
        months.append(
            Month(
                name,
                period,
                month_path(name, first),
                runs,
                seal_of.get((name, first)),
                period_targets(connection, name, period),
                neighbours((name, first), pages),
                histories[name],
                contacts,
                bad,
                announcers(connection, period),
            )
        )
    return months


def _write_month(
    connection: Connection, month: Month, files: PageFiles, archive: OpenArchive
) -> None:
    figures = by_site(day_figures(connection, month.report, SITE, month.period))
    read = (_read_site(connection, month, days, archive) for days in figures.values())
    batches = chunks(read, lambda _: 1, _SITES_AT_ONCE, _SITES_AT_ONCE)
    if len(figures) <= _SITES_AT_ONCE:  # too few to share
        drawn: Iterable[_Drawn] = (_draw(month, files, batch) for batch in batches)
    else:
        works = (partial(_draw, month, files, batch) for batch in batches)
        drawn = in_processes(works, os.cpu_count() or 1)
    incidents: list[Incident] = []
    hours: list[HourRow] = []
    gc.disable()  # the search for cyclic garbage is slow with many rows, which have hardly any
    try:
        for digests, of_batch, rows in drawn:
            files.digests |= digests
            incidents += of_batch
            hours += rows
    finally:
        gc.enable()
    members = list(day_members(connection, month.report, month.period))
    days = list(chain.from_iterable(figures.values()))
    found = ReportIncidents(
        month.report, month.period, month.runs, in_order(incidents), days, members
    )
    groups = group_matrices(month, members, figures)
    sites = site_matrix(month, figures, groups)
    at_a_glance = glance(month, sites, figures, found)
    pages: list[tuple[str, str, object]] = [
        *((of_type.link, "groups.html", of_type) for of_type in groups),
        (TRENDS, "trends.html", trends_page(connection, month)),
        (INCIDENTS, "incidents.html", incidents_page(found)),
        (CHANGES, "changes.html", changes_page(connection, month)),
        (INDEX, "month.html", sites),
    ]
    if month.seal:
        pages.append((REVISIONS, "revisions.html", revisions_page(connection, month, month.seal)))
    pages += ((page, "hours.html", view) for page, view in hours_pages(month, figures, hours))
    for page, template, view in pages:
        path = f"{month.path}/{page}"
        files.write(path, template, view=view, month=month, groups=groups, glance=at_a_glance)


def _read_site(
    connection: Connection, month: Month, days: Sequence[DayFigure], archive: OpenArchive
) -> _SiteData:
    [site] = days[0].names
    read = timeline(connection, month.report, month.period, site=site, ok_metrics=False)
    segments = {day: list(of_day) for day, of_day in groupby(read, _day)}
    results = read_failing(connection, month.runs, segments, MAX_RESULTS_OF_SITE, archive)
    return days, segments, results.unsigned() if month.public else results


def _draw(month: Month, files: PageFiles, sites: Sequence[_SiteData]) -> _Drawn:
    """Write the pages of some sites; returns their digests, and the sites' incidents and hours."""
    profiles = {run.day: run.profile for run in month.runs}
    digests, incidents, hours = {}, [], []
    for days, segments, results in sites:
        [site] = days[0].names
        timelines = {day: Timelines(of_day, profiles[day]) for day, of_day in segments.items()}
        site_days = explained_days(month, site, timelines, results)
        failures_on = {day: of_day.failures for day, of_day in site_days.items()}
        incidents += site_incidents(site, timelines, failures_on, month.runs)
        view = site_view(month, days, site_days, results.since)
        path = f"{month.path}/{site_page(site)}"
        files.write(path, "site.html", view=view, month=month)
        digests[path] = files.digests[path]
        hours += hour_rows(site, view["days"])
    return digests, incidents, hours


def in_processes(works: Iterable[Callable[[], T]], at_most: int) -> Iterator[T]:
    """The results of the functions, in order. At most `at_most` processes run at a time.

    While they run, the next function is taken from `works`. A function must not use a connection to
    the database, which is that of this process. Its exception is raised here.
    """
    running: deque[tuple[Any, Pipe]] = deque()
    try:
        for work in works:
            if len(running) == at_most:
                yield _result(*running.popleft())
            receiver, sender = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=_call, args=(work, sender), daemon=True)
            process.start()
            sender.close()
            running.append((process, receiver))
        while running:
            yield _result(*running.popleft())
    finally:
        for process, _ in running:
            process.terminate()
            process.join()


def _result(process: Any, receiver: Pipe) -> Any:
    try:
        result, error = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"a process ended early, with code {process.exitcode}") from None
    process.join()
    receiver.close()
    if error is not None:
        raise error
    return result


def _call(work: Callable[[], object], sender: Pipe) -> None:
    # Ctrl-C reaches all processes; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A cursor of the other process, if collected here, would be closed on the connection of both.
    gc.disable()
    try:
        sent: tuple[object, Exception | None] = (work(), None)
    except Exception as error:
        sent = (None, error)
    sender.send(sent)
