"""The tables `[[thresholds]]` of a profile (availability rule 6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sam_pipeline.schema.program.toml_lines import KeyPath
from sam_pipeline.spark_jobs.profiles.problems import Problems, instead
from sam_pipeline.spark_jobs.profiles.profile import Flavour, Range, Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import read_range

ANY = ""  # host or flavour
KEYS = ("metric", "label", "warning", "critical", "host", "flavour")

Metrics = Mapping[str, frozenset[str]]
"""The metrics of each flavour, and all of them under ANY."""


def read_thresholds(
    document: Mapping[str, Any], flavours: Collection[Flavour], problems: Problems
) -> tuple[Threshold, ...]:
    """The rules of a profile; what is wrong with them goes to the problems."""
    found = document.get("thresholds", [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        problems.add(("thresholds",), "want tables [[thresholds]]")
        return ()
    metrics = {each.name: frozenset(each.metrics) for each in flavours}
    metrics[ANY] = frozenset().union(*metrics.values())
    rules: dict[tuple[str, ...], tuple[KeyPath, Threshold]] = {}
    for number, table in enumerate(found, 1):
        place = ("thresholds", number)
        rule = _threshold(table, place, metrics, problems)
        selector = (rule.metric_name, rule.label, rule.host_name, rule.service_flavour)
        if selector in rules and all(selector[:2]):
            first = problems.line(rules[selector][0])
            other = f" (line {first})" if first else ""
            problems.add(place, f"another rule{other} is for the same metric, label, host, flavour")
        rules.setdefault(selector, (place, rule))
    return tuple(rule for _, rule in rules.values())


def _threshold(
    table: Mapping[str, Any], place: KeyPath, metrics: Metrics, problems: Problems
) -> Threshold:
    problems.unknown_keys(table, KEYS, place)
    if "warning" not in table and "critical" not in table:
        problems.add(place, "want warning or critical, or both")
    host = problems.text_or_empty(table, "host", place) or ANY
    flavour = problems.text_or_empty(table, "flavour", place) or ANY
    if flavour not in metrics:
        words = f"no flavour {flavour} in this profile{problems.hint(flavour, metrics)}"
        problems.add((*place, "flavour"), words)
    return Threshold(
        metric_name=_metric(table, place, flavour, metrics, problems),
        label=_label(table, place, problems),
        warning=_range(table, "warning", place, problems),
        critical=_range(table, "critical", place, problems),
        host_name=host.lower().rstrip("."),  # as the database has host names
        service_flavour=flavour,
    )


def _metric(
    table: Mapping[str, Any], place: KeyPath, flavour: str, metrics: Metrics, problems: Problems
) -> str:
    """The metric; it must be of the profile, and of the flavour if the rule names one."""
    name = problems.text(table, "metric", place, "the metric's name")
    if name and name not in metrics[ANY]:
        words = f"no metric {name} in this profile{problems.hint(name, metrics[ANY])}"
        problems.add((*place, "metric"), words)
    elif name and name not in metrics.get(flavour, metrics[ANY]):
        problems.add((*place, "metric"), f"flavour {flavour} has no metric {name}")
    return name


def _label(table: Mapping[str, Any], place: KeyPath, problems: Problems) -> str:
    label = problems.text(table, "label", place, "a label of the performance data")
    if len(label) > 1 and label[0] == label[-1] == "'":
        problems.add((*place, "label"), "want the label without its single quotes")
    return label


def _range(table: Mapping[str, Any], key: str, place: KeyPath, problems: Problems) -> Range | None:
    found = table.get(key)
    if isinstance(found, str):
        try:
            return read_range(found)
        except ValueError as error:
            problems.add((*place, key), str(error))
    elif key in table:
        words = f'want a range in quotes, as "10"{instead(table, key)}'
        problems.add((*place, key), words)
    return None
