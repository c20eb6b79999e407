"""Where a database differs from what it should be, each with the statements that mend it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from sql.roles import OWNER
from sql.snapshot import Item, Key, Snapshot, present, scratch

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

_IS_SUPERUSER = text("SELECT rolsuper FROM pg_roles WHERE rolname = :owner")
_PARTITIONS = text("""
    SELECT CAST(relname AS text) FROM pg_class
    WHERE relispartition AND relkind IN ('r', 'p')
        AND relnamespace = CAST('public' AS regnamespace)
        AND pg_get_userbyid(relowner) <> :owner
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
    with scratch(connection) as made:
        should = present(made)
        problems = [*_changed(made, found, should), *_too_much(found, should)]
    if connection.dialect.name == "postgresql":
        problems += _owned_by_others(connection, found, should)
    return problems


def _changed(made: Connection, found: Snapshot, should: Snapshot) -> Iterator[Problem]:
    for key, item in should.items():
        kind, name = key
        if kind == "column" and ("table", item.of) not in found:
            continue  # it comes with its table
        if key not in found:
            yield Problem(f"{kind} {name} is missing", item.make)
        elif found[key].definition != item.definition:
            mend = (_mend_sqlite if made.dialect.name == "sqlite" else _mend_postgresql)(
                made, key, found, should
            )
            yield Problem(f"{kind} {name} was changed", mend)


def _too_much(found: Snapshot, should: Snapshot) -> Iterator[Problem]:
    ours = {item.of for item in should.values()}
    for (kind, name), item in found.items():
        if kind == "grant" and item.of in ours and (kind, name) not in should:
            yield Problem(f"grant {name} is too much", item.drop)


def _mend_sqlite(_: Connection, key: Key, found: Snapshot, should: Snapshot) -> str:
    kind, name = key
    # What belongs to a table or view goes with it.
    others = [item.make for one, item in should.items() if item.of == name and one != key]
    if kind != "table":
        return "\n".join([should[key].make, *others])
    columns = ", ".join(one for one in found[key].shape if one in should[key].shape)
    return _SQLITE_TABLE.format(
        name=name, make=should[key].make, columns=columns, others="\n".join(others)
    )


def _mend_postgresql(made: Connection, key: Key, found: Snapshot, should: Snapshot) -> str | None:
    (kind, name), old, new = key, found[key], should[key]
    if kind == "table":
        return None  # partitioned, or no longer: its rows would have to move
    if kind == "column":
        return "\n".join(_alter_column(new.of, name.rpartition(".")[2], old.shape, new.shape))
    if kind in ("view", "function") and old.shape == new.shape[: len(old.shape)]:
        return new.make
    lost = [should[each] for each in _lost_with(made, new, should)]
    return "\n".join([*(item.drop for item in reversed(lost)), *(item.make for item in lost)])


def _lost_with(made: Connection, item: Item, should: Snapshot) -> list[Key]:
    """What a DROP takes along, the item itself included; columns and rights need no DROP."""
    with made.begin_nested() as undone:
        made.exec_driver_sql(f"{item.drop.rstrip(';')} CASCADE")
        left = present(made)
        undone.rollback()
    return [key for key in should if key not in left]


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


def _owned_by_others(
    connection: Connection, found: Snapshot, should: Snapshot
) -> Iterator[Problem]:
    """All belongs to one owner, who is no superuser: our functions run with the owner's rights."""
    owner = found["table", "alembic_version"].owner
    because = ""
    if connection.execute(_IS_SUPERUSER, {"owner": owner}).scalar_one():
        owner, because = OWNER, ": functions run with the rights of their owner"
    kinds = ("table", "view", "function")
    strays = [key for key in should if key[0] in kinds and key in found]
    strays = [key for key in strays if found[key].owner != owner]
    partitions = connection.execute(_PARTITIONS, {"owner": owner}).scalars()
    strays += [("table", name) for name in partitions]
    if strays:
        them = ", ".join(sorted({found[key].owner for key in strays if key in found}))
        yield Problem(
            f"{len(strays)} objects belong to {them or 'others'}, not to {owner}{because}",
            "\n".join(f"ALTER {kind.upper()} {name} OWNER TO {owner};" for kind, name in strays),
        )
