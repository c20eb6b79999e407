"""`sam-report incidents`: how often sites failed, for how long, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from sam_pipeline.schema.program.command import whole_number
from sam_pipeline.schema.program.wording import duration, one_line, plural
from sam_pipeline.spark_jobs.command_line import (
    ReportTable,
    Row,
    TableCell,
    add_published_options,
    both,
    in_files,
    in_table,
    print_tables,
    published,
    requested_period,
    time_or_none,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.explain.causes import Cause
from sam_pipeline.spark_jobs.explain.incidents import (
    LOOK_AT,
    IncidentFigures,
    ReportIncidents,
    read_incidents,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE
from sam_pipeline.spark_jobs.runs.published import Names
from sam_pipeline.sql.archive.config import load_archive

INCIDENT, REPORT, CAUSE = "incident", "report", "cause"
START, DURATION = "start", "duration"
_MAX_CELL = 100

EXAMPLES = """\
examples:
  sam-report incidents --month 2026-11
  sam-report incidents --month 2026-11 --sort duration --limit 10
  sam-report incidents --site SITE-A --from 2026-09-01 --to 2026-11-30
  sam-report incidents --by site --month 2026-11 --format csv
  sam-report incidents --by cause --month 2026-11 --report critical

An incident lasts from the moment a site becomes CRITICAL until it is up again or in a downtime that
counts. Only the period counts: < marks an incident that began before it, > one that is still open
at its end, and neither is part of the mean time to repair (MTTR). The mean time between failures
(MTBF) is the time in which the site was up, divided by the number of incidents.

--by cause lists messages with which incidents began at three or more sites within one interval of
the probe, unless chance explains them, and who measured them: look at the probe or the broker.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--by",
        choices=[INCIDENT, SITE, GROUP, REPORT, CAUSE],
        default=INCIDENT,
        help="what to list (default: %(default)s)",
    )
    command.add_argument(
        "--sort",
        choices=[START, DURATION],
        default=START,
        help="the order of incidents: by time, or the longest first (default: %(default)s)",
    )
    command.add_argument(
        "--limit", type=whole_number(), metavar="N", help="only the first N rows of each report"
    )
    add_published_options(command, table=True)
    command.set_defaults(handler=run_incidents)


def run_incidents(args: argparse.Namespace) -> int:
    """Print the incidents of each published report, or figures or shared causes of them.

    Raises:
        ReportUsage: no report has figures of the site, or --sort of anything but incidents.
    """
    if args.sort == DURATION and args.by != INCIDENT:
        raise ReportUsage(f"--sort {DURATION} goes with --by {INCIDENT}, not {args.by}")
    period = requested_period(args)
    with published(args, period, args.site) as (connection, names):
        reports = [
            read_incidents(connection, name, period, args.site, lambda: load_archive(args).open())
            for name in names
        ]
    longest_first, limit = args.sort == DURATION, args.limit
    tables = [
        IncidentTable(r.report, args.by, period, r.runs, r, longest_first, limit) for r in reports
    ]
    return print_tables(args, tables)


@dataclass(frozen=True)
class IncidentTable(ReportTable):
    """The incidents of a report, the causes that sites shared, or figures by `level`."""

    found: ReportIncidents
    longest_first: bool
    limit: int | None

    def rows(self) -> Iterator[Row]:
        return islice(self._all_rows(), self.limit)

    def _all_rows(self) -> Iterator[Row]:
        if self.level == INCIDENT:
            found = self.found
            for incident in found.longest_first if self.longest_first else found.incidents:
                start, end = time_or_none(incident.start), time_or_none(incident.end)
                length = incident.duration_s
                cause = incident.cause
                example = cause.example if cause else None
                yield [
                    *self.about,
                    *both(site=incident.site),
                    TableCell("start", start, "start", f"{'<' * incident.began_before}{start}"),
                    TableCell("end", end, "end", f"{end}{'>' * incident.is_open}"),
                    TableCell("duration_s", length, "duration", duration(length)),
                    *in_files(
                        began_before=incident.began_before,
                        open=incident.is_open,
                        causes=len(incident.causes),
                    ),
                    *_cause(cause),
                    *in_files(
                        endpoints=cause.where if cause else None,
                        example=example.text if example else None,
                        message_id=example.message_id if example else None,
                        publisher=example.publisher if example else None,
                    ),
                ]
        elif self.level == CAUSE:
            for shared in self.found.shared:
                sites = one_line(", ".join(shared.sites), _MAX_CELL)
                hosts = list(shared.monitoring_hosts)
                yield [
                    *self.about,
                    *in_files(number=len(shared.sites)),
                    TableCell(
                        "sites", list(shared.sites), "sites", f"{len(shared.sites)}: {sites}"
                    ),
                    *both(start=time_or_none(shared.start), end=time_or_none(shared.end)),
                    TableCell("monitoring_hosts", hosts, "measured by", ", ".join(hosts)),
                    *_cause(shared.cause),
                ]
        else:
            figures_of: Mapping[Names, IncidentFigures] = {(): self.found.total}
            if self.level != REPORT:
                by_site = self.level == SITE
                figures_of = self.found.by_site() if by_site else self.found.by_group()
            for names, figures in figures_of.items():
                yield [
                    *self.about,
                    *both(**dict(zip(NAMES.get(self.level, ()), names, strict=True))),
                    TableCell("number", figures.number, "incidents", figures.number),
                    *both(open=figures.open),
                    *(
                        TableCell(
                            name,
                            length,
                            name.removesuffix("_s"),
                            NO_FIGURE if length is None else duration(length),
                        )
                        for name, length in vars(figures).items()
                        if name.endswith("_s")
                    ),
                ]

    def notes(self) -> Iterator[str]:
        sites = len({incident.site for incident in self.found.incidents})
        yield f"{plural(self.found.total.number, 'incident')} at {plural(sites, 'site')}"
        if self.found.shared:
            most = self.found.shared[0]
            more = "" if self.level == CAUSE else " (--by cause lists them)"
            by = f", {most.measured_by}" if most.measured_by else ""
            yield f"the same cause at up to {len(most.sites)} sites at once{by}{more}: {LOOK_AT}"


def _cause(cause: Cause | None) -> Row:
    """A cause in a cell of the table, and in a few of files."""
    text = "no failure is stored"
    if cause:
        text = f"{cause.service_flavour} {cause.metric_name}: {cause.text or '(no text)'}"
    return [
        *in_files(
            **{
                name: getattr(cause, name, None)
                for name in ("service_flavour", "metric_name", "status", "text")
            }
        ),
        *in_table(cause=one_line(text, _MAX_CELL)),
    ]
