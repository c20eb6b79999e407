"""Fragments of a configuration: merges their keys, and finds the file and line of each.

Imported only if there are fragments, or to report a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sam_pipeline.schema.settings.toml_lines import KeyPath, lines_of

File = TypeVar("File")


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


def problem_of_key(path: KeyPath, *files: tuple[Path, str]) -> str:
    """The problem of a key that is set in two files, the second one first."""
    *table, key = map(str, path)
    name = f"[{'.'.join(table)}] {key}" if table else key
    again, before = (f"{file}:{lines_of(text)[path]}" for file, text in files)
    return f"{again}: {name} is also set at {before}: remove one of them"


def joined_lines(files: Iterable[tuple[Path, str]]) -> dict[KeyPath, str]:
    """`FILE:LINE` of each path; items of arrays are numbered through all files."""
    lines: dict[KeyPath, str] = {}
    items: Counter[KeyPath] = Counter()
    for file, text in files:
        moved: dict[KeyPath, str] = {}
        for path, line in lines_of(text).items():
            to: KeyPath = ()
            for step in path:
                to = (*to, step + items[to] if isinstance(step, int) else step)
            moved[to] = f"{file}:{line}"
        lines = {**moved, **lines}
        items.update(path[:-1] for path in moved if isinstance(path[-1], int))
    return lines
