"""Which days a run reads from the archive, and which from the database."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.spark_jobs.config import ARCHIVE, DATABASE
from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges, periods
from sam_pipeline.spark_jobs.runs.due import DueReport, changed_days, due_days, horizon
from sam_pipeline.sql.archive.manifest import newest_of, versions
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.errors import ArchiveAway, ArchiveRefused, NotArchived

_COMPUTED = (
    "SELECT r.day, r.run_id, r.look_back, a.day AS archived_day, a.version FROM report_run AS r"
    " LEFT JOIN report_archive AS a ON a.run_id = r.run_id"
    " WHERE r.report = :report AND r.state IN ('published', 'candidate') ORDER BY r.run_id"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResultOrigin:
    """Where a command reads closed days from: `source` of [report], and the archive if it is used.

    Open days are always in the database.
    """

    source: str
    store: Store | None

    @property
    def has_database(self) -> bool:
        """Whether results may come from the database."""
        return self.source != ARCHIVE

    def archived_days(self, connection: Connection, period: Period, look_back: int) -> ArchivedDays:
        """The days that are read from the archive: of a period, and of the days before it.

        With AUTO, these are the days whose newest version includes all changes that the database
        knows of, and those that the database no longer has.

        Raises:
            ConfigError: ARCHIVE, but none is configured.
            NotArchived: ARCHIVE, but it lacks a day.
            ArchiveError: it cannot be read.
        """
        if self.source == ARCHIVE:
            return _all_days(self.required_store, period, look_back)
        if self.source == DATABASE or self.store is None:
            return FROM_DATABASE
        first_day = horizon(connection)
        try:
            newest = newest_of(self.store, period.with_days_before(look_back).days())
        except (ArchiveAway, ArchiveRefused) as error:
            if first_day is not None and period.first < first_day:
                raise
            logger.warning("%s; all days are read from the database", error)
            return FROM_DATABASE
        changed, ours = changed_days(connection), _database_id(connection)
        chosen = {
            day: manifest
            for day, manifest in newest.items()
            if day not in changed
            or (first_day is not None and day < first_day)
            or (manifest.source.database == ours and manifest.includes(changed[day]))
        }
        return ArchivedDays(self.store.source(), chosen) if chosen else FROM_DATABASE

    def due(
        self, connection: Connection, profiles: Sequence[Profile], today: date
    ) -> list[DueReport]:
        """The due days of every report; successive days are computed together.

        Raises:
            ConfigError: ARCHIVE, but none is configured.
            ArchiveError: it cannot be read.
        """
        newest = {}
        if self.source == ARCHIVE:
            newest = {day: numbers[-1] for day, numbers in versions(self.required_store).items()}
        return [
            DueReport(profile, period)
            for profile in profiles
            for period in periods(
                due_days(connection, profile.name, today)
                if self.has_database
                else _due_from_archive(connection, profile.name, newest)
            )
        ]

    @property
    def required_store(self) -> Store:
        if self.store is None:
            raise ConfigError(
                ["no archive is configured: set url in section [archive] of sam.toml"]
            )
        return self.store


def change_numbers(
    connection: Connection, archived: ArchivedDays, period: Period, look_back: int, change_no: int
) -> dict[date, int]:
    """The newest change up to which a run reads all days that count for a day.

    Args:
        change_no: that of the database; archived days may lack some of its changes.
    """
    changed, ours = changed_days(connection), _database_id(connection)
    numbers = {
        day: manifest.source.change_no
        for day, manifest in archived.manifests.items()
        if manifest.source.database == ours
        and day in changed
        and not manifest.includes(changed[day])
    }

    def number(day: date) -> int:
        read = Period(day, day).with_days_before(look_back).days()
        return min([change_no, *(numbers[each] for each in read if each in numbers)])

    return {day: number(day) for day in period.days()}


def _all_days(store: Store, period: Period, look_back: int) -> ArchivedDays:
    """All days of the period and the days before it, from the archive alone."""
    wanted = list(period.with_days_before(look_back).days())
    newest = newest_of(store, wanted)
    missing = [day for day in wanted if day not in newest]
    absent = []
    if missing and missing[-1] < period.first:
        first = min(versions(store))
        absent = [day for day in missing if day < first]
        missing = missing[len(absent) :]
        if absent:
            logger.warning("%s begins with %s: earlier results are not known", store.url, first)
    if missing:
        raise NotArchived(
            f"{store.url}: {in_ranges(missing)} is not in the archive: `sam-db archive write` on"
            " the database that has the results adds it"
        )
    return ArchivedDays(store.source(), newest, absent)


def _due_from_archive(
    connection: Connection, report: str, newest: Mapping[date, int]
) -> list[date]:
    """The days of the archive of which the report has not read the `newest` versions, oldest first.

    A report of a day also reads the days before, as many as the run that was published.
    """
    computed: dict[date, tuple[int, dict[date, int]]] = {}
    of_run: dict[int, dict[date, int]] = {}
    for day, run_id, look_back, archived_day, version in connection.execute(
        text(_COMPUTED), {"report": report}
    ):
        # The candidate of a sealed day is newer than its published run.
        computed[as_day(day)] = look_back, of_run.setdefault(run_id, {})
        if archived_day is not None:
            of_run[run_id][as_day(archived_day)] = version

    def is_due(day: date) -> bool:
        if day not in computed:
            return True
        look_back, read = computed[day]
        days = Period(day, day).with_days_before(look_back).days()
        return read != {each: newest[each] for each in days if each in newest}

    return list(filter(is_due, newest))


def _database_id(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT database_id FROM database_identity")))
