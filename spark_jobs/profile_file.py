"""Reads a profile, and tells all its problems at once, each with its line."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from spark_jobs.errors import NoProfile, ProfileError
from spark_jobs.profile import OFF, Flavour, Function, Profile, Targets
from spark_jobs.status import AND, OR, Operation, own_operation

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
    "operations",
)
DEFAULT_DOWNTIMES = ["SCHEDULED/OUTAGE"]

_HEADER = re.compile(r"\s*\[\[?([^\[\]]+)\]")
_KEY = re.compile(
    r"""\s*((?:[\w.-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)

Place = tuple[str, ...]


def read_profile(path: Path) -> Profile:
    """The profile in a TOML file.

    Raises:
        NoProfile: there is no such file.
        ProfileError: everything that is wrong with it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise NoProfile(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ProfileError([f"{path}: {error}"]) from None
    reader = _Reader(str(path), _lines(text))
    return reader.profile(document)


def read_profiles(paths: Iterable[Path]) -> list[Profile]:
    """The profiles of several files.

    Raises:
        NoProfile: one of them can't be read.
        ProfileError: everything that is wrong with any of them.
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
            problems.append(f"{path}: name: another profile makes the report {profile.name}")
        profiles[profile.name] = profile
    if problems:
        raise ProfileError(problems)
    return list(profiles.values())


def recorded_profile(document: str) -> Profile:
    """The profile that a run recorded."""
    return _Reader("the recorded profile", {}).profile(json.loads(document))


class _Reader:
    """Turns a TOML document into a profile and collects what is wrong with it."""

    def __init__(self, file: str, lines: Mapping[Place, int]) -> None:
        self._file = file
        self._lines = lines
        self._problems: list[tuple[int, str]] = []
        self._operations = {"AND": AND, "OR": OR}

    def profile(self, document: Mapping[str, Any]) -> Profile:
        self._known(document, KEYS, ())
        self._operations |= self._own_operations(document)
        flavours = self._flavours(document)
        profile = Profile(
            name=self._name(document),
            validity_s=self._default_validity(document),
            validity_of=self._validity_of(document, flavours),
            vo=self._text(document, "vo"),
            fqan=self._text(document, "fqan"),
            downtimes=self._downtimes(document),
            metrics_operation=self._operation(document, "metrics_operation", (), "AND"),
            functions_operation=self._operation(document, "functions_operation", (), "AND"),
            flavours=flavours,
            functions=self._functions(document, flavours),
            targets=self._targets(document),
            operations=tuple(self._operations.values()),
            document=json.dumps(document, sort_keys=True, default=str),
        )
        if self._problems:
            raise ProfileError([text for _, text in sorted(self._problems)])
        return profile

    def _problem(self, place: Place, words: str) -> None:
        line = next((self._lines[p] for p in _upwards(place) if p in self._lines), 0)
        where = f"{self._file}:{line}" if line else self._file
        key = ".".join(place)
        self._problems.append((line, f"{where}: {key}: {words}" if key else f"{where}: {words}"))

    def _known(self, table: Mapping[str, Any], known: Iterable[str], place: Place) -> None:
        for key in table:
            if key not in known:
                close = difflib.get_close_matches(key, list(known), 1, 0.4)
                hint = f", did you mean {close[0]}?" if close else ""
                self._problem((*place, key), f"unknown key{hint}")

    def _tables(self, document: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
        found = self._table(document, key)
        for name, table in found.items():
            if not isinstance(table, dict):
                self._problem((key, name), f"want a table [{key}.{name}]")
        return {name: table for name, table in found.items() if isinstance(table, dict)}

    def _table(self, document: Mapping[str, Any], key: str) -> dict[str, Any]:
        found = document.get(key, {})
        if isinstance(found, dict):
            return found
        self._problem((key,), f"want a table [{key}]")
        return {}

    def _name(self, document: Mapping[str, Any]) -> str:
        name = document.get("name")
        if isinstance(name, str) and name.strip() and name.isprintable():
            return name
        self._problem(
            ("name",), "is required: the report's name, a text" if not name else "no name"
        )
        return ""

    def _text(self, document: Mapping[str, Any], key: str) -> str | None:
        found = document.get(key)
        if found is None or isinstance(found, str):
            return found
        self._problem((key,), f"want a text, not {found!r}")
        return None

    def _names(
        self, table: Mapping[str, Any], key: str, place: Place, what: str
    ) -> tuple[str, ...]:
        found = table.get(key)
        if isinstance(found, list) and found and all(isinstance(n, str) and n for n in found):
            return tuple(dict.fromkeys(found))
        self._problem((*place, key), f"want a list of {what}, at least one")
        return ()

    def _default_validity(self, document: Mapping[str, Any]) -> int | None:
        if "validity_s" in document:
            return self._validity(document["validity_s"], ("validity_s",))
        self._problem(("validity_s",), f'is required: seconds, or "{OFF}" (results never grow old)')
        return None

    def _validity(self, value: Any, place: Place) -> int | None:
        if value == OFF:
            return None
        if type(value) is int and value > 0:
            return value
        self._problem(place, f'want whole seconds above 0, or "{OFF}", not {value!r}')
        return None

    def _validity_of(
        self, document: Mapping[str, Any], flavours: Iterable[Flavour]
    ) -> dict[str, int | None]:
        found = self._table(document, "validity")
        self._known(
            found, [name for flavour in flavours for name in flavour.metrics], ("validity",)
        )
        return {name: self._validity(value, ("validity", name)) for name, value in found.items()}

    def _downtimes(self, document: Mapping[str, Any]) -> tuple[str, ...]:
        found = document.get("downtimes", DEFAULT_DOWNTIMES)
        if isinstance(found, list) and all(_is_downtime(kind) for kind in found):
            return tuple(kind.upper() for kind in found)
        self._problem(("downtimes",), 'want a list of "CLASSIFICATION/SEVERITY"')
        return ()

    def _operation(self, table: Mapping[str, Any], key: str, place: Place, default: str) -> str:
        found = table.get(key, default)
        if found not in self._operations:
            names = ", ".join(self._operations)
            self._problem((*place, key), f"no operation {found!r}: there are {names}")
            return default
        return str(found)

    def _own_operations(self, document: Mapping[str, Any]) -> dict[str, Operation]:
        own = {}
        for name, table in self._tables(document, "operations").items():
            place = ("operations", name)
            self._known(table, ["table"], place)
            if name in ("AND", "OR"):
                self._problem(place, "has a fixed table; give yours another name")
                continue
            operation = self._own_operation(name, table.get("table"), (*place, "table"))
            own[name] = operation or Operation(name, AND.table)
        return own

    def _own_operation(self, name: str, rows: Any, place: Place) -> Operation | None:
        if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
            self._problem(place, "want a list of triples [a, b, result]")
            return None
        operation, problems = own_operation(name, rows)
        for problem in problems:
            self._problem(place, problem)
        return operation

    def _flavours(self, document: Mapping[str, Any]) -> tuple[Flavour, ...]:
        found = self._tables(document, "flavours")
        if not found:
            self._problem(
                ("flavours",), "at least one [flavours.NAME] with its metrics is required"
            )
        return tuple(self._flavour(name, table) for name, table in found.items())

    def _flavour(self, name: str, table: Mapping[str, Any]) -> Flavour:
        place = ("flavours", name)
        self._known(table, ["metrics", "endpoints_operation"], place)
        metrics = self._names(table, "metrics", place, "metric names")
        return Flavour(name, metrics, self._operation(table, "endpoints_operation", place, "OR"))

    def _functions(
        self, document: Mapping[str, Any], flavours: tuple[Flavour, ...]
    ) -> tuple[Function, ...]:
        found = self._tables(document, "functions")
        if not found:
            return tuple(Function(item.name, (item.name,), "OR") for item in flavours)
        known = [flavour.name for flavour in flavours]
        return tuple(self._function(name, table, known) for name, table in found.items())

    def _function(self, name: str, table: Mapping[str, Any], known: list[str]) -> Function:
        place = ("functions", name)
        self._known(table, ["flavours", "flavours_operation"], place)
        flavours = self._names(table, "flavours", place, "flavours")
        for flavour in flavours:
            if flavour not in known:
                words = f"flavour {flavour} has no metrics: [flavours.{flavour}] is missing"
                self._problem((*place, "flavours"), words)
        return Function(name, flavours, self._operation(table, "flavours_operation", place, "OR"))

    def _targets(self, document: Mapping[str, Any]) -> Targets:
        found = self._table(document, "targets")
        known = list(Targets.__dataclass_fields__)
        self._known(found, known, ("targets",))
        for key in known:
            value = found.get(key, 0)
            if type(value) not in (int, float) or not 0 <= value <= 100:
                self._problem(("targets", key), f"want a percentage from 0 to 100, not {value!r}")
                return Targets()
        return Targets(**{key: Fraction(str(found[key])) for key in known if key in found})


def _is_downtime(kind: object) -> bool:
    return isinstance(kind, str) and all(kind.partition("/")) and kind.count("/") == 1


def _is_row(row: object) -> bool:
    return isinstance(row, list) and all(isinstance(word, str) for word in row)


def _upwards(place: Place) -> Iterable[Place]:
    return (place[:length] for length in range(len(place), 0, -1))


def _lines(text: str) -> dict[Place, int]:
    """The line of each key and table: what tomllib reads but doesn't tell.

    A line inside a multi-line value may look like a key; it then only adds a place nobody asks for.
    """
    lines: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            table = _place(header.group(1))
            lines.setdefault(table, number)
        elif key:
            lines.setdefault((*table, *_place(key.group(1))), number)
    return lines


def _place(key: str) -> Place:
    """The parts of a TOML key, quoted ones too."""
    try:
        found: Any = tomllib.loads(f"{key} = 0")
    except ValueError:
        return ()
    parts = []
    while isinstance(found, dict):
        [(part, found)] = found.items()
        parts.append(part)
    return tuple(parts)
