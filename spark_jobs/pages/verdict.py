"""A figure compared with its targets, as the pages show it: by colour, symbol and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.rules.figures import Figure, Targets
from sam_pipeline.spark_jobs.rules.seconds import Seconds, percent, short


@dataclass(frozen=True)
class Verdict:
    """The result of the comparison; `kind` is the class of its colour."""

    kind: str
    symbol: str
    meaning: str


MET = Verdict("m", "✓", "targets met")
PARTLY = Verdict("p", "!", "another target missed")
MISSED = Verdict("x", "✗", "availability below its target")
UNKNOWN = Verdict("u", "?", "unknown: probes could not determine the status")
MISSING = Verdict("g", "∅", "missing: no results arrived")
NOT_COMPUTED = Verdict("a", "·", "not computed")

LEGEND = (MISSED, PARTLY, UNKNOWN, MISSING, MET, NOT_COMPUTED)


def verdict(figure: Figure, targets: Targets) -> Verdict:
    """The verdict on a figure (availability rule 15)."""
    if figure.availability is None:
        seconds = figure.seconds or Seconds()
        return UNKNOWN if seconds.unknown + seconds.excluded > seconds.missing else MISSING
    missed = [miss.figure for miss in figure.misses(targets)]
    if "availability" in missed:
        return MISSED
    return PARTLY if missed else MET


@dataclass(frozen=True)
class Cell:
    """An availability in a table; `link` leads to its explanation."""

    verdict: Verdict
    text: str
    link: str = ""
    in_downtime: bool = False

    @property
    def classes(self) -> str:
        return f"{self.verdict.kind} d" if self.in_downtime else self.verdict.kind


def availability_cell(figure: Figure | None, targets: Targets, places: int, link: str = "") -> Cell:
    """The cell of a figure, or of one that was not computed (None)."""
    if figure is None:
        return Cell(NOT_COMPUTED, "")
    text = "" if figure.availability is None else short(figure.availability, places)
    in_downtime = figure.seconds is not None and figure.seconds.downtime > 0
    return Cell(verdict(figure, targets), text, link, in_downtime)


@dataclass(frozen=True)
class TargetValue:
    """A percentage or a number of sites, and whether it misses its target."""

    text: str
    misses: bool


@dataclass(frozen=True)
class PeriodTotals:
    """The figures of a site over the period; `unknown` and `missing` are parts of `not_known`."""

    availability: Cell
    reliability: TargetValue
    not_known: TargetValue
    unknown: str
    missing: str
    misses: Sequence[str]


def totals_of(figure: Figure, targets: Targets) -> PeriodTotals:
    """The figures of a period, each compared with its target."""
    misses = figure.misses(targets)
    missed = {miss.figure for miss in misses}
    seconds = figure.seconds or Seconds()
    unknown, missing = (
        short(percent(part, seconds.total), 1) if part else ""
        for part in (seconds.unknown, seconds.missing)
    )
    return PeriodTotals(
        availability_cell(figure, targets, 2),
        TargetValue(short(figure.reliability), "reliability" in missed),
        TargetValue(short(figure.unknown, 1), "unknown" in missed),
        unknown,
        missing,
        [str(miss) for miss in misses],
    )
