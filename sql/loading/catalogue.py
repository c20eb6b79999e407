"""The message classes of a database: its views with an INSTEAD OF INSERT trigger.

A class is refused as a whole, with all its problems at once, because a value that is silently lost
or changed would be worse than a message that waits as a dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.records.classes import (
    BUILT_IN,
    CHECK_CLASS,
    STATEMENTS,
    MessageClass,
    folded,
)
from sam_pipeline.schema.records.normalise import CLOCK, DAY, MOMENT
from sam_pipeline.sql.database.engine import SESSION_VERSION, reading
from sam_pipeline.sql.database.partitions import Partitions
from sam_pipeline.sql.database.script import view_names
from sam_pipeline.sql.errors import Kind, kind_of, message_of

MESSAGE_ID = "messageId"
"""The column that the loader fills with the id of the message."""
PUBLISHER = "publisher"
"""The column that the loader fills with the identity of the sender."""
RECEIVED_AT = "receivedAt"
"""The column that the database fills with the time at which it stores the row."""

SOURCE, ANNOUNCED_AT = "source", "announcedAt"
"""The columns of built-in classes of statements that say what else than a message said it, and of a
downtime when people could know, if not at its arrival."""

_FACTS = {MESSAGE_ID.lower(), PUBLISHER, RECEIVED_AT.lower()}

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

_POSTGRESQL = text("""
    WITH RECURSIVE plain (type, base) AS (
        SELECT oid, oid FROM pg_type WHERE typtype <> 'd'
        UNION ALL
        SELECT d.oid, p.base FROM pg_type AS d JOIN plain AS p ON p.type = d.typbasetype
        WHERE d.typtype = 'd'
    )
    SELECT
        CAST(c.relname AS text),
        array_agg(CAST(a.attname AS text) ORDER BY a.attnum),
        array_agg(
            CASE b.typtype WHEN 'e' THEN 'enum' WHEN 'b' THEN CAST(b.typname AS text) ELSE '' END
            ORDER BY a.attnum
        ),
        array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum),
        ARRAY(
            -- 68 = INSTEAD OF and INSERT; D and R = not for an ordinary session
            SELECT t.tgenabled NOT IN ('D', 'R') FROM pg_trigger AS t
            WHERE t.tgrelid = c.oid AND t.tgtype & 68 = 68
        ),
        EXISTS (
            SELECT FROM pg_proc AS f
            WHERE f.pronamespace = c.relnamespace
                AND f.proname = c.relname || '_load'
                AND has_function_privilege(f.oid, 'EXECUTE')
        )
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN plain AS p ON p.type = a.atttypid
    JOIN pg_type AS b ON b.oid = p.base
    WHERE c.relkind = 'v'
        AND c.relnamespace = CAST(CAST(current_schema() AS text) AS regnamespace)
    GROUP BY c.oid, c.relname
    ORDER BY c.relname
""")
_SQLITE_VIEWS = text("""
    SELECT v.name, t.sql
    FROM sqlite_schema AS v
    LEFT JOIN sqlite_schema AS t ON t.type = 'trigger' AND t.tbl_name = v.name COLLATE NOCASE
    WHERE v.type = 'view'
    ORDER BY v.name
