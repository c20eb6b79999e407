"""The problems of a profile, each with its line and key."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Any

from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.settings.toml_lines import KeyPath
from sam_pipeline.spark_jobs.errors import ProfileError

# Suggestions take time: at most this many problems get one, if at most this many names are known.
_MAX_HINTS, _MAX_NAMES = 20, 1000
_MAX_SHOWN = 60  # characters of a wrong value

Table = Mapping[str, Any]


class Problems:
    """Reads values of one file, and collects their problems.

    A path leads from the top of the file to a key; `table` is the table that has the key.
    """

    def __init__(self, file: str, lines: Mapping[KeyPath, int]) -> None:
        self._file = file
        self._lines = lines
        self._problems: list[tuple[int, str]] = []

    def add(self, path: KeyPath, message: str) -> None:
        key = ""  # as in `thresholds[2].warning`; items count from 1
        for part in path:
            if isinstance(part, int):
                key += f"[{part}]"
            elif is_name(part) and len(part) <= _MAX_SHOWN:
                key += f".{part}"
            else:
                key += f".{json.dumps(part)[:_MAX_SHOWN]}"
        line = self.line(path)
        where = f"{self._file}:{line}" if line else self._file
        self._problems.append((line, f"{where}: {key.removeprefix('.')}: {message}"))

    def line(self, path: KeyPath) -> int:
        """The line of the key, or of the closest table around it; 0 if neither is in the file."""
        around = (path[:length] for length in range(len(path), 0, -1))
        return next((self._lines[part] for part in around if part in self._lines), 0)

    def raise_any(self) -> None:
        """Raise all problems, from top to bottom, if there are any.

        Raises:
            ProfileError: a line for each problem.
        """
        if self._problems:
            ordered = sorted(self._problems, key=lambda problem: problem[0])
            raise ProfileError([text for _, text in ordered])

    def hint(self, name: str, known: Collection[str]) -> str:
        """`, did you mean ping?` if a known name resembles an unknown one, else an empty text."""
        if len(self._problems) >= _MAX_HINTS or len(known) > _MAX_NAMES:
            return ""
        suggestion = did_you_mean(name, known)
        return f", {suggestion}" if suggestion else ""

    def unknown_keys(self, table: Table, known: Iterable[str], path: KeyPath) -> None:
        names = dict.fromkeys(known)
        for key in table:
            if key not in names:
                self.add((*path, key), f"unknown key{self.hint(key, names)}")

    def table(self, around: Table, *path: str) -> dict[str, Any]:
        """The table at the end of the path, in the one `around` it; empty if there is none."""
        table = around.get(path[-1], {})
        if isinstance(table, dict):
            return table
        self.add(path, f"expected a table [{'.'.join(path)}]")
        return {}

    def tables(self, around: Table, *path: str) -> dict[str, Table]:
        """The tables in a table, by name."""
        tables = self.table(around, *path)
        for name, table in tables.items():
            if not isinstance(table, dict):
                self.add((*path, name), f"expected a table [{'.'.join((*path, name))}]")
            elif not is_name(name):
                self.add((*path, name), "not a valid name")
        return {name: table for name, table in tables.items() if isinstance(table, dict)}

    def names(self, table: Table, path: KeyPath, kind: str) -> tuple[str, ...]:
        """A required list of names, without duplicates; `kind` says which ones, in the plural."""
        names = table.get(str(path[-1]))
        if not isinstance(names, list) or not names:
            self.add(path, f"expected a list of {kind}, at least one")
            return ()
        unique: dict[str, None] = {}
        for number, name in enumerate(names, 1):
            if not is_name(name):
                self.add((*path, number), f"expected a string, not {shown(name)}")
            elif name in unique:
                self.add((*path, number), f"{shown(name)} is listed twice")
            else:
                unique[name] = None
        return tuple(unique)

    def name(self, table: Table, path: KeyPath, meaning: str) -> str:
        """A required name; empty if it is missing or wrong."""
        key = str(path[-1])
        if key not in table:
            self.add(path, f"is required: {meaning}")
        elif not is_name(table[key]):
            self.add(path, f"expected {meaning} as a string, not {shown(table[key])}")
        else:
            return str(table[key])
        return ""

    def optional_name(self, table: Table, path: KeyPath) -> str | None:
        """A name, which may be empty; None if it is missing or wrong."""
        name = table.get(str(path[-1]))
        if name in (None, "") or is_name(name):
            return name
        self.add(path, f"expected a string, not {shown(name)}")
        return None

    def percentage(self, table: Table, path: KeyPath, default: Fraction) -> Fraction:
        """A percentage; the default if it is missing or wrong."""
        value = table.get(str(path[-1]))
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 <= value <= 100:
            self.add(path, f"expected a percentage from 0 to 100, not {shown(value)}")
            return default
        return Fraction(str(value))


def is_name(value: object) -> bool:
    """Whether the value is a printable string, not empty, without blanks around it."""
    return isinstance(value, str) and value == value.strip() != "" and value.isprintable()


def is_downtime_kind(value: object) -> bool:
    """Whether the value is a string CLASSIFICATION/SEVERITY."""
    parts = value.split("/") if isinstance(value, str) and is_name(value) else []
    return len(parts) == 2 and all(map(is_name, parts))


def shown(value: Any) -> str:
    """A wrong value as it would be written, cut to fit on a line."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
