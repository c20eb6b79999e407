"""Turns a profile's document into a Profile, and finds everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from sam_pipeline.schema.program.toml_lines import KeyPath
from sam_pipeline.spark_jobs.profiles.problems import Problems, instead, is_text, shown
from sam_pipeline.spark_jobs.profiles.profile import OFF, Flavour, Function, Profile, Targets
from sam_pipeline.spark_jobs.profiles.threshold_tables import read_thresholds
from sam_pipeline.spark_jobs.rules.statuses import AND, OR, Operation, own_operation

KEYS = (
    "name",
    "validity_s",
    "metrics_operation",
    "functions_operation",
    "vo",
    "fqan",
    "downtimes",
    "flavours",
    "functions",
    "validity",
    "targets",
    "thresholds",
    "operations",
)
DEFAULT_DOWNTIMES = ["SCHEDULED/OUTAGE"]
LONGEST_VALIDITY_S = 2**31 - 1


class ProfileReader:
    """Reads one document; `problems` knows its lines."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._operations = {"AND": AND, "OR": OR}

    def profile(self, document: Mapping[str, Any]) -> Profile:
        """
        Raises:
            ProfileError: everything that is wrong with the document.
        """
        self._problems.unknown_keys(document, KEYS, ())
        self._operations |= self._own_operations(document)
        flavours = self._flavours(document)
        profile = Profile(
            name=self._problems.text(document, "name", (), "the report's name"),
            validity_s=self._default_validity(document),
            validity_of=self._validity_of(document, flavours),
            vo=self._problems.text_or_empty(document, "vo"),
            fqan=self._problems.text_or_empty(document, "fqan"),
            downtimes=self._downtimes(document),
            metrics_operation=self._operation(document, "metrics_operation", (), "AND"),
            functions_operation=self._operation(document, "functions_operation", (), "AND"),
            flavours=flavours,
            functions=self._functions(document, flavours),
            targets=self._targets(document),
            operations=tuple(self._operations.values()),
            document=json.dumps(document, sort_keys=True, default=str),
            thresholds=read_thresholds(document, flavours, self._problems),
        )
        self._problems.refuse()
        return profile

    def _default_validity(self, document: Mapping[str, Any]) -> int | None:
        if "validity_s" in document:
            return self._validity(document["validity_s"], ("validity_s",))
        words = f'is required: seconds, or "{OFF}" (results never grow old)'
        self._problems.add(("validity_s",), words)
        return None

    def _validity(self, value: Any, place: KeyPath) -> int | None:
        if value == OFF:
            return None
        if type(value) is int and 0 < value <= LONGEST_VALIDITY_S:
            return value
        above = f" (at most {LONGEST_VALIDITY_S})" if type(value) is int and value > 0 else ""
        words = f'want whole seconds above 0{above}, or "{OFF}", not {shown(value)}'
        self._problems.add(place, words)
        return None

    def _validity_of(
        self, document: Mapping[str, Any], flavours: Iterable[Flavour]
    ) -> dict[str, int | None]:
        found = self._problems.table(document, "validity")
        metrics = [name for flavour in flavours for name in flavour.metrics]
        self._problems.unknown_keys(found, metrics, ("validity",))
        return {name: self._validity(value, ("validity", name)) for name, value in found.items()}

    def _downtimes(self, document: Mapping[str, Any]) -> tuple[str, ...]:
        found = document.get("downtimes", DEFAULT_DOWNTIMES)
        if isinstance(found, list) and all(_is_downtime(kind) for kind in found):
            return tuple(kind.upper() for kind in found)
        words = f'want a list of "CLASSIFICATION/SEVERITY"{instead(document, "downtimes")}'
        self._problems.add(("downtimes",), words)
        return ()

    def _operation(self, table: Mapping[str, Any], key: str, place: KeyPath, default: str) -> str:
        found = table.get(key, default)
        if isinstance(found, str) and found in self._operations:
            return found
        names = ", ".join(self._operations)
        self._problems.add((*place, key), f"no operation {shown(found)}: there are {names}")
        return default

    def _own_operations(self, document: Mapping[str, Any]) -> dict[str, Operation]:
        own = {}
        for name, table in self._problems.tables(document, "operations").items():
            place = ("operations", name)
            self._problems.unknown_keys(table, ["table"], place)
            if name in ("AND", "OR"):
                self._problems.add(place, "has a fixed table; give yours another name")
                continue
            operation = self._own_operation(name, table.get("table"), (*place, "table"))
            own[name] = operation or Operation(name, AND.table)
        return own

    def _own_operation(self, name: str, rows: Any, place: KeyPath) -> Operation | None:
        if not isinstance(rows, list):
            self._problems.add(place, "want a list of triples [a, b, result]")
            return None
        operation, problems = own_operation(name, rows)
        for row, words in problems:
            self._problems.add((*place, row) if row else place, words)
        return operation

    def _flavours(self, document: Mapping[str, Any]) -> tuple[Flavour, ...]:
        found = self._problems.tables(document, "flavours")
        if not found:
            words = "at least one [flavours.NAME] with its metrics is required"
            self._problems.add(("flavours",), words)
        return tuple(self._flavour(name, table) for name, table in found.items())

    def _flavour(self, name: str, table: Mapping[str, Any]) -> Flavour:
        place = ("flavours", name)
        self._problems.unknown_keys(table, ["metrics", "endpoints_operation"], place)
        metrics = self._problems.names(table, "metrics", place, "metric names")
        return Flavour(name, metrics, self._operation(table, "endpoints_operation", place, "OR"))

    def _functions(
        self, document: Mapping[str, Any], flavours: tuple[Flavour, ...]
    ) -> tuple[Function, ...]:
        found = self._problems.tables(document, "functions")
        if not found:
            return tuple(Function(item.name, (item.name,), "OR") for item in flavours)
        known = {flavour.name for flavour in flavours}
        return tuple(self._function(name, table, known) for name, table in found.items())

    def _function(self, name: str, table: Mapping[str, Any], known: set[str]) -> Function:
        place = ("functions", name)
        self._problems.unknown_keys(table, ["flavours", "flavours_operation"], place)
        flavours = self._problems.names(table, "flavours", place, "flavours")
        for flavour in flavours:
            if flavour not in known:
                words = f"flavour {flavour} has no metrics: [flavours.{flavour}] is missing"
                number = table["flavours"].index(flavour) + 1
                self._problems.add((*place, "flavours", number), words)
        return Function(name, flavours, self._operation(table, "flavours_operation", place, "OR"))

    def _targets(self, document: Mapping[str, Any]) -> Targets:
        found = self._problems.table(document, "targets")
        known = list(Targets.__dataclass_fields__)
        self._problems.unknown_keys(found, known, ("targets",))
        good = {}
        for key in known:
            value = found.get(key, 0)
            if type(value) not in (int, float) or not 0 <= value <= 100:
                words = f"want a percentage from 0 to 100, not {shown(value)}"
                self._problems.add(("targets", key), words)
            elif key in found:
                good[key] = Fraction(str(value))
        return Targets(**good)


def _is_downtime(kind: object) -> bool:
    return is_text(kind) and all(map(is_text, str(kind).split("/"))) and str(kind).count("/") == 1
