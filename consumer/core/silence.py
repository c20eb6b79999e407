"""Silence: the classes, sites and probes that no longer report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sam_pipeline.consumer.settings.tables import SilenceConfig

TOLERANCE = 10
"""A gap is ignored if the limit for silence is longer by this factor."""
LONGEST = timedelta(days=8)
"""No limit is longer: a probe is forgotten sooner."""
MAX_GAPS = 20

CLASS, SITE, PROBE = KINDS = ("class", "site", "probe")
PLURALS = {CLASS: "classes", SITE: "sites", PROBE: "probes"}


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


@dataclass(frozen=True)
class Silence:
    """A class, site or probe from which nothing has arrived for longer than its limit."""

    kind: str
    name: str
    last: datetime | None
    """When something last arrived; of a site or probe, the time of the newest result."""
    limit_s: float


@dataclass(frozen=True)
class ProbeSilences:
    """What the database says about probes and sites."""

    silent: int = 0
    """The number of silent probes."""
    named: Sequence[Silence] = ()
    """Some of them."""
    sites: Mapping[str, datetime | None] = field(default_factory=dict)
    """The newest result of each site that should report."""


def silences(
    rules: Sequence[SilenceConfig],
    classes: Mapping[str, datetime],
    sites: Mapping[str, datetime | None],
    coverage: Coverage,
) -> Iterator[Silence]:
    """The silent classes and sites. `classes` has the time when each last arrived.

    The first rule that matches a name applies. A rule without a wildcard is about its name, whether
    anything of it ever arrived or not.
    """
    for kind, times in ((CLASS, classes), (SITE, sites)):
        names = dict.fromkeys(times)
        spelled = {name.lower(): name for name in times} if kind == CLASS else {}
        for rule in rules:
            if exact := rule.exact_name(kind):
                names[spelled.get(exact.lower(), exact)] = None
        for name in names:
            limit_s = next((rule.after_s for rule in rules if rule.matches(kind, name)), None)
            last = times.get(name)
            if limit_s is not None and coverage.is_silent(last, limit_s):
                yield Silence(kind, name, last, limit_s)
