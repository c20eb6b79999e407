"""`sam-report incidents`: how often sites failed, for how long, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import duration, one_line, plural
from sam_pipeline.spark_jobs.command_line.arguments import (
    add_period_options,
    add_report_option,
    add_site_option,
    add_table_option,
    requested_period,
    time_or_none,
    warn_if_empty,
)
from sam_pipeline.spark_jobs.command_line.tables import ReportTable, print_tables
from sam_pipeline.spark_jobs.explain.causes import Cause
from sam_pipeline.spark_jobs.explain.incidents.figures import IncidentFigures, ReportIncidents
from sam_pipeline.spark_jobs.explain.incidents.reader import read_incidents
from sam_pipeline.spark_jobs.explain.incidents.shared_causes import LOOK_AT, shared_causes
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE
from sam_pipeline.spark_jobs.runs.published import published_reports, require_site
from sam_pipeline.sql.archive.config import load_archive
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER

INCIDENT, REPORT, CAUSE = "incident", "report", "cause"
_MAX_CELL = 100

EXAMPLES = """\
examples:
  sam-report incidents --month 2026-11
  sam-report incidents --site SITE-A --from 2026-09-01 --to 2026-11-30
  sam-report incidents --by site --month 2026-11 --format csv
  sam-report incidents --by cause --month 2026-11 --report critical

An incident lasts from the moment a site becomes CRITICAL until it is up again or in a downtime that
counts. Only the period counts: < marks an incident that began before it, > one that is still open
at its end, and neither is part of the mean time to repair (MTTR). The mean time between failures
(MTBF) is the time in which the site was up, divided by the number of incidents.

--by cause lists causes that several sites had at once: look at the probe or the broker.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--by",
        choices=[INCIDENT, SITE, GROUP, REPORT, CAUSE],
        default=INCIDENT,
        help="what to list (default: %(default)s)",
    )
    add_period_options(command)
    add_site_option(command)
    add_table_option(command)
    add_report_option(command)
    command.set_defaults(handler=run_incidents)


def run_incidents(args: argparse.Namespace) -> int:
    """Print the incidents of each published report, or figures or shared causes of them.

    Raises:
        ReportUsage: no report has figures of the site.
    """
    period = requested_period(args)
    with reading_at_once(open_database(args, READER)) as connection:
        names = published_reports(connection, args.report, period)
        if args.site is not None:
            require_site(connection, names, args.site, period)
        reports = [
            read_incidents(connection, name, period, args.site, lambda: load_archive(args).open())
            for name in names
        ]
    warn_if_empty(reports, period)
    tables = [IncidentTable(r.report, args.by, period, r.runs, r) for r in reports]
    return print_tables(args, tables)


@dataclass(frozen=True)
class IncidentTable(ReportTable):
    """The incidents of a report, what several sites had at once, or figures by `level`."""

    found: ReportIncidents

    def rows(self) -> Iterator[dict[str, Any]]:
        of_report = {
            "report": self.report,
            "first_day": self.period.first,
            "last_day": self.period.last,
        }
        rows: list[dict[str, Any]]
        if self.level == INCIDENT:
            rows = [
                {
                    "site": incident.site,
                    "start": time_or_none(incident.start),
                    "end": time_or_none(incident.end),
                    "duration_s": incident.duration_s,
                    "began_before": incident.began_before,
                    "open": incident.is_open,
                    "causes": len(incident.causes),
                    **_cause_columns(incident.cause),
                    "endpoints": incident.cause.where if incident.cause else None,
                    "example": incident.cause.example.text if incident.cause else None,
                    "message_id": incident.cause.example.message_id if incident.cause else None,
                    "publisher": incident.cause.example.publisher if incident.cause else None,
                }
                for incident in self.found.incidents
            ]
        elif self.level == CAUSE:
            rows = [
                {
                    "number": len(shared.sites),
                    "sites": list(shared.sites),
                    "start": time_or_none(shared.start),
                    "end": time_or_none(shared.end),
                    **_cause_columns(shared.cause),
                }
                for shared in shared_causes(self.found.incidents)
            ]
        else:
            rows = [
                {**names, **vars(figures)} for names, figures in _figures(self.level, self.found)
            ]
        return ({**of_report, **row} for row in rows)

    def lines(self) -> Iterator[str]:
        shared = shared_causes(self.found.incidents)
        rows: list[dict[str, object]]
        if self.level == INCIDENT:
            rows = [
                {
                    "site": incident.site,
                    "start": f"{'<' * incident.began_before}{time_or_none(incident.start)}",
                    "end": f"{time_or_none(incident.end)}{'>' * incident.is_open}",
                    "duration": duration(incident.duration_s),
                    "cause": _cause_cell(incident.cause),
                }
                for incident in self.found.incidents
            ]
        elif self.level == CAUSE:
            rows = [
                {
                    "sites": f"{len(each.sites)}: {one_line(', '.join(each.sites), _MAX_CELL)}",
                    "start": time_or_none(each.start),
                    "end": time_or_none(each.end),
                    "cause": _cause_cell(each.cause),
                }
                for each in shared
            ]
        else:
            rows = [
                {
                    **names,
                    "incidents": figures.number,
                    "open": figures.open,
                    "longest": duration(figures.longest_s),
                    "total": duration(figures.total_s),
                    "mttr": NO_FIGURE if figures.mttr_s is None else duration(figures.mttr_s),
                    "mtbf": NO_FIGURE if figures.mtbf_s is None else duration(figures.mtbf_s),
                }
                for names, figures in _figures(self.level, self.found)
            ]
        if rows:
            yield from text_table(list(rows[0]), [list(row.values()) for row in rows])
            yield ""
        sites = len({incident.site for incident in self.found.incidents})
        yield f"{plural(self.found.total.number, 'incident')} at {plural(sites, 'site')}"
        if shared:
            at_most = max(len(each.sites) for each in shared)
            more = "" if self.level == CAUSE else " (--by cause lists them)"
            yield f"the same cause at up to {at_most} sites at once{more}: {LOOK_AT}"


def _figures(level: str, found: ReportIncidents) -> list[tuple[dict[str, str], IncidentFigures]]:
    """The names and the figures of each thing of the level."""
    if level == REPORT:
        return [({}, found.total)]
    figures = found.by_site() if level == SITE else found.by_group()
    return [(dict(zip(NAMES[level], names, strict=True)), of) for names, of in figures.items()]


def _cause_columns(cause: Cause | None) -> dict[str, str | None]:
    return {
        "service_flavour": cause.service_flavour if cause else None,
        "metric_name": cause.metric_name if cause else None,
        "status": cause.status if cause else None,
        "text": cause.text if cause else None,
    }


def _cause_cell(cause: Cause | None) -> str:
    if cause is None:
        return "no failure is stored"
    text = f"{cause.service_flavour} {cause.metric_name}: {cause.text or '(no text)'}"
    return one_line(text, _MAX_CELL)
