"""The manifest of an archived day: the commit that makes its files part of the archive.

A day exists when its manifest does, and the highest version of a day counts. Readers open no file
that no manifest names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.errors import ArchiveDamaged, NotArchived

FORMAT = 1
"""The version of the format: of the manifest, and of the columns of the files."""

MANIFESTS = "manifest"
RESULTS, TOPOLOGY, DOWNTIMES, EXCLUSIONS = "results", "topology", "downtimes", "exclusions"
KINDS = (RESULTS, TOPOLOGY, DOWNTIMES, EXCLUSIONS)
"""The kinds of data files, and the folders that they are in."""

LAST_RESULTS = "last_results"
"""The digest of the last result of each instance, which the next day begins with."""

_NAME = re.compile(rf"{MANIFESTS}/day=(\d{{4}}-\d\d-\d\d)/v([1-9]\d*)\.json")
_READERS = 16
"""Manifests that are read at the same time: a store across a network answers slowly."""


@dataclass(frozen=True)
class DataFile:
    """A data file; `statuses` counts the rows of a file of results by the name of the status."""

    kind: str
    name: str
    rows: int
    size_bytes: int
    sha256: str
    statuses: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DatabaseState:
    """The database that a version was read from, and its state at that time.

    `database` is its identity (the table `database_identity`). `newest_result` is the last
    result_id, and `change_no` the number of the newest change that was read.
    """

    database: str
    newest_result: int
    change_no: int


@dataclass(frozen=True)
class Manifest:
    """A version of a day.

    `made_at` is a time as text, `made_by` a login and a host. `digests` has those of KINDS and of
    LAST_RESULTS; see sql/archive/digests.py.
    """

    day: date
    version: int
    schema_version: str
    software_version: str
    made_at: str
    made_by: str
    source: DatabaseState
    files: Sequence[DataFile]
    digests: Mapping[str, str]

    @property
    def name(self) -> str:
        return manifest_name(self.day, self.version)

    @property
    def rows(self) -> int:
        """The number of results."""
        return sum(file.rows for file in self.of_kind(RESULTS))

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def statuses(self) -> Mapping[str, int]:
        """The number of results by the name of the status."""
        counts: Counter[str] = Counter()
        for file in self.of_kind(RESULTS):
            counts.update(file.statuses)
        return counts

    def of_kind(self, kind: str) -> list[DataFile]:
        """The files of a kind, in the order of their rows."""
        return [file for file in self.files if file.kind == kind]

    def includes(self, change_no: int | None) -> bool:
        """Whether it was read after a change of `report_changed_day`; None: no number yet."""
        return change_no is not None and change_no <= self.source.change_no

    def as_json(self) -> bytes:
        document = {"format": FORMAT, **asdict(self), "day": self.day.isoformat()}
        return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def manifest_name(day: date, version: int) -> str:
    return f"{MANIFESTS}/day={day}/v{version}.json"


def data_name(kind: str, day: date, version: int, number: int | None = None) -> str:
    """The name of a data file; those of results are numbered from 0."""
    part = "" if number is None else f"-{number:03}"
    return f"{kind}/day={day}/v{version}{part}.parquet"


def versions(store: Store, day: date | None = None) -> dict[date, list[int]]:
    """The versions of all days, or of one day, both in ascending order."""
    found: dict[date, list[int]] = {}
    for name in store.names(f"{MANIFESTS}/day={day}/" if day else f"{MANIFESTS}/"):
        with suppress(ValueError):  # v1.json of a day that is not in the calendar is not ours
            if match := _NAME.fullmatch(name):
                found.setdefault(date.fromisoformat(match[1]), []).append(int(match[2]))
    return {day: sorted(found[day]) for day in sorted(found)}


def newest(store: Store, day: date) -> Manifest | None:
    """The newest version of a day, if the day is in the archive."""
    known = versions(store, day)
    return read_manifest(store, day, known[day][-1]) if known else None


def newest_of(store: Store, days: Iterable[date]) -> dict[date, Manifest]:
    """The newest version of each of these days that is in the archive."""
    known = versions(store)
    wanted = [(day, known[day][-1]) for day in sorted(set(days)) if day in known]
    with ThreadPoolExecutor(_READERS) as pool:
        manifests = pool.map(lambda each: read_manifest(store, *each), wanted)
        return {manifest.day: manifest for manifest in manifests}


def read_manifest(store: Store, day: date, version: int) -> Manifest:
    """A version of a day.

    Raises:
        NotArchived: the archive does not have it.
        ArchiveDamaged: it is not a manifest, or of a format that this program does not know.
    """
    name = manifest_name(day, version)
    content = store.read(name)
    where = f"{store.url}/{name}"
    try:
        document: dict[str, Any] = json.loads(content)
        found = document.pop("format")
        if found != FORMAT:
            raise ArchiveDamaged(f"{where}: format {found}, this program reads format {FORMAT}")
        manifest = Manifest(
            **{
                **document,
                "day": date.fromisoformat(document["day"]),
                "source": DatabaseState(**document["source"]),
                "files": tuple(DataFile(**file) for file in document["files"]),
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ArchiveDamaged(f"{where}: not a manifest: {error}") from error
    if (manifest.day, manifest.version) != (day, version):
        raise ArchiveDamaged(f"{where}: is the manifest of {manifest.name}")
    # Whoever deletes or reads files trusts these names.
    names = sorted(file.name for file in manifest.files)
    parts = range(len(manifest.of_kind(RESULTS)))
    expected = sorted(
        [data_name(RESULTS, day, version, number) for number in parts]
        + [data_name(kind, day, version) for kind in KINDS if kind != RESULTS]
    )
    if names != expected:
        raise ArchiveDamaged(f"{where}: names {', '.join(names)}; expected {', '.join(expected)}")
    return manifest


def require_day(store: Store, day: date) -> Manifest:
    """Like `newest`, but raises NotArchived if the day is not in the archive."""
    manifest = newest(store, day)
    if manifest is None:
        raise NotArchived(f"{store.url}: {day} is not in the archive")
    return manifest


def forget_old_versions(store: Store, day: date, sealed: Collection[tuple[date, int]]) -> list[int]:
    """Delete the versions of a day but the newest two and those of sealed months."""
    known = versions(store, day).get(day, [])
    old = [version for version in known[:-2] if (day, version) not in sealed]
    for version in old:
        manifest = read_manifest(store, day, version)
        store.delete(manifest.name)  # first: no manifest ever names a file that is gone
        for file in manifest.files:
            store.delete(file.name)
    return old


def clean(store: Store, day: date | None = None) -> list[str]:
    """Delete the data files, or those of a day, that no manifest names; return their names."""
    named = {
        file.name
        for of_day, numbers in versions(store, day).items()
        for version in numbers
        for file in read_manifest(store, of_day, version).files
    }
    folders = [f"{kind}/day={day}/" for kind in KINDS]
    if day is None:
        folders = [f"{kind}/" for kind in (*KINDS, ".work")]
    unnamed = [name for folder in folders for name in store.names(folder) if name not in named]
    for name in unnamed:
        store.delete(name)
    return unnamed
