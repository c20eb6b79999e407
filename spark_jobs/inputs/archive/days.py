"""The versions of days that a run reads from the archive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

from sam_pipeline.spark_jobs.inputs.archive.files import (
    AWAY,
    DAMAGED,
    MISSING,
    REFUSED,
    ArchivedFile,
    UnreadableFile,
)
from sam_pipeline.sql.archive.data_source import DataSource
from sam_pipeline.sql.archive.manifest import Manifest
from sam_pipeline.sql.errors import (
    ArchiveAway,
    ArchiveDamaged,
    ArchiveError,
    ArchiveRefused,
)

_ADVICE = "`sam-db archive --verify` checks the archive"
_ERRORS: Mapping[str, tuple[type[ArchiveError], str]] = {
    MISSING: (ArchiveDamaged, f"a manifest names it: {_ADVICE}"),
    DAMAGED: (ArchiveDamaged, _ADVICE),
    REFUSED: (ArchiveRefused, "check the permissions or the keys of [archive]"),
    AWAY: (ArchiveAway, "try again when the store answers"),
}


@dataclass(frozen=True)
class ArchivedDays:
    """The versions of days that are read from the archive, and how their files are opened.

    The other days are read from the database, but for `absent` ones, of which nothing is known.
    """

    source: DataSource
    manifests: Mapping[date, Manifest]
    absent: Collection[date] = ()

    def __contains__(self, day: object) -> bool:
        return day in self.manifests

    def files(self, day: date, kind: str) -> list[ArchivedFile]:
        """The files of a kind of a day."""
        return [
            ArchivedFile(file.name, file.rows, file.size_bytes)
            for file in self.manifests[day].of_kind(kind)
        ]

    def newest_result(self, day: date) -> int:
        """The highest result_id that a version of the day may have."""
        return self.manifests[day].source.newest_result

    def versions(self, days: Iterable[date]) -> dict[date, int]:
        """The versions of those of the days that are read from the archive."""
        return {day: self.manifests[day].version for day in days if day in self.manifests}


FROM_DATABASE = ArchivedDays(DataSource(""), {})
"""No day is read from the archive."""


def archive_error(kind: str, text: str) -> ArchiveError:
    """The error of a command that could not read a file."""
    error, advice = _ERRORS[kind]
    return error(f"{text}: {advice}")


@contextmanager
def readable() -> Iterator[None]:
    """Raise an UnreadableFile of the block as an ArchiveError."""
    try:
        yield
    except UnreadableFile as unreadable:
        raise archive_error(unreadable.kind, unreadable.text) from unreadable
