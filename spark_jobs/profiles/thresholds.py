"""Rules on performance data change a result's status before anything else (availability rule 6).

Ranges are those of the monitoring plugins' guidelines. All arithmetic is exact. Spark's workers
run this for each result that carries performance data, so it imports neither Spark nor a database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from sam_pipeline.schema.records.performance_data import Measured, measured
from sam_pipeline.spark_jobs.profiles.profile import Range, Threshold

CRITICAL, WARNING = "CRITICAL", "WARNING"

_BOUND = r"[-+]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,3})?"
_RANGE = re.compile(rf"(@?)(?:(~|{_BOUND}):)?({_BOUND})?")


class Verdict(NamedTuple):
    """What a result counts as; the rule and the value that triggered it, if one did."""

    status: str
    threshold: Threshold | None = None
    value: Measured | None = None


def judged(
    rules: Sequence[Threshold],
    host_name: str,
    service_flavour: str,
    metric_name: str,
    status: str,
    performance_data: str | None,
) -> str:
    """The status a result counts as."""
    return verdict_of(
        rules, host_name, service_flavour, metric_name, status, performance_data
    ).status


def verdict_of(
    rules: Sequence[Threshold],
    host_name: str,
    service_flavour: str,
    metric_name: str,
    status: str,
    performance_data: str | None,
) -> Verdict:
    """The status a result counts as, and why.

    Of several labels that trigger, the worst counts, and of equally bad ones the first in the
    performance data.
    """
    governing = _governing(rules, host_name, service_flavour, metric_name)
    worst = Verdict(status)
    if governing and performance_data:
        for value in measured(performance_data):
            rule = governing.get(value.label)
            level = _level(rule, Fraction(value.number)) if rule else None
            if level == CRITICAL:
                return Verdict(CRITICAL, rule, value)
            if level and worst.threshold is None:
                worst = Verdict(level, rule, value)
    return worst


def triggers(limits: Range, value: Fraction) -> bool:
    """Whether the value raises an alert: outside the bounds, or with `@` inside; both bounds are
    inside."""
    above = limits.low is None or value >= limits.low
    below = limits.high is None or value <= limits.high
    return (above and below) == limits.inside


def read_range(text: str) -> Range:
    """The range that `text` writes: `10`, `10:`, `~:20`, `5:10`, `@5:10`.

    Raises:
        ValueError: it is none, or no value or every value would trigger it; in words.
    """
    found = _RANGE.fullmatch(text)
    inside, start, end = found.groups() if found else ("", None, None)
    if start is None and end is None:
        raise ValueError(
            f"{text[:60]!r} is no range: want 10, 10:, ~:20, 5:10 or @5:10, without a unit"
        )
    low = None if start == "~" else Fraction(start or 0)
    high = None if end is None else Fraction(end)
    if low is None and high is None:
        never = "every value" if inside else "no value"
        raise ValueError(f"{text!r} has no bound: {never} would trigger it")
    if low is not None and high is not None and low > high:
        hint = f"; below 0 write ~:{end}" if start is None else ""
        raise ValueError(f"{text!r} starts above its end{hint}")
    return Range(low, high, inside=bool(inside))


def _level(rule: Threshold, value: Fraction) -> str | None:
    for level, limits in ((CRITICAL, rule.critical), (WARNING, rule.warning)):
        if limits and triggers(limits, value):
            return level
    return None


def _governing(
    rules: Sequence[Threshold], host_name: str, service_flavour: str, metric_name: str
) -> Mapping[str, Threshold]:
    """For each label the most specific rule: host and flavour, host, flavour, neither."""
    applying = [
        rule
        for rule in rules
        if rule.metric_name == metric_name
        and rule.host_name in ("", host_name)
        and rule.service_flavour in ("", service_flavour)
    ]
    applying.sort(key=lambda rule: (bool(rule.host_name), bool(rule.service_flavour)))
    return {rule.label: rule for rule in applying}
