"""The files and lines of keys, which TOML parsers don't report, and the merging of fragments.

Imported only if there are fragments, or to report a problem: it parses each statement again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union

if sys.version_info >= (3, 11):
    from tomllib import loads  # novm
else:
    from tomli import loads

KeyPath = tuple[Union[str, int], ...]
"""The keys that lead to a value, and the numbers of array items, from 1.

The second `[[thresholds]]` is ("thresholds", 2), and so is the second table of an inline array.
"""
File = TypeVar("File")

_ENDS = ("]", '"""', "'''")
"""A value of several lines ends with one of these."""


def lines_of(text: str) -> dict[KeyPath, int]:
    """The line of each path, from 1; of a table with several headers, the first.

    `text` is valid TOML with plain newlines.
    """
    lines: dict[KeyPath, int] = {}
    tables: Counter[KeyPath] = Counter()  # by array of tables: its tables so far
    table: KeyPath = ()
    for line, statement, values in _statements(text):
        if not statement.lstrip().startswith("["):
            _add(lines, table, values, line, statement)
            continue
        table = ()
        while values:
            [(name, values)] = values.items()
            table = (*table, name)
            lines.setdefault(table, line)
            if isinstance(values, list):
                values = None
                tables[table] += 1
                table = (*table, tables[table])
                lines[table] = line
            elif values and table in tables:
                table = (*table, tables[table])
    return lines


def _statements(text: str) -> Iterator[tuple[int, str, Any]]:
    """Each header and each pair with its first line and its values: the least that is TOML."""
    first, statement = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        statement += f"{line}\n"
        goes_on = line.rstrip().endswith(",") and "#" not in line
        if number == first or (not goes_on and any(end in line for end in _ENDS)):
            values = _parsed(statement)
            if values is not None:
                yield first, statement, values
                first, statement = number + 1, ""


def _parsed(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        return None


def _add(
    lines: dict[KeyPath, int], path: KeyPath, value: Any, line: int, statement: str = ""
) -> None:
    """Add the paths inside a value."""
    if isinstance(value, dict):
        for name, item in value.items():
            lines.setdefault((*path, name), line)
            _add(lines, (*path, name), item, line, statement)
    elif isinstance(value, list):
        several = "\n" in statement.rstrip()
        lines_of_items = _lines_of_items(statement, line) if several else [line] * len(value)
        for number, (item, its_line) in enumerate(zip(value, lines_of_items), 1):
            lines[(*path, number)] = its_line
            _add(lines, (*path, number), item, its_line)


def _lines_of_items(statement: str, first: int) -> list[int]:
    """The line of each item of a list of several lines: where the parts begin that are lists."""
    found: list[int] = []
    begin, part = "", ""
    for number, line in enumerate(statement.split("\n"), first):
        part = f"{part}{line}\n".lstrip(", \t")
        value = _parsed(f"{begin}{part}]") or _parsed(f"{begin}{part}")
        if value is not None:
            while isinstance(value, dict):
                [value] = value.values()
            found += [first] * len(value)
            begin, part, first = "x = [", "", number + 1
    return found


def merge(
    values: dict[str, Any],
    more: dict[str, Any],
    file: File,
    owners: dict[KeyPath, File],
    table: KeyPath = (),
) -> Iterator[KeyPath]:
    """Add `more`, the contents of `file`, to `values`; yields keys that both have.

    Tables are merged and arrays of tables joined. `owners` gets the paths of added tables.
    """
    for key, value in more.items():
        path, before = (*table, key), values.get(key)
        if before is None:
            values[key] = value
            owners[path] = file
        elif isinstance(before, dict) and isinstance(value, dict):
            yield from merge(before, value, file, owners, path)
        elif _are_tables(before) and _are_tables(value):
            owners.update({(*path, len(before) + n): file for n in range(1, len(value) + 1)})
            before.extend(value)
        else:
            yield path


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def joined_lines(texts: Mapping[Path, str]) -> dict[KeyPath, str]:
    """`FILE:LINE` of each path; items of arrays are numbered through all files."""
    lines: dict[KeyPath, str] = {}
    items: Counter[KeyPath] = Counter()
    for file, text in texts.items():
        moved: dict[KeyPath, str] = {}
        for path, line in lines_of(text).items():
            to: KeyPath = ()
            for step in path:
                to = (*to, step + items[to] if isinstance(step, int) else step)
            moved[to] = f"{file}:{line}"
        lines = {**moved, **lines}
        items.update(path[:-1] for path in moved if isinstance(path[-1], int))
    return lines
