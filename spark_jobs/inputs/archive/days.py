"""The versions of days that a run reads from the archive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date

from sam_pipeline.sql.archive.data_source import DataSource
from sam_pipeline.sql.archive.manifest import Manifest


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

    def versions(self, days: Iterable[date]) -> dict[date, int]:
        """The versions of those of the days that are read from the archive."""
        return {day: self.manifests[day].version for day in days if day in self.manifests}


FROM_DATABASE = ArchivedDays(DataSource(""), {})
"""No day is read from the archive."""
