"""Reads profiles, and reports all their problems at once, each with its line; here are the keys."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from sam_pipeline.schema.settings.toml_lines import KeyPath, lines_of
from sam_pipeline.schema.times import parse_duration
from sam_pipeline.spark_jobs.errors import NoProfile, ProfileError
from sam_pipeline.spark_jobs.profiles.problems import Problems, Table, is_downtime_kind, shown
from sam_pipeline.spark_jobs.profiles.profile import (
    ARGO,
    OFF,
    Flavour,
    Function,
    Profile,
    Range,
    Threshold,
)
from sam_pipeline.spark_jobs.profiles.thresholds import read_range
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.statuses import AND, OR, Operation, own_operation

_AT_LINE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
_AT_END = " (at end of document)"

MAX_VALIDITY_S = 2**31 - 1
ANY = ""  # host or flavour


def read_profile(path: Path) -> Profile:
    """The profile in a TOML file.

    Raises:
        NoProfile: the file does not exist or cannot be read.
        ProfileError: all problems of the profile.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NoProfile(f"{path}: {error.strerror}") from None
    try:
        # Some editors start a file with a byte order mark.
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte {data[error.start]:#04x}"
        raise ProfileError(
            [f"{path}:{line}: {byte} is not UTF-8: save the file as UTF-8"]
        ) from None
    try:
        document = tomllib.loads(text)
        return ProfileReader(Problems(str(path), lines_of(text))).profile(document)
    except RecursionError:
        raise ProfileError([f"{path}: its values are nested too deeply"]) from None
    except ValueError as error:  # from tomllib, or for an integer with thousands of digits
        message, where = str(error), f"{path}"
        if match := _AT_LINE.fullmatch(message):
            message, where = match[1], f"{path}:{match[2]}"
        elif message.endswith(_AT_END):
            lines = text.rstrip().count("\n") + 1
            message, where = message.removesuffix(_AT_END), f"{path}:{lines}"
        raise ProfileError([f"{where}: {message}"]) from None


def read_profiles(paths: Iterable[Path]) -> list[Profile]:
    """The profiles of several files.

    Raises:
        NoProfile: one of the files does not exist or cannot be read.
        ProfileError: all problems of all profiles.
    """
    problems: list[str] = []
    profiles: dict[str, Profile] = {}
    for path in paths:
        try:
            profile = read_profile(path)
        except ProfileError as error:
            problems += error.problems
            continue
        if profile.name in profiles:
            problems.append(f"{path}: name: another profile defines the report {profile.name}")
        profiles[profile.name] = profile
    if problems:
        raise ProfileError(problems)
    return list(profiles.values())


def recorded_profile(document: str) -> Profile:
    """The profile that a run recorded."""
    return ProfileReader(Problems("the recorded profile", {})).profile(json.loads(document))


class ProfileKey(NamedTuple):
    """A key: its description for the documentation, and its default."""

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
    "weights": ProfileKey(
        '`"argo"`: sites count in groups with their weight + 1: [groups](#groups-and-weights)'
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


class ProfileReader:
    """Reads one document; `problems` knows its lines."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._operations = {"AND": AND, "OR": OR}

    def profile(self, document: Mapping[str, Any]) -> Profile:
        """The profile.

        Raises:
            ProfileError: all problems of the document.
        """
        self._problems.unknown_keys(document, names(), ())
        self._operations |= self._own_operations(document)
        flavours = tuple(
            Flavour(
                flavour,
                self._problems.names(table, (*path, "metrics"), "metric names"),
                self._operation(table, (*path, "endpoints_operation"), "OR"),
            )
            for flavour, table, path in self._tables(document, "flavours")
        )
        if not flavours:
            message = "at least one [flavours.NAME] with its metrics is required"
            self._problems.add(("flavours",), message)

        name = self._problems.name(document, ("name",), "the report's name")
        validity_s = self._validity(document, ("validity_s",))
        validity = self._problems.table(document, "validity")
        metrics = [metric for flavour in flavours for metric in flavour.metrics]
        self._problems.unknown_keys(validity, metrics, ("validity",))

        downtimes = document.get("downtimes", KEYS["downtimes"].default)
        if not isinstance(downtimes, list) or not all(map(is_downtime_kind, downtimes)):
            message = f'expected a list of "CLASSIFICATION/SEVERITY", not {shown(downtimes)}'
            self._problems.add(("downtimes",), message)
            downtimes = []
        notice = timedelta()
        try:
            notice = parse_duration(str(document.get("notice", "0s")))
        except ValueError as error:
            self._problems.add(("notice",), str(error))

        weights = document.get("weights", "")
        if "weights" in document and weights != ARGO:
            self._problems.add(("weights",), f'expected "{ARGO}", not {shown(weights)}')

        profile = Profile(
            name=name,
            validity_s=validity_s,
            validity_of={key: self._validity(validity, ("validity", key)) for key in validity},
            vo=self._problems.optional_name(document, ("vo",)),
            fqan=self._problems.optional_name(document, ("fqan",)),
            downtimes=tuple(kind.upper() for kind in downtimes),
            metrics_operation=self._operation(document, ("metrics_operation",), "AND"),
            functions_operation=self._operation(document, ("functions_operation",), "AND"),
            flavours=flavours,
            functions=self._functions(document, flavours),
            **read_targets(document, self._problems),
            notice_s=int(notice.total_seconds()),
            weights=ARGO if weights == ARGO else "",
            sites=self._patterns(document, "sites", "patterns for names of sites"),
            groups=self._patterns(document, "groups", 'patterns "TYPE/NAME" of groups'),
            operations=tuple(self._operations.values()),
            document=json.dumps(document, sort_keys=True, default=str),
            thresholds=read_thresholds(document, flavours, self._problems),
        )
        self._problems.raise_any()
        return profile

    def _own_operations(self, document: Mapping[str, Any]) -> dict[str, Operation]:
        operations = {}
        for name, table, path in self._tables(document, "operations"):
            if name in ("AND", "OR"):
                self._problems.add(path, "has a fixed table: use another name for your own")
                continue
            operation, rows = None, table.get("table")
            if isinstance(rows, list):
                operation, problems = own_operation(name, rows)
                for row, message in problems:
                    self._problems.add((*path, "table", row) if row else (*path, "table"), message)
            else:
                self._problems.add((*path, "table"), "expected a list of triples [a, b, result]")
            # A wrong table still defines its name for the rest of the profile.
            operations[name] = operation or Operation(name, AND.table)
        return operations

    def _functions(
        self, document: Mapping[str, Any], flavours: tuple[Flavour, ...]
    ) -> tuple[Function, ...]:
        known = {flavour.name: flavour for flavour in flavours}
        functions = []
        for name, table, path in self._tables(document, "functions"):
            members = self._problems.names(table, (*path, "flavours"), "flavours")
            for flavour in members:
                if flavour not in known:
                    number = table["flavours"].index(flavour) + 1
                    message = f"flavour {flavour} has no metrics: [flavours.{flavour}] is missing"
                    self._problems.add((*path, "flavours", number), message)
            operation = self._operation(table, (*path, "flavours_operation"), "OR")
            functions.append(Function(name, members, operation))
        return tuple(functions or (Function(name, (name,), "OR") for name in known))

    def _tables(
        self, document: Mapping[str, Any], key: str
    ) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, str]]]:
        """The tables [key.NAME], each with its name and path, reporting their unknown keys."""
        for name, table in self._problems.tables(document, key).items():
            path = (key, name)
            self._problems.unknown_keys(table, names(f"{key}.NAME"), path)
            yield name, table, path

    def _operation(self, table: Mapping[str, Any], path: KeyPath, default: str) -> str:
        name = table.get(str(path[-1]), default)
        if isinstance(name, str) and name in self._operations:
            return name
        known = ", ".join(self._operations)
        self._problems.add(path, f"expected one of {known}, not {shown(name)}")
        return default

    def _patterns(self, document: Mapping[str, Any], key: str, kind: str) -> tuple[str, ...]:
        if key not in document:
            return ()
        patterns = self._problems.names(document, (key,), kind)
        for pattern in patterns if key == "groups" else ():
            if not all(pattern.partition("/")):
                number = document[key].index(pattern) + 1
                self._problems.add((key, number), f'expected "TYPE/NAME", not {shown(pattern)}')
        return patterns

    def _validity(self, table: Mapping[str, Any], path: KeyPath) -> int | None:
        key = str(path[-1])
        if key not in table:
            self._problems.add(path, f'is required: seconds, or "{OFF}" (results never expire)')
            return None
        value = table[key]
        if type(value) is int and 0 < value <= MAX_VALIDITY_S:
            return value
        if value != OFF:
            expected = f'whole seconds from 1 to {MAX_VALIDITY_S}, or "{OFF}"'
            self._problems.add(path, f"expected {expected}, not {shown(value)}")
        return None


def read_targets(document: Table, problems: Problems) -> dict[str, Any]:
    """The targets of everything, of groups and of sites, as fields of a Profile."""
    targets = problems.table(document, "targets")
    problems.unknown_keys(targets, names("targets"), ("targets",))
    of_all = vars(Targets())
    of_site = [name for name in of_all if name != "coverage"]

    def own(table: Table, known: Iterable[str], path: KeyPath) -> dict[str, Fraction]:
        problems.unknown_keys(table, known, path)
        return {
            name: problems.percentage(table, (*path, name), Fraction())
            for name in of_all
            if name in table
        }

    types = problems.tables(targets, "targets", "groups")
    return {
        "targets": Targets(
            **{
                name: problems.percentage(targets, ("targets", name), default)
                for name, default in of_all.items()
            }
        ),
        "targets_of_groups": {
            (of_type, name): own(table, of_all, ("targets", "groups", of_type, name))
            for of_type in types
            for name, table in problems.tables(types, "targets", "groups", of_type).items()
        },
        "targets_of_sites": {
            site: own(table, of_site, ("targets", "sites", site))
            for site, table in problems.tables(targets, "targets", "sites").items()
        },
    }


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
