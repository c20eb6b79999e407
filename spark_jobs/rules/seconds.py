"""Availability and reliability of seconds that are stored: exact, without Spark (rules 11, 12)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction

NO_FIGURE = "-"


@dataclass(frozen=True)
class Seconds:
    """Whole seconds per status; periods add them and divide once."""

    ok: int = 0
    warning: int = 0
    critical: int = 0
    unknown: int = 0
    missing: int = 0
    downtime: int = 0
    excluded: int = 0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(a + b for a, b in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[int, ...]:
        """As dataclasses.astuple, without its copies: a month's pages add them by the thousand."""
        return (
            self.ok,
            self.warning,
            self.critical,
            self.unknown,
            self.missing,
            self.downtime,
            self.excluded,
        )

    @property
    def total(self) -> int:
        return sum(self._all)

    @property
    def up(self) -> int:
        return self.ok + self.warning

    @property
    def not_known(self) -> int:
        return self.unknown + self.missing + self.excluded

    @property
    def availability(self) -> Fraction | None:
        """Percent of the known time that was up."""
        return percent(self.up, self.total - self.not_known)

    @property
    def reliability(self) -> Fraction | None:
        """The same, announced downtimes left out."""
        return percent(self.up, self.total - self.not_known - self.downtime)

    @property
    def unknown_share(self) -> Fraction | None:
        """Percent of all time that nobody knows about."""
        return percent(self.not_known, self.total)


def percent(part: int, whole: int) -> Fraction | None:
    """100 · part / whole; None where there is no whole."""
    return Fraction(100 * part, whole) if whole else None


def rounded(value: Fraction | None) -> Decimal | None:
    """Once, half up, 5 decimals: the figure as it is stored and told."""
    if value is None:
        return None
    exact = value * 10**5
    return Decimal((2 * exact.numerator + exact.denominator) // (2 * exact.denominator)).scaleb(-5)


def short(value: Fraction | Decimal | None, places: int = 2) -> str:
    """For people: fewer decimals, half up, but never up to a whole number.

    So 100 means all of the time, and a figure below its target doesn't read as the target.
    """
    figure = rounded(value) if isinstance(value, Fraction) else value
    if figure is None:
        return NO_FIGURE
    step = Decimal(1).scaleb(-places)
    near = figure.quantize(step, ROUND_HALF_UP)
    reached = near > figure and near == near.to_integral_value()
    return str(figure.quantize(step, ROUND_DOWN) if reached else near)
