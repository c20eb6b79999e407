"""Which classes and sites are silent, by the limits of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sam_pipeline.consumer.settings.silence_config import SilenceConfig
from sam_pipeline.consumer.silence.coverage import Coverage

CLASS, SITE, PROBE = KINDS = ("class", "site", "probe")
PLURALS = {CLASS: "classes", SITE: "sites", PROBE: "probes"}


@dataclass(frozen=True)
class Silence:
    """A class, site or probe of which nothing has arrived for longer than its limit."""

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
            limit_s = next((rule.minutes * 60 for rule in rules if rule.matches(kind, name)), None)
            last = times.get(name)
            if limit_s is not None and coverage.is_silent(last, limit_s):
                yield Silence(kind, name, last, limit_s)
