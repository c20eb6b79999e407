"""Which versions stay, and which files nobody names."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from sqlalchemy import Engine, text

from sam_pipeline.sql.archive.manifest import KINDS, MANIFESTS, read_manifest, versions, versions_of
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.database.engine import reading


def forget_old_versions(
    store: Store, day: date, keep: int, sealed: Collection[tuple[date, int]]
) -> list[int]:
    """Delete the versions of a day but the newest ones and those of sealed months."""
    old = [v for v in versions_of(store, day)[:-keep] if (day, v) not in sealed]
    for version in old:
        manifest = read_manifest(store, day, version)
        store.delete(manifest.name)  # first: no manifest ever names a file that is gone
        for file in manifest.files:
            store.delete(file.name)
    return old


def sealed_versions(engine: Engine) -> set[tuple[date, int]]:
    """The versions that figures of sealed months were computed from."""
    with reading(engine) as connection:
        rows = connection.execute(text("SELECT day, version FROM sealed_version"))
        return {(date.fromisoformat(str(day)), version) for day, version in rows}


def delete_unnamed(store: Store, day: date) -> list[str]:
    """Delete the files of a day that none of its manifests names."""
    named = {
        file.name for v in versions_of(store, day) for file in read_manifest(store, day, v).files
    }
    return _delete(
        store, [n for kind in KINDS for n in store.names(f"{kind}/day={day}/") if n not in named]
    )


def clean(store: Store) -> list[str]:
    """Delete all files that no manifest names, and return their names.

    Only files whose names are like ours are deleted.
    """
    named = {
        file.name
        for day, of_day in versions(store).items()
        for v in of_day
        for file in read_manifest(store, day, v).files
    }
    ours = tuple(f"{folder}/" for folder in (*KINDS, ".work"))
    return _delete(
        store,
        [
            name
            for name in store.names()
            if name not in named and name.startswith(ours) and not name.startswith(MANIFESTS)
        ],
    )


def _delete(store: Store, names: list[str]) -> list[str]:
    for name in names:
        store.delete(name)
    return names
