"""Why a view can't be a message class, for whoever created it.

A class is refused as a whole, with all its problems at once: a value that is silently lost or
changed would be worse than a message that waits as a dead letter.
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
"""Types of PostgreSQL that take any value as text, or refuse it with an error. A domain counts as
its base type. Not bytea: there a backslash means something else."""

TIMES = {"timestamptz": MOMENT, "timestamp": MOMENT, "date": DAY, "time": CLOCK, "timetz": CLOCK}
"""Types the loader must parse itself: PostgreSQL would accept `now`, and drop an offset."""


class Column(NamedTuple):
    """`base` is the type without domains; None in SQLite, where every column takes a text."""

    name: str
    base: str | None = None
    type_name: str = ""


class View(NamedTuple):
    """`enabled`: whether each INSTEAD OF INSERT trigger of the view is."""

    name: str
    columns: tuple[Column, ...]
    enabled: tuple[bool, ...]
    error: str | None = None
    bulk: bool = False


def problem_of(view: View, rivals: Collection[str], schemas_own: Collection[str]) -> str | None:
    """All problems of a view as a class; None if there are none.

    `rivals`: names of the other classes. `schemas_own`: those of the schema's own views.
    """
    problems: list[str] = []
    if not view.enabled:
        problems.append(f"view {view.name} has no INSTEAD OF INSERT trigger")
    elif not any(view.enabled):
        problems.append(f"the INSTEAD OF INSERT trigger of view {view.name} is disabled")
    problems += _of_name(view.name, rivals, schemas_own)
    if view.error:
        problems.append(view.error)
    for column in view.columns:
        if column.base not in (None, *TEXT_FILLS):
            problems.append(
                f"column {column.name} has type {column.type_name}, which no text can fill"
            )
    names = sorted((column.name for column in view.columns), key=str.lower)
    for _, group in groupby(names, str.lower):
        same = sorted(group)
        if len(same) > 1:
            quoted = " and ".join(f'"{name}"' for name in same)
            problems.append(f"columns {quoted} differ only in upper and lower case")
    return "; ".join(problems) or None


def _of_name(name: str, rivals: Collection[str], schemas_own: Collection[str]) -> Iterator[str]:
    if not name.isprintable() or name != name.strip():
        yield f"no message header can carry the name {name!r}"
    if folded(name) == CHECK_CLASS:
        yield f"messages of class {CHECK_CLASS} only prove a path and are never loaded"
    known = built_in(name)
    if known and name in schemas_own:
        return  # the class itself: the view with a similar name is the problem
    if folded(name) in map(folded, schemas_own):
        yield f'the schema has a view of the name "{folded(name)}": choose another'
        return
    for rival in sorted(rivals):
        if rival != name and folded(rival) == folded(name):
            yield f'differs from view "{rival}" only in upper and lower case'
