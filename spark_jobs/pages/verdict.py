"""A figure compared with its targets, as the pages show it: by colour, symbol and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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
DOWNTIME = Verdict("w", "▽", "below its target only because of announced downtime")
UNKNOWN = Verdict("u", "?", "unknown: probes could not determine the status")
MISSING = Verdict("g", "∅", "missing: no results arrived")
NO_WEIGHT = Verdict("e", "0", "no figure: all weights are 0")
NOT_EXPECTED = Verdict("e", "/", "not expected on that day")
NOT_COMPUTED = Verdict("a", "·", "not computed")

_OF_SITES = (MISSED, PARTLY, UNKNOWN, MISSING, DOWNTIME, MET)
OF_FIGURES = (*_OF_SITES, NO_WEIGHT)
"""From the worst to the best: announced downtime is not a failure."""
LEGEND = (*_OF_SITES, NOT_EXPECTED, NOT_COMPUTED)

# In percent. If less time is known, the figure means nothing: the verdict is UNKNOWN or MISSING.
_LEAST_KNOWN = 10


def verdict(figure: Figure, targets: Targets) -> Verdict:
    """The verdict on a figure (availability rule 15)."""
    if figure.has_no_weight:
        return NO_WEIGHT
    known = 100 if figure.unknown is None else 100 - figure.unknown
    if figure.availability is None or known < _LEAST_KNOWN:
        seconds = figure.seconds or Seconds()
        return UNKNOWN if seconds.unknown + seconds.excluded > seconds.missing else MISSING
    missed = {miss.figure for miss in figure.misses(targets)}
    if "availability" not in missed:
        return PARTLY if missed else MET
    # Reliability is what availability would be without announced downtimes.
    reliability = figure.reliability
    would_meet = reliability is None or reliability >= targets.availability
    return DOWNTIME if would_meet and "reliability" not in missed else MISSED


def worst_first(figure: Figure, targets: Targets) -> tuple[int, Fraction, tuple[str, ...]]:
    """The key that sorts figures: by verdict, then availability, then name."""
    place = OF_FIGURES.index(verdict(figure, targets))
    return place, figure.availability or Fraction(0), figure.names


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

    @property
    def is_perfect(self) -> bool:
        """Whether a matrix shows the cell empty: it is 100, and there is nothing to explain."""
        return self.verdict is MET and self.text == "100" and not self.link


def availability_cell(figure: Figure, targets: Targets, places: int, link: str = "") -> Cell:
    """The cell of a figure."""
    text = "" if figure.availability is None else short(figure.availability, places)
    judged = verdict(figure, targets)
    in_downtime = figure.seconds is not None and figure.seconds.downtime > 0
    return Cell(judged, text, link, in_downtime and judged is not DOWNTIME)


def empty_cell(was_computed: bool) -> Cell:
    """The cell of a day without a figure, although the day was computed, or because it was not."""
    return Cell(NOT_EXPECTED if was_computed else NOT_COMPUTED, "")


@dataclass(frozen=True)
class TargetValue:
    """A percentage or a number of sites, and whether it misses its target."""

    text: str
    misses: bool


@dataclass(frozen=True)
class PeriodTotals:
    """The figures of a site or group over the period.

    `known` is the percentage of a site's time that is not known, of which `unknown` and `missing`
    are parts; of a group it is the number of its sites with a figure.
    """

    availability: Cell
    reliability: TargetValue
    known: TargetValue
    unknown: str
    missing: str
    misses: Sequence[str]

    @property
    def parts(self) -> str:
        """The parts of the time that is not known, with their symbols."""
        parts = ((UNKNOWN, self.unknown), (MISSING, self.missing))
        return " ".join(f"{kind.symbol}{text}" for kind, text in parts if text)


def totals_of(figure: Figure, targets: Targets) -> PeriodTotals:
    """The figures of a period, each compared with its target."""
    misses = figure.misses(targets)
    missed = {miss.figure for miss in misses}
    unknown = missing = ""
    if seconds := figure.seconds:
        known = TargetValue(short(figure.unknown, 1), "unknown" in missed)
        unknown, missing = (
            short(percent(part, seconds.total), 1) if part else ""
            for part in (seconds.unknown, seconds.missing)
        )
    else:
        sites = f"{figure.sites_known} of {figure.sites_expected}"
        known = TargetValue(sites, "coverage" in missed)
    return PeriodTotals(
        availability_cell(figure, targets, 2),
        TargetValue(short(figure.reliability), "reliability" in missed),
        known,
        unknown,
        missing,
        [str(miss) for miss in misses],
    )
