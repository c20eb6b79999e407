"""Turns the document of a profile into a Profile, and finds all its problems."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sam_pipeline.schema.settings.toml_lines import KeyPath
from sam_pipeline.spark_jobs.profiles.keys import KEYS, names
from sam_pipeline.spark_jobs.profiles.problems import Problems, is_downtime_kind, shown
from sam_pipeline.spark_jobs.profiles.profile import OFF, Flavour, Function, Profile
from sam_pipeline.spark_jobs.profiles.target_tables import TargetReader
from sam_pipeline.spark_jobs.profiles.threshold_tables import read_thresholds
from sam_pipeline.spark_jobs.rules.statuses import AND, OR, Operation, own_operation

MAX_VALIDITY_S = 2**31 - 1
_DURATION = re.compile("([1-9][0-9]{0,5})([mhd])")


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

        targets = TargetReader(document, self._problems)
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
            targets=targets.everywhere(),
            targets_of_groups=targets.of_groups(),
            targets_of_sites=targets.of_sites(),
            notice_s=self._notice(document),
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

    def _notice(self, document: Mapping[str, Any]) -> int:
        value = document.get("notice", "")
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match:
            return int(match[1]) * {"m": 60, "h": 3600, "d": 86_400}[match[2]]
        if "notice" in document:
            message = f'expected a time such as "24h", "90m" or "2d", not {shown(value)}'
            self._problems.add(("notice",), message)
        return 0

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