""")
_SQLITE_COLUMNS = text("SELECT name FROM pragma_table_info(:view)")
_INSTEAD_OF_INSERT = re.compile(r"\bINSTEAD\s+OF\s+INSERT\b", re.IGNORECASE)


class ViewColumn(NamedTuple):
    """`base` is the type without domains, or None in SQLite, where every column accepts text."""

    name: str
    base: str | None = None
    type_name: str = ""


class View(NamedTuple):
    """`enabled` has one item per INSTEAD OF INSERT trigger: whether it is enabled."""

    name: str
    columns: tuple[ViewColumn, ...]
    enabled: tuple[bool, ...]
    error: str | None = None
    bulk: bool = False


@dataclass(frozen=True)
class ClassView:
    """The view of a message class; names are spelled as in the database.

    `columns`: those that a record can fill. `times`: the kinds of the columns that contain times,
    by key in lower case (see `normalise`). `statement_columns`: those of statements that only the
    loader can fill. `problem`: why the view can't be used at all. `bulk`: rows may be copied into
    its staging table, bypassing the trigger. `known`: the built-in class that it is.
    """

    name: str
    columns: tuple[str, ...]
    message_id_column: str | None = None
    publisher_column: str | None = None
    statement_columns: tuple[str, ...] = ()
    has_trigger: bool = True
    problem: str | None = None
    times: Mapping[str, str] = field(default_factory=dict)
    bulk: bool = False
    known: MessageClass | None = None
    class_name: str = field(init=False)
    """The catalogue of PostgreSQL has the names of built-in classes in lower case."""
    all_columns: tuple[str, ...] = field(init=False)
    """The columns of the record, and those about its message that the view has."""

    def __post_init__(self) -> None:
        facts = filter(None, [self.message_id_column, self.publisher_column])
        columns = (*self.columns, *facts, *self.statement_columns)
        object.__setattr__(self, "class_name", self.known.name if self.known else self.name)
        object.__setattr__(self, "all_columns", columns)

    def values(self, row: Mapping[str, str], message_id: str, publisher: str) -> list[str | None]:
        """A row with the facts about its message, in the order of `all_columns`."""
        values = [row.get(name) for name in self.columns]
        if self.message_id_column:
            values.append(message_id)
        if self.publisher_column:
            values.append(publisher)
        values += map(row.get, self.statement_columns)
        return values


class Classes(Protocol):
    """Finds classes: those of a database, or without one the built-in classes."""

    def find_all(self, names: Iterable[str]) -> Mapping[str, ClassView]:
        """The views of the classes with these folded names, as far as they exist."""


class BuiltInClasses:
    """The classes that all programs know."""

    def find_all(self, names: Iterable[str]) -> Mapping[str, ClassView]:
        known = ((name, BUILT_IN.get(name)) for name in names)
        return {name: ClassView(item.name, item.keys, known=item) for name, item in known if item}


class Catalogue:
    """The class views, read when first needed and again when an unknown name arrives.

    `version` is that of the schema when they were read; `partitions` are those of the results.
    """

    def __init__(self, engine: Engine) -> None:
        self.partitions = Partitions(engine)
        self._engine = engine
        self.version: str | None = None
        self._views: dict[str, ClassView] = {}

    def find(self, class_name: str | None) -> ClassView | None:
        """The view of a class, whose name compares like an unquoted identifier in SQL.

        A custom view without a trigger is returned with that problem.
        """
        name = folded(class_name or "")
        return self.find_all([name]).get(name)

    def find_all(self, names: Iterable[str]) -> dict[str, ClassView]:
        """The views of these folded names; unknown names are looked up in the database at once."""
        wanted = set(filter(None, names))
        if not wanted <= self._views.keys():
            self.version, views = _read(self._engine)
            # Of two views whose names differ only in case, the class is the one that works.
            views = [view for view in views if view.problem] + [v for v in views if not v.problem]
            self._views = dict(zip(map(folded, [view.name for view in views]), views, strict=True))
        return {name: self._views[name] for name in wanted & self._views.keys()}

    def names(self) -> list[str]:
        """The classes of the database."""
        return [view.class_name for view in class_views(self._engine)]

    def forget(self) -> None:
        """Read the views again when next needed, since one has changed."""
        self._views = {}


def class_views(engine: Engine) -> list[ClassView]:
    """The views that are, or are meant to be, classes, by name."""
    _, views = _read(engine)
    return [view for view in views if view.has_trigger or view.known]


def _read(engine: Engine) -> tuple[str | None, list[ClassView]]:
    """The version of the schema, and all views except those of the schema that are not classes."""
    with reading(engine) as connection:
        version = connection.info.get(SESSION_VERSION)
        dialect = connection.dialect.name
        if dialect == "postgresql":
            views = [
                View(name, tuple(map(ViewColumn, columns, bases, types)), tuple(enabled), bulk=bulk)
                for name, columns, bases, types, enabled, bulk in connection.execute(_POSTGRESQL)
            ]
        else:
            views = list(_sqlite_views(connection))
    names = [view.name for view in views]
    keys = dict(zip(names, map(folded, names), strict=True))
    own_names = view_names(dialect)
    own_of_key = dict(zip(map(folded, own_names), own_names, strict=True))
    classes_of_key: dict[str, list[str]] = {}
    for view in views:
        if view.enabled or keys[view.name] in BUILT_IN:
            classes_of_key.setdefault(keys[view.name], []).append(view.name)
    classes: list[ClassView] = []
    for view in views:
        key = keys[view.name]
        known = BUILT_IN.get(key)
        if not view.enabled and not known and view.name in own_names:
            continue
        rivals = [name for name in classes_of_key.get(key, ()) if name != view.name]
        columns = [column.name for column in view.columns]
        own = {SOURCE, ANNOUNCED_AT.lower()} if known in STATEMENTS else set()
        of_message = _FACTS | own
        facts = {name.lower(): name for name in columns if name.lower() in of_message}
        classes.append(
            ClassView(
                view.name,
                tuple(name for name in columns if name not in facts.values()),
                facts.get(MESSAGE_ID.lower()),
                facts.get(PUBLISHER),
                tuple(name for lower, name in facts.items() if lower in own),
                has_trigger=bool(view.enabled),
                problem=problem_of(view, key, own_of_key.get(key), rivals),
                times={
                    column.name.lower(): TIMES[column.base]
                    for column in view.columns
                    if column.base in TIMES
                },
                bulk=view.bulk,
                known=known,
            )
        )
    return version, classes


def _sqlite_views(connection: Connection) -> Iterator[View]:
    triggers = connection.execute(_SQLITE_VIEWS).all()
    for name, rows in groupby(triggers, lambda row: str(row[0])):
        enabled = tuple(True for _, body in rows if _INSTEAD_OF_INSERT.search(body or ""))
        try:
            columns = connection.execute(_SQLITE_COLUMNS, {"view": name}).scalars().all()
        except DBAPIError as error:
            if kind_of(error) is Kind.RETRY:
                raise
            yield View(name, (), enabled, error=message_of(error))
        else:
            yield View(name, tuple(map(ViewColumn, columns)), enabled)


def problem_of(view: View, key: str, own: str | None, rivals: Iterable[str] = ()) -> str | None:
    """All problems of a view as a class, or None.

    `key`: its folded name. `own`: the view of the schema with that folded name. `rivals`: other
    class views with it.
    """
    name, problems = view.name, list[str]()
    if not view.enabled:
        problems.append(f"view {name} has no INSTEAD OF INSERT trigger")
    elif not any(view.enabled):
        problems.append(f"the INSTEAD OF INSERT trigger of view {name} is disabled")
    if not name.isprintable() or name != name.strip():
        problems.append(f"no message header can carry the name {name!r}")
    if key == CHECK_CLASS:
        problems.append(f"messages of class {CHECK_CLASS} only test the path and are never loaded")
    if own == name and key in BUILT_IN:
        pass  # it is the class itself, and the view with a similar name is the problem
    elif own:
        problems.append(f'the schema has a view named "{key}": choose another name')
    else:
        problems += [
            f'differs from view "{rival}" only in upper and lower case' for rival in sorted(rivals)
        ]
    if view.error:
        problems.append(view.error)
    problems += [
        f"column {column.name} has type {column.type_name}, which no text can fill"
        for column in view.columns
        if column.base not in (None, *TEXT_FILLS)
    ]
    names = sorted((column.name for column in view.columns), key=str.lower)
    for _, group in groupby(names, str.lower):
        spellings = sorted(group)
        if len(spellings) > 1:
            quoted = " and ".join(f'"{name}"' for name in spellings)
            problems.append(f"columns {quoted} differ only in upper and lower case")
    return "; ".join(problems) or None
