"""`sam-report show`: figures of a period as a table, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program import command
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.profiles.profile import Targets
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SECONDS
from sam_pipeline.spark_jobs.rules.seconds import percent, rounded, short
from sam_pipeline.spark_jobs.runs.published import Run, published_reports, published_runs
from sam_pipeline.spark_jobs.runs.summary import Figure, period_figures


@dataclass(frozen=True)
class Shown:
    """The figures of one report at one level over a period."""

    report: str
    level: str
    period: Period
    runs: Sequence[Run]
    figures: Sequence[Figure]

    @property
    def targets(self) -> Targets:
        """Those of the newest day's profile."""
        return self.runs[-1].profile.targets if self.runs else Targets()

    @property
    def until(self) -> int | None:
        """How far the last day goes, if it is still open."""
        return max((run.until for run in self.runs if run.until is not None), default=None)

    @property
    def days_missing(self) -> list[str]:
        """Days of the period without a published run."""
        published = {run.day for run in self.runs}
        return [day.isoformat() for day in self.period.days() if day not in published]


def read_shown(
    connection: Connection, report: str | None, level: str, period: Period
) -> list[Shown]:
    """What there is to show, one per report."""
    return [
        Shown(
            name,
            level,
            period,
            published_runs(connection, name, period),
            period_figures(connection, name, level, period),
        )
        for name in published_reports(connection, report, period)
    ]


def as_rows(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    """A flat row per figure, for JSON and CSV."""
    return [_row(each, figure) for each in shown for figure in each.figures]


def as_text(shown: Sequence[Shown]) -> str:
    """A table for each report, then who misses which target."""
    return "\n\n".join("\n".join(_told(each)) for each in shown)


def _row(shown: Shown, figure: Figure) -> dict[str, Any]:
    row: dict[str, Any] = {
        "report": shown.report,
        "first_day": shown.period.first,
        "last_day": shown.period.last,
        "level": shown.level,
        **dict(zip(NAMES[shown.level], figure.names, strict=True)),
        "availability": rounded(figure.availability),
        "reliability": rounded(figure.reliability),
    }
    if shown.level == GROUP:
        row["sites_expected"] = figure.sites_expected
        row["sites_known"] = figure.sites_known
        row["until"] = _time(shown.until)
    elif figure.seconds:
        row["unknown"] = rounded(figure.unknown)
        row["days"] = figure.days
        row |= {name: getattr(figure.seconds, name.removesuffix("_s")) for name in SECONDS}
        row["until"] = _time(figure.until)
    row["missed"] = [miss.what for miss in figure.misses(shown.targets)]
    return row


def _told(shown: Shown) -> Iterator[str]:
    yield f"{shown.report}, {shown.period}{_until(shown)}"
    yield ""
    if not shown.figures:
        yield "no data: nothing was expected, the topology of these days is empty"
        return
    yield command.text_table(_columns(shown), [_cells(shown, figure) for figure in shown.figures])
    misses = [(figure, figure.misses(shown.targets)) for figure in shown.figures]
    missed = [(figure, found) for figure, found in misses if found]
    yield ""
    yield _targets(shown.targets, bool(missed))
    for figure, found in missed:
        yield f"  {' '.join(figure.names)}: {'; '.join(map(str, found))}"
    if shown.days_missing:
        yield f"not computed: {', '.join(shown.days_missing)}"


def _columns(shown: Shown) -> list[str]:
    known = ["sites"] if shown.level == GROUP else ["unknown", "missing"]
    return [*NAMES[shown.level], "availability", "reliability", *known, "target"]


def _cells(shown: Shown, figure: Figure) -> list[object]:
    if figure.seconds:
        missing = percent(figure.seconds.missing, figure.seconds.total)
        known = [short(figure.unknown), short(missing)]
    else:
        known = [f"{figure.sites_known} of {figure.sites_expected}"]
    return [
        *figure.names,
        short(figure.availability),
        short(figure.reliability),
        *known,
        _verdict(figure, shown.targets),
    ]


def _verdict(figure: Figure, targets: Targets) -> str:
    if figure.availability is None:
        return "no data"
    return "missed" if figure.misses(targets) else "met"


def _targets(targets: Targets, missed: bool) -> str:
    wanted = (
        f"availability {float(targets.availability):g}, reliability {float(targets.reliability):g},"
        f" unknown at most {float(targets.unknown):g} %"
    )
    return f"targets ({wanted}) missed:" if missed else f"targets met: {wanted}"


def _until(shown: Shown) -> str:
    return "" if shown.until is None else f" (until {_time(shown.until)})"


def _time(second: int | None) -> str | None:
    return None if second is None else format_time(moment(second))
