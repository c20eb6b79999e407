"""What to look at before a month is sealed (availability rule 17)."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.explain.as_text import downtime_text
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges
from sam_pipeline.spark_jobs.rules.levels import SECONDS, SITE
from sam_pipeline.spark_jobs.rules.seconds import short
from sam_pipeline.spark_jobs.runs.published import candidates, published_runs
from sam_pipeline.spark_jobs.runs.summary import period_figures, period_targets

_MAX_SITES = 20
_SILENT = (
    "SELECT service_flavour, metric_name, day FROM status_trend"
    " WHERE report = :report AND day BETWEEN :first AND :last AND level = 'metric'"
    " GROUP BY service_flavour, metric_name, day"
    f" HAVING sum(missing_s) = sum({' + '.join(SECONDS)}) ORDER BY 1, 2, 3"
)


def checklist(connection: Connection, report: str, month: Period) -> list[str]:
    """What to look at before a month is sealed, a line each; empty if nothing is unusual.

    These are days without results, metrics without any status on a whole day, sites that were not
    known for longer than their target allows, counted downtimes that were announced after they had
    begun, and candidates, which another seal publishes.
    """
    runs = published_runs(connection, report, month)
    points = []
    if empty := [run.day for run in runs if not run.results_read]:
        points.append(f"no results on {in_ranges(empty)}")
    silent: dict[str, list[date]] = {}
    for flavour, metric, day in connection.execute(
        text(_SILENT), {"report": report, **month.bounds}
    ):
        if as_day(day) not in empty:
            silent.setdefault(f"{metric} of {flavour}", []).append(as_day(day))
    points += [
        f"{metric}: no status at any site on {in_ranges(on)}" for metric, on in silent.items()
    ]
    targets = period_targets(connection, report, month)
    unknown = [
        f"{site} ({short(figure.unknown, 1)} %)"
        for figure in period_figures(connection, report, SITE, month)
        for (site,) in [figure.names]
        if figure.unknown is not None and figure.unknown > targets.of_site(site).unknown
    ]
    if left_out := len(unknown[_MAX_SITES:]):
        unknown[_MAX_SITES:] = [f"and {plural(left_out, 'other site')}"]
    if unknown:
        points.append(f"not known for too long: {', '.join(unknown)}")
    late = dict.fromkeys(
        downtime
        for run in runs
        for downtime in run.downtimes
        if downtime.is_late and run.counts(downtime)
    )
    points += [downtime_text(downtime) for downtime in late]
    waiting = candidates(connection, report, month)
    if waiting:
        figures = plural(sum(candidate.figures for candidate in waiting), "figure")
        days = in_ranges(candidate.day for candidate in waiting)
        points.append(f"candidates of {days} wait: they change {figures}")
    return points
