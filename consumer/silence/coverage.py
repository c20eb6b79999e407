"""Of which times the daemon knows everything that was sent: only there can it notice silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

TOLERANCE = 10
"""A gap is ignored if the limit for silence is longer by this factor."""
LONGEST = timedelta(days=8)
"""No limit is longer: a probe is forgotten sooner."""
MAX_GAPS = 20


class Gap(NamedTuple):
    """A time in which messages may have been sent that did not arrive, or arrive later."""

    begin: datetime
    end: datetime

    @property
    def matters_to_s(self) -> float:
        """The limit for silence from which on the gap is ignored."""
        return (self.end - self.begin).total_seconds() * TOLERANCE


@dataclass(frozen=True)
class Coverage:
    """Everything that was sent before `until` has arrived, except in the gaps.

    Silence is judged at `until`. It must last longer than a limit, and the same time must have
    passed since the end of the last gap.
    """

    until: datetime
    gaps: Sequence[Gap] = ()

    def with_gap(self, gap: Gap) -> Coverage:
        """The coverage after a further gap, the newest one."""
        gaps = [*self.gaps, gap]
        if len(gaps) > MAX_GAPS:
            gaps[:2] = [Gap(gaps[0].begin, gaps[1].end)]
        return replace(self, gaps=tuple(gaps))

    def up_to(self, moment: datetime) -> Coverage:
        """The coverage up to a later moment, without the gaps that no longer matter."""
        until = max(self.until, moment)
        gaps = tuple(
            gap
            for gap in self.gaps
            if (until - gap.end).total_seconds() < min(gap.matters_to_s, LONGEST.total_seconds())
        )
        return Coverage(until, gaps)

    def seconds_since_gaps(self) -> list[tuple[float, float]]:
        """For each gap the seconds since its end, and the limit from which on it is ignored."""
        return [((self.until - gap.end).total_seconds(), gap.matters_to_s) for gap in self.gaps]

    def is_silent(self, last: datetime | None, limit_s: float) -> bool:
        """Whether something is silent that was last heard of at a time, or never."""
        if last is not None and (self.until - last).total_seconds() <= limit_s:
            return False
        return not any(since_s < limit_s < to_s for since_s, to_s in self.seconds_since_gaps())


def nothing_covered(now: datetime) -> Coverage:
    """The coverage of a daemon that knows nothing of the time before."""
    return Coverage(now, (Gap(datetime(1970, 1, 1, tzinfo=UTC), now),))
