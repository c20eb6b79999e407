"""The keys of a profile: their defaults, and their descriptions for the documentation."""

from __future__ import annotations

from typing import Any, NamedTuple

from sam_pipeline.spark_jobs.rules.figures import Targets


class ProfileKey(NamedTuple):
    description: str
    default: Any = None
    required: bool = False


KEYS = {
    "name": ProfileKey("the name of the report, as in `--report`", required=True),
    "validity_s": ProfileKey('whole seconds, or `"off"`: [validity](#validity)', required=True),
    "metrics_operation": ProfileKey(
        "combines the metrics of an endpoint: [states](#from-metrics-to-a-site)", "AND"
    ),
    "functions_operation": ProfileKey("combines the functions of a site", "AND"),
    "vo": ProfileKey("only results of this VO count: [VO](#vo)"),
    "fqan": ProfileKey("only results of this FQAN count"),
    "downtimes": ProfileKey(
        "the kinds of downtime that count: [downtimes](#downtimes)", ["SCHEDULED/OUTAGE"]
    ),
    "notice": ProfileKey(
        'how long before its start a downtime must be announced to count as scheduled, as `"24h"`:'
        " [downtimes](#downtimes)"
    ),
    "sites": ProfileKey(
        'patterns for names of sites, as `["T1_*"]`; others are not expected: [sites](#sites)'
    ),
    "groups": ProfileKey(
        'patterns for `TYPE/NAME` of groups whose members are expected, as `["tier/1"]`'
    ),
    "flavours.NAME.metrics": ProfileKey(
        "the metrics of its endpoints, at least one", required=True
    ),
    "flavours.NAME.endpoints_operation": ProfileKey(
        "combines the endpoints of this flavour at a site", "OR"
    ),
    "functions.NAME.flavours": ProfileKey(
        "flavours of the profile; without `functions`, each flavour is a function of its own name"
    ),
    "functions.NAME.flavours_operation": ProfileKey("combines its flavours at a site", "OR"),
    "validity.METRIC": ProfileKey("overrides `validity_s` for this metric"),
    "targets.availability": ProfileKey("[targets](#targets), in percent", Targets.availability),
    "targets.reliability": ProfileKey("in percent", Targets.reliability),
    "targets.unknown": ProfileKey("a maximum, in percent", Targets.unknown),
    "targets.coverage": ProfileKey("in percent, of groups", Targets.coverage),
    "targets.groups.TYPE.NAME": ProfileKey(
        "targets of the sites of a group, and of the group: [by group and site](#by-group-and-site)"
    ),
    "targets.sites.NAME": ProfileKey("targets of a site"),
    "thresholds.metric": ProfileKey("the metric of a [threshold](#thresholds)", required=True),
    "thresholds.label": ProfileKey("the label of a value in its performance data", required=True),
    "thresholds.warning": ProfileKey("a range; `warning`, `critical` or both are required"),
    "thresholds.critical": ProfileKey("a range"),
    "thresholds.host": ProfileKey("only for this host"),
    "thresholds.flavour": ProfileKey("only for this flavour"),
    "operations.NAME.table": ProfileKey(
        "[a table of your own](#a-table-of-your-own)", required=True
    ),
}


def names(table: str = "") -> list[str]:
    """The keys of a table such as `flavours.NAME`; by default, those at the top of the file."""
    prefix = f"{table}." if table else ""
    paths = [path.removeprefix(prefix) for path in KEYS if path.startswith(prefix)]
    return list(dict.fromkeys(path.split(".")[0] for path in paths))
