"""Where a database differs from what it should be, each with the statements that mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, text

from sam_pipeline.sql.checks.schema_objects import Key, Snapshot, present, scratch
from sam_pipeline.sql.database.roles import OWNER, missing_roles

OWNED = ("table", "view", "function")

_SQLITE_TABLE = """\
PRAGMA foreign_keys = OFF;
PRAGMA legacy_alter_table = ON;
BEGIN IMMEDIATE;
ALTER TABLE {name} RENAME TO sam_old_{name};
{make}
INSERT INTO {name} ({columns}) SELECT {columns} FROM sam_old_{name};
DROP TABLE sam_old_{name};
{others}
COMMIT;
PRAGMA legacy_alter_table = OFF;
PRAGMA foreign_keys = ON;"""

_IS_SUPERUSER = text("SELECT rolsuper FROM pg_roles WHERE quote_ident(rolname) = :owner")
_PARTITIONS = text("""
    SELECT CAST(relname AS text), quote_ident(pg_get_userbyid(relowner)) FROM pg_class
    WHERE relispartition AND relkind IN ('r', 'p')
        AND relnamespace = CAST('public' AS regnamespace)
        AND quote_ident(pg_get_userbyid(relowner)) <> :owner
    ORDER BY relname
""")


@dataclass(frozen=True)
class Problem:
    """`mend` is one statement or several, for psql or sqlite3; None: no statement helps."""

    words: str
    mend: str | None = None


def differences(connection: Connection) -> list[Problem]:
    """What is missing, other or more than it should be, in the order in which it can be mended.

    A site's own objects, and rights of a site's own roles, are its own business.
    """
    found = present(connection)
    if connection.dialect.name == "sqlite":
        with scratch(connection) as made:
            return list(_changed(_Sqlite(found, present(made))))
    owner, is_superuser = _owner(connection, found)
    with scratch(connection) as made:
        should = present(made)
        if missing_roles(connection):  # nobody is granted anything
            found, should = _without_grants(found), _without_grants(should)
        problems = [*_changed(_Postgresql(found, should, made, owner)), *_too_much(found, should)]
    return [*problems, *_owned_by_others(connection, found, should, owner, is_superuser)]


class _Dialect(Protocol):
    """How what is missing or changed is mended; None: no statement does it."""

    @property
    def found(self) -> Snapshot: ...
    @property
    def should(self) -> Snapshot: ...
    def make(self, key: Key) -> str: ...
    def change(self, key: Key) -> str | None: ...


def _changed(dialect: _Dialect) -> Iterator[Problem]:
    found = dialect.found
    for key, item in dialect.should.items():
        kind, name = key
        if kind == "column" and ("table", item.of) not in found:
            continue  # it comes with its table
        if key not in found:
            yield Problem(f"{kind} {name} is missing", dialect.make(key))
        elif found[key].definition != item.definition:
            yield Problem(f"{kind} {name} was changed", dialect.change(key))


def _too_much(found: Snapshot, should: Snapshot) -> Iterator[Problem]:
    ours = {item.of for item in should.values()}
    for (kind, name), item in found.items():
        if kind == "grant" and item.of in ours and (kind, name) not in should:
            yield Problem(f"grant {name} is too much", item.drop)


@dataclass(frozen=True)
class _Sqlite:
    found: Snapshot
    should: Snapshot

    def make(self, key: Key) -> str:
        return self.should[key].make

    def change(self, key: Key) -> str:
        kind, name = key
        # What belongs to a table or view goes with it.
        others = [one.make for each, one in self.should.items() if one.of == name and each != key]
        if kind != "table":
            return "\n".join([self.make(key), *others])
        kept = [one for one in self.found[key].shape if one in self.should[key].shape]
        return _SQLITE_TABLE.format(
            name=name, make=self.make(key), columns=", ".join(kept), others="\n".join(others)
        )


@dataclass(frozen=True)
class _Postgresql:
    found: Snapshot
    should: Snapshot
    made: Connection
    owner: str

    def make(self, key: Key) -> str:
        """Whoever runs it, it becomes the owner's; by default all may run a function."""
        kind, name = key
        lines = [self.should[key].make]
        if kind in OWNED:
            lines.append(_to_owner(key, self.owner))
        if kind == "function" and ("grant", f"EXECUTE ON {name} TO PUBLIC") not in self.should:
            lines.append(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC;")
        return "\n".join(lines)

    def change(self, key: Key) -> str | None:
        (kind, name), old, new = key, self.found[key], self.should[key]
        if kind == "table":
            return None  # partitioned, or no longer: its rows would have to move
        if kind == "column":
            return "\n".join(_alter_column(new.of, name.rpartition(".")[2], old.shape, new.shape))
        if kind in ("view", "function") and old.shape == new.shape[: len(old.shape)]:
            return new.make
        lost = [key] if kind == "grant" else self._lost_with(key)
        drops = [self.should[each].drop for each in reversed(lost)]
        return "\n".join([*filter(None, drops), *map(self.make, lost)])

    def _lost_with(self, key: Key) -> list[Key]:
        """What a DROP takes along, the object itself included."""
        with self.made.begin_nested() as undone:
            self.made.exec_driver_sql(f"{self.should[key].drop.rstrip(';')} CASCADE")
            left = present(self.made)
            undone.rollback()
        return [each for each in self.should if each not in left]


def _alter_column(table: str, column: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    alter = f"ALTER TABLE {table} ALTER COLUMN {column}"
    changed = [was != is_now for was, is_now in zip(old, new, strict=True)]
    kind, not_null, default, identity = new
    if changed[0]:
        yield f"{alter} TYPE {kind};"
    if changed[1]:
        yield f"{alter} {'SET' if not_null else 'DROP'} NOT NULL;"
    if changed[2]:
        yield f"{alter} {f'SET {default}' if default else 'DROP DEFAULT'};"
    if changed[3]:
        yield f"{alter} DROP IDENTITY IF EXISTS;"
    if changed[3] and identity:
        yield f"{alter} ADD {identity};"
        sequence = f"pg_get_serial_sequence('{table}', '{column}')"
        yield f"SELECT setval({sequence}, coalesce(max({column}), 0) + 1, false) FROM {table};"


def _owner(connection: Connection, found: Snapshot) -> tuple[str, bool]:
    """Whose all should be, and whether that is because now it is a superuser's."""
    owner = found["table", "alembic_version"].owner
    if connection.execute(_IS_SUPERUSER, {"owner": owner}).scalar_one():
        return OWNER, True
    return owner, False


def _owned_by_others(
    connection: Connection, found: Snapshot, should: Snapshot, owner: str, is_superuser: bool
) -> Iterator[Problem]:
    strays = {
        key: found[key].owner
        for key in should
        if key[0] in OWNED and key in found and found[key].owner != owner
    }
    for name, other in connection.execute(_PARTITIONS, {"owner": owner}):
        strays["table", name] = other
    because = ": functions run with the rights of their owner" if is_superuser else ""
    if strays:
        others = ", ".join(sorted(set(strays.values())))
        yield Problem(
            f"{len(strays)} of our objects belong to {others}, not to {owner}{because}",
            "\n".join(_to_owner(key, owner) for key in strays),
        )


def _to_owner(key: Key, owner: str) -> str:
    kind, name = key
    return f"ALTER {kind.upper()} {name} OWNER TO {owner};"


def _without_grants(snapshot: Snapshot) -> Snapshot:
    return {key: item for key, item in snapshot.items() if key[0] != "grant"}
