"""A figure held against the targets, as pages show it: colour, symbol and words say the same."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from spark_jobs.figures import rounded, short
from spark_jobs.profile import Targets
from spark_jobs.summary import Figure


@dataclass(frozen=True)
class Verdict:
    """`kind` names the colour."""

    kind: str
    symbol: str
    words: str


MET = Verdict("met", "✓", "targets met")
PARTLY = Verdict("partly", "!", "a target missed, though not availability")
MISSED = Verdict("missed", "✗", "availability below its target")
NO_DATA = Verdict("none", "?", "no data: nothing is known about this time")
NOT_COMPUTED = Verdict("absent", "·", "not computed")

LEGEND = (MET, PARTLY, MISSED, NO_DATA, NOT_COMPUTED)


def verdict(figure: Figure, targets: Targets) -> Verdict:
    """What to think of a figure (availability rule 15)."""
    if figure.availability is None:
        return NO_DATA
    missed = [miss.what for miss in figure.misses(targets)]
    if "availability" in missed:
        return MISSED
    return PARTLY if missed else MET


@dataclass(frozen=True)
class Cell:
    """A figure in a table: what stands there, and what it says when one asks."""

    verdict: Verdict
    text: str
    title: str
    link: str = ""
    in_downtime: bool = False


def availability_cell(figure: Figure | None, targets: Targets, what: str, link: str = "") -> Cell:
    """The cell for a figure; None: nobody has computed it."""
    if figure is None:
        return Cell(NOT_COMPUTED, "", f"{what}: {NOT_COMPUTED.words}")
    judged = verdict(figure, targets)
    parts = [
        f"availability {_full(figure.availability)}",
        f"reliability {_full(figure.reliability)}",
    ]
    if figure.seconds:
        parts.append(f"unknown {short(figure.unknown)} %")
    downtime = figure.seconds.downtime if figure.seconds else 0
    if downtime:
        parts.append(f"in downtime {downtime} s")
    reasons = "; ".join(map(str, figure.misses(targets))) or judged.words
    text = "no data" if figure.availability is None else short(figure.availability, 1)
    return Cell(judged, text, f"{what}: {', '.join(parts)}. {reasons}", link, downtime > 0)


def _full(value: Fraction | None) -> str:
    return "undefined" if value is None else str(rounded(value))
