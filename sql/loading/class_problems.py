"""The reasons why a view can't be a message class, reported to the author of the view.

A class is refused as a whole, with all its problems at once, because a value that is silently lost
or changed would be worse than a message that waits as a dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import NamedTuple

from sam_pipeline.schema.records.classes import CHECK_CLASS, built_in, folded
from sam_pipeline.schema.records.normalise import CLOCK, DAY, MOMENT

TEXT_FILLS = frozenset(
    {
        *("text", "varchar", "bpchar", "citext", "name", "enum", "uuid", "bool"),
        *("int2", "int4", "int8", "numeric", "float4", "float8"),
        *("date", "time", "timetz", "timestamp", "timestamptz", "interval"),
        *("inet", "cidr", "macaddr", "json", "jsonb"),
    }
)
"""Types of PostgreSQL that accept or reject a value as text without changing its meaning.

A domain counts as its base type. Not bytea, where a backslash has another meaning.
"""

TIMES = {"timestamptz": MOMENT, "timestamp": MOMENT, "date": DAY, "time": CLOCK, "timetz": CLOCK}
"""Types that the loader parses itself: PostgreSQL would accept `now` and drop a UTC offset."""


class Column(NamedTuple):
    """`base` is the type without domains, or None in SQLite, where every column accepts text."""

    name: str
    base: str | None = None
    type_name: str = ""


class View(NamedTuple):
    """`enabled` has one item per INSTEAD OF INSERT trigger: whether it is enabled."""

    name: str
    columns: tuple[Column, ...]
    enabled: tuple[bool, ...]
    error: str | None = None
    bulk: bool = False


def problem_of(
    view: View, class_names: Collection[str], schemas_own: Collection[str]
) -> str | None:
    """All problems of a view as a class, or None.

    `class_names`: the views that are classes. `schemas_own`: the views of the schema itself.
    """
    problems: list[str] = []
    if not view.enabled:
        problems.append(f"view {view.name} has no INSTEAD OF INSERT trigger")
    elif not any(view.enabled):
        problems.append(f"the INSTEAD OF INSERT trigger of view {view.name} is disabled")
    problems += _name_problems(view.name, class_names, schemas_own)
    if view.error:
        problems.append(view.error)
    for column in view.columns:
        if column.base not in (None, *TEXT_FILLS):
            problems.append(
                f"column {column.name} has type {column.type_name}, which no text can fill"
            )
    names = sorted((column.name for column in view.columns), key=str.lower)
    for _, group in groupby(names, str.lower):
        spellings = sorted(group)
        if len(spellings) > 1:
            quoted = " and ".join(f'"{name}"' for name in spellings)
            problems.append(f"columns {quoted} differ only in upper and lower case")
    return "; ".join(problems) or None


def _name_problems(
    name: str, class_names: Collection[str], schemas_own: Collection[str]
) -> Iterator[str]:
    if not name.isprintable() or name != name.strip():
        yield f"no message header can carry the name {name!r}"
    if folded(name) == CHECK_CLASS:
        yield f"messages of class {CHECK_CLASS} only test the path and are never loaded"
    known = built_in(name)
    if known and name in schemas_own:
        return  # it is the class itself, and the view with a similar name is the problem
    if folded(name) in map(folded, schemas_own):
        yield f'the schema has a view named "{folded(name)}": choose another name'
        return
    for other in sorted(class_names):
        if other != name and folded(other) == folded(name):
            yield f'differs from view "{other}" only in upper and lower case'
