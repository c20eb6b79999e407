"""Thresholds on performance data, which may change a result's status (availability rule 6).

Ranges follow the monitoring plugins' guidelines. All arithmetic is exact. Spark's workers run this
for each result with performance data, so it imports neither Spark nor a database.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from sam_pipeline.schema.records.plugin_output import Measured, measured
from sam_pipeline.spark_jobs.profiles.profile import Range, Threshold

CRITICAL, WARNING = "CRITICAL", "WARNING"

_BOUND = r"[-+]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,3})?"
_RANGE = re.compile(rf"(@?)(?:(~|{_BOUND}):)?({_BOUND})?")


class ThresholdVerdict(NamedTuple):
    """The status of a result, and the rule and the value that changed it, if any did."""

    status: str
    threshold: Threshold | None = None
    value: Measured | None = None


def verdict_of(
    rules: Sequence[Threshold],
    host_name: str,
    service_flavour: str,
    metric_name: str,
    status: str,
    performance_data: str | None,
) -> ThresholdVerdict:
    """The status of a result under the rules.

    For each label the most specific rule applies: by host and flavour, by host, by flavour, or by
    neither. If several labels trigger, the worst level counts, and among equal levels the first in
    the performance data.
    """
    verdict = ThresholdVerdict(status)
    matching = [
        rule
        for rule in rules
        if rule.metric_name == metric_name
        and rule.host_name in ("", host_name)
        and rule.service_flavour in ("", service_flavour)
    ]
    if not matching or not performance_data:
        return verdict
    matching.sort(key=lambda rule: (bool(rule.host_name), bool(rule.service_flavour)))
    rule_of = {rule.label: rule for rule in matching}
    for value in measured(performance_data):
        rule = rule_of.get(value.label)
        if rule is None:
            continue
        number = Fraction(value.number)
        if rule.critical and triggers(rule.critical, number):
            return ThresholdVerdict(CRITICAL, rule, value)
        if verdict.threshold is None and rule.warning and triggers(rule.warning, number):
            verdict = ThresholdVerdict(WARNING, rule, value)
    return verdict


def triggers(limits: Range, value: Fraction) -> bool:
    """Whether the value alerts: outside the bounds, or with `@` within them.

    The bounds are within the range.
    """
    above = limits.low is None or value >= limits.low
    below = limits.high is None or value <= limits.high
    return (above and below) == limits.inside


def read_range(text: str) -> Range:
    """Parse a range: `10`, `10:`, `~:20`, `5:10`, `@5:10`.

    Raises:
        ValueError: not a range, or a range that no value or every value would trigger.
    """
    match = _RANGE.fullmatch(text)
    inside, start, end = match.groups() if match else ("", None, None)
    if start is None and end is None:
        expected = "expected 10, 10:, ~:20, 5:10 or @5:10, without a unit"
        raise ValueError(f"{text[:60]!r} is not a range ({expected})")
    low = None if start == "~" else Fraction(start or 0)
    high = None if end is None else Fraction(end)
    if low is None and high is None:
        values = "every value" if inside else "no value"
        raise ValueError(f"{text!r} has no bound: {values} would trigger it")
    if low is not None and high is not None and low > high:
        hint = f"; below 0 write ~:{end}" if start is None else ""
        raise ValueError(f"{text!r} starts above its end{hint}")
    return Range(low, high, inside=bool(inside))
