"""The message classes a database knows: its views with an INSTEAD OF INSERT trigger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sql.engine import reading
from sql.errors import Kind, kind_of, words_of

MESSAGE_ID = "messageId"
"""The one column that the loader fills by itself."""

_POSTGRESQL = text("""
    SELECT
        c.relname,
        array_agg(CAST(a.attname AS text) ORDER BY a.attnum),
        EXISTS (
            SELECT FROM pg_proc AS p
            WHERE p.pronamespace = c.relnamespace AND p.proname = c.relname || '_load'
        )
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind = 'v'
        AND c.relnamespace = CAST(CAST(current_schema() AS text) AS regnamespace)
        AND EXISTS (
            -- 68 = INSTEAD OF and INSERT
            SELECT FROM pg_trigger AS t
            WHERE t.tgrelid = c.oid AND t.tgtype & 68 = 68 AND t.tgenabled <> 'D'
        )
    GROUP BY c.oid, c.relname
    ORDER BY c.relname
""")
_SQLITE_VIEWS = text("""
    SELECT v.name, t.sql
    FROM sqlite_schema AS v
    JOIN sqlite_schema AS t ON t.type = 'trigger' AND t.tbl_name = v.name COLLATE NOCASE
    WHERE v.type = 'view'
    ORDER BY v.name
""")
_SQLITE_COLUMNS = text("SELECT name FROM pragma_table_info(:view)")
_INSTEAD_OF_INSERT = re.compile(r"\bINSTEAD\s+OF\s+INSERT\b", re.IGNORECASE)


@dataclass(frozen=True)
class ClassView:
    """The view of a message class, in the database's own spelling.

    `columns` are those a record can fill; `problem` says why the view can't be used at all.
    `bulk`: it has a staging table beside its trigger.
    """

    name: str
    columns: tuple[str, ...]
    message_id_column: str | None
    problem: str | None = None
    bulk: bool = False

    @property
    def all_columns(self) -> tuple[str, ...]:
        """Those of the record, and the one of the message's id if there is one."""
        return (*self.columns, *filter(None, [self.message_id_column]))


class Catalogue:
    """The class views, read when first asked and again when an unknown name arrives."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._views: dict[str, ClassView] = {}

    def find(self, class_name: str | None) -> ClassView | None:
        """The view of a class, whose name compares as SQL compares unquoted identifiers."""
        name = (class_name or "").lower()
        if name and name not in self._views:
            self._views = {view.name.lower(): view for view in class_views(self._engine)}
        return self._views.get(name)

    def forget(self) -> None:
        """Read again at the next question: a view was found changed."""
        self._views = {}


def class_views(engine: Engine) -> list[ClassView]:
    """All class views of the database, by name."""
    with reading(engine) as connection:
        if connection.dialect.name == "postgresql":
            rows = connection.execute(_POSTGRESQL)
            return [_class_view(name, columns, bulk) for name, columns, bulk in rows]
        return list(_sqlite_views(connection))


def _sqlite_views(connection: Connection) -> Iterator[ClassView]:
    triggers = connection.execute(_SQLITE_VIEWS).all()
    for name in dict.fromkeys(n for n, body in triggers if _INSTEAD_OF_INSERT.search(body)):
        try:
            columns = connection.execute(_SQLITE_COLUMNS, {"view": name}).scalars().all()
        except DBAPIError as error:
            if kind_of(error) is Kind.RETRY:
                raise
            yield ClassView(name, (), None, problem=words_of(error))
        else:
            yield _class_view(name, columns)


def _class_view(name: str, columns: Iterable[str], bulk: bool = False) -> ClassView:
    names = tuple(columns)
    ours = next((column for column in names if column.lower() == MESSAGE_ID.lower()), None)
    others = tuple(column for column in names if column != ours)
    return ClassView(name, others, ours, bulk=bulk)
