"""Exact availability and reliability from stored seconds per status (availability rules 11, 12)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction

NO_FIGURE = "-"


@dataclass(frozen=True)
class Seconds:
    """Whole seconds per status. Over several days they are added up, and divided once."""

    ok: int = 0
    warning: int = 0
    critical: int = 0
    unknown: int = 0
    missing: int = 0
    downtime: int = 0
    excluded: int = 0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(*(a + b for a, b in zip(self._all, other._all, strict=True)))

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(*(a - b for a, b in zip(self._all, other._all, strict=True)))

    @property
    def _all(self) -> tuple[int, ...]:
        # dataclasses.astuple copies its values, and the pages of a month add thousands of these.
        return tuple(vars(self).values())

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
    def in_service(self) -> int:
        """The known seconds outside announced downtimes."""
        return self.ok + self.warning + self.critical

    @property
    def known(self) -> int:
        return self.in_service + self.downtime

    @property
    def availability(self) -> Fraction | None:
        """Percentage of the known time that was up."""
        return percent(self.up, self.known)

    @property
    def reliability(self) -> Fraction | None:
        """Percentage of the known time outside announced downtimes that was up."""
        return percent(self.up, self.in_service)

    @property
    def unknown_share(self) -> Fraction | None:
        """Percentage of the total time for which no status is known."""
        return percent(self.not_known, self.total)


def added(several: Iterable[Seconds]) -> Seconds:
    """Their sum, which is quicker than adding one by one."""
    return Seconds(*map(sum, zip(*(vars(seconds).values() for seconds in several), strict=True)))


def percent(part: int, whole: int) -> Fraction | None:
    """100 · part / whole; None if the whole is 0."""
    return Fraction(100 * part, whole) if whole else None


def rounded(value: Fraction | None) -> Decimal | None:
    """The figure as it is stored and shown: 5 decimals, half up."""
    if value is None:
        return None
    exact = value * 10**5
    return Decimal((2 * exact.numerator + exact.denominator) // (2 * exact.denominator)).scaleb(-5)


def short_change(value: Fraction | None, before: Fraction | None) -> str:
    """The difference of two figures as they are shown, so that they add up."""
    if value is None or before is None:
        return NO_FIGURE
    return f"{Decimal(short(value)) - Decimal(short(before)):+}"


def short(value: Fraction | Decimal | None, places: int = 2) -> str:
    """The figure with `places` decimals, rounded half up, but never up to a whole number.

    So 100 means all of the time, and a figure just below its target does not look like the target.
    """
    figure = rounded(value) if isinstance(value, Fraction) else value
    if figure is None:
        return NO_FIGURE
    step = Decimal(1).scaleb(-places)
    nearest = figure.quantize(step, ROUND_HALF_UP)
    if nearest > figure and nearest == nearest.to_integral_value():
        nearest = figure.quantize(step, ROUND_DOWN)
    return str(nearest)
