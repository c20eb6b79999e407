"""The publishers of a database: identities, and the names that the policy has for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.sql.errors import NoSuchPublisher

_MAKE = {
    "postgresql": text("SELECT make_publishers(CAST(:identities AS text[]))"),
    "sqlite": text("""
        INSERT INTO publisher (identity, name) VALUES (:identity, :identity)
        ON CONFLICT (identity) DO NOTHING
    """),
}
_IDS = text(
    "SELECT identity, publisher_id FROM publisher WHERE identity IN :identities"
).bindparams(bindparam("identities", expanding=True))
_ALL = text("SELECT publisher_id, identity, name FROM publisher ORDER BY identity")
_NAME = {
    "postgresql": text("""
        SELECT name_publishers(CAST(:identities AS text[]), CAST(:names AS text[]))
    """),
    "sqlite": text("""
        INSERT INTO publisher (identity, name) VALUES (:identity, :name)
        ON CONFLICT (identity) DO UPDATE SET name = excluded.name WHERE name <> excluded.name
    """),
}


def publisher_ids(connection: Connection, identities: Collection[str]) -> dict[str, int]:
    """The ids of these identities, created in the caller's transaction where they are missing."""
    wanted = sorted(set(identities))
    if not wanted:
        return {}
    if connection.dialect.name == "postgresql":
        connection.execute(_MAKE["postgresql"], {"identities": wanted})
    else:
        connection.execute(_MAKE["sqlite"], [{"identity": identity} for identity in wanted])
    rows = connection.execute(_IDS, {"identities": wanted})
    return {row.identity: row.publisher_id for row in rows}


def name_publishers(connection: Connection, names: Mapping[str, str]) -> None:
    """Store the names that the policy has for these identities."""
    items = sorted(names.items())
    if not items:
        return
    if connection.dialect.name == "postgresql":
        identities, policy_names = map(list, zip(*items, strict=True))
        connection.execute(_NAME["postgresql"], {"identities": identities, "names": policy_names})
    else:
        values = [{"identity": identity, "name": name} for identity, name in items]
        connection.execute(_NAME["sqlite"], values)


def identities_of(connection: Connection, publisher: str) -> dict[str, int]:
    """The identities with this name, or this identity, with their ids; raises NoSuchPublisher."""
    rows = connection.execute(_ALL).all()
    found = {
        row.identity: row.publisher_id for row in rows if publisher in (row.identity, row.name)
    }
    if not found:
        near = did_you_mean(publisher, {name for row in rows for name in (row.identity, row.name)})
        hint = f" ({near})" if near else ""
        raise NoSuchPublisher(f"no publisher has the name or identity {publisher!r}{hint}")
    return found
