"""The keys of a profile: their defaults, and their descriptions for the documentation."""

from __future__ import annotations

from typing import Any, NamedTuple

from sam_pipeline.spark_jobs.rules.figures import Targets


class Key(NamedTuple):
    description: str
    default: Any = None
    required: bool = False


KEYS = {
    "name": Key("the name of the report, as in `--report`", required=True),
    "validity_s": Key('whole seconds, or `"off"`: [validity](#validity)', required=True),
    "metrics_operation": Key(
        "combines the metrics of an endpoint: [states](#from-metrics-to-a-site)", "AND"
    ),
    "functions_operation": Key("combines the functions of a site", "AND"),
    "vo": Key("only results of this VO count: [VO](#vo)"),
    "fqan": Key("only results of this FQAN count"),
    "downtimes": Key(
        "the kinds of downtime that count: [downtimes](#downtimes)", ["SCHEDULED/OUTAGE"]
    ),
    "notice": Key(
        'how long before its start a downtime must be announced to count as scheduled, as `"24h"`:'
        " [downtimes](#downtimes)"
    ),
    "sites": Key(
        'patterns for names of sites, as `["T1_*"]`; others are not expected: [sites](#sites)'
    ),
    "groups": Key('patterns for `TYPE/NAME` of groups whose members are expected, as `["tier/1"]`'),
    "flavours.NAME.metrics": Key("the metrics of its endpoints, at least one", required=True),
    "flavours.NAME.endpoints_operation": Key(
        "combines the endpoints of this flavour at a site", "OR"
    ),
    "functions.NAME.flavours": Key(
        "flavours of the profile; without `functions`, each flavour is a function of its own name"
    ),
    "functions.NAME.flavours_operation": Key("combines its flavours at a site", "OR"),
    "validity.METRIC": Key("overrides `validity_s` for this metric"),
    "targets.availability": Key("[targets](#targets), in percent", Targets.availability),
    "targets.reliability": Key("in percent", Targets.reliability),
    "targets.unknown": Key("a maximum, in percent", Targets.unknown),
    "targets.coverage": Key("in percent, of groups", Targets.coverage),
    "targets.groups.TYPE.NAME": Key(
        "targets of the sites of a group, and of the group: [by group and site](#by-group-and-site)"
    ),
    "targets.sites.NAME": Key("targets of a site"),
    "thresholds.metric": Key("the metric of a [threshold](#thresholds)", required=True),
    "thresholds.label": Key("the label of a value in its performance data", required=True),
    "thresholds.warning": Key("a range; `warning`, `critical` or both are required"),
    "thresholds.critical": Key("a range"),
    "thresholds.host": Key("only for this host"),
    "thresholds.flavour": Key("only for this flavour"),
    "operations.NAME.table": Key("[a table of your own](#a-table-of-your-own)", required=True),
}


def names(table: str = "") -> list[str]:
    """The keys of a table such as `flavours.NAME`; by default, those at the top of the file."""
    prefix = f"{table}." if table else ""
    paths = [path.removeprefix(prefix) for path in KEYS if path.startswith(prefix)]
    return list(dict.fromkeys(path.split(".")[0] for path in paths))
