"""The tables `[[thresholds]]` of a profile (availability rule 6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sam_pipeline.schema.settings.toml_lines import KeyPath
from sam_pipeline.spark_jobs.profiles.keys import names
from sam_pipeline.spark_jobs.profiles.problems import Problems, shown
from sam_pipeline.spark_jobs.profiles.profile import Flavour, Range, Threshold
from sam_pipeline.spark_jobs.profiles.thresholds import read_range

ANY = ""  # host or flavour


def read_thresholds(
    document: Mapping[str, Any], flavours: Collection[Flavour], problems: Problems
) -> tuple[Threshold, ...]:
    """The rules of a profile; adds their problems to `problems`."""
    tables = document.get("thresholds", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.add(("thresholds",), "expected tables [[thresholds]]")
        return ()
    # The metrics of each flavour, and all of them under ANY.
    metrics = {flavour.name: frozenset(flavour.metrics) for flavour in flavours}
    metrics[ANY] = frozenset().union(*metrics.values())
    rules: dict[tuple[str, ...], tuple[KeyPath, Threshold]] = {}
    for number, table in enumerate(tables, 1):
        path = ("thresholds", number)
        rule = _threshold(table, path, metrics, problems)
        selector = (rule.metric_name, rule.label, rule.host_name, rule.service_flavour)
        if selector in rules and all(selector[:2]):
            line = problems.line(rules[selector][0])
            other = f"the rule in line {line}" if line else "another rule"
            problems.add(path, f"same metric, label, host and flavour as {other}")
        rules.setdefault(selector, (path, rule))
    return tuple(rule for _, rule in rules.values())


def _threshold(
    table: Mapping[str, Any],
    path: KeyPath,
    metrics: Mapping[str, frozenset[str]],
    problems: Problems,
) -> Threshold:
    """One rule; `metrics` has the metrics of each flavour, and all metrics under ANY."""
    problems.unknown_keys(table, names("thresholds"), path)
    if "warning" not in table and "critical" not in table:
        problems.add(path, "expected warning or critical, or both")
    host = problems.optional_name(table, (*path, "host")) or ANY
    flavour = problems.optional_name(table, (*path, "flavour")) or ANY
    if flavour not in metrics:
        message = f"no flavour {flavour} in this profile{problems.hint(flavour, metrics)}"
        problems.add((*path, "flavour"), message)
    metric = problems.name(table, (*path, "metric"), "the metric's name")
    if metric and metric not in metrics[ANY]:
        message = f"no metric {metric} in this profile{problems.hint(metric, metrics[ANY])}"
        problems.add((*path, "metric"), message)
    elif metric and metric not in metrics.get(flavour, metrics[ANY]):
        problems.add((*path, "metric"), f"flavour {flavour} has no metric {metric}")
    label = problems.name(table, (*path, "label"), "a label of the performance data")
    if len(label) > 1 and label[0] == label[-1] == "'":
        problems.add((*path, "label"), "expected the label without its single quotes")
    return Threshold(
        metric_name=metric,
        label=label,
        warning=_range(table, (*path, "warning"), problems),
        critical=_range(table, (*path, "critical"), problems),
        host_name=host.lower().rstrip("."),  # as in the database
        service_flavour=flavour,
    )


def _range(table: Mapping[str, Any], path: KeyPath, problems: Problems) -> Range | None:
    key = str(path[-1])
    if key in table:
        try:
            if isinstance(table[key], str):
                return read_range(table[key])
            problems.add(path, f'expected a range in quotes, as "10", not {shown(table[key])}')
        except ValueError as error:
            problems.add(path, str(error))
    return None
