"""Brings current statuses and due days up to date with the results loaded.

A batch only queues its changes for this: on PostgreSQL because batches that update the same rows
would wait for each other, on SQLite because a set costs a fraction of single rows. The loaders fold
the queued changes in about once a second. On SQLite the views also show those not yet folded.

Folds also learn how long a probe may be silent. `survey` finds the silent ones; it reads the
statuses in parts, so that no query takes long, however many probes there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, bindparam, text

from sam_pipeline.sql.database.engine import load_transaction, reading, writing
from sam_pipeline.sql.loading.letters.dead_letter import time_of

MAX_RESULTS = 10_000
"""The results of one fold on SQLite, where other writers wait for its end."""

_FOLD = text("SELECT fold_news()")
_NUMBER_CHANGES = text("SELECT take_changes()")

# SQLite.
_UNFOLDED = text("SELECT count(*) FROM (SELECT 1 FROM unfolded_result LIMIT :at_most)")
_FOLD_SQLITE = text("INSERT INTO fold_news (at_most) VALUES (:at_most)")
_NEXT_NUMBER = text("UPDATE change_counter SET change_no = change_no + 1 RETURNING change_no")
_NUMBER_DAYS = text("""
    UPDATE changed_day SET change_no = :number, results_no = coalesce(results_no, :number)
    WHERE change_no IS NULL
""")

FORGOTTEN_AFTER = timedelta(days=7)
"""A probe without a result for this long is no longer expected."""
PART = 100_000
"""The statuses that one query looks at."""
MAX_NAMED = 100
"""The limit on silent probes that are named; all are counted."""
MAX_SITES = 5000

_FOLD_STATE = text("SELECT oldest, newest, last_status FROM fold_state")
_SITES = text(f"SELECT site FROM watched_site ORDER BY site LIMIT {MAX_SITES}")
_SITE_PROBES = text("""
    SELECT site, max(measured_at) AS measured_at FROM site_probe
    WHERE status_id > :after AND status_id <= :up_to
    GROUP BY site
""")
_SILENT = """
    SELECT status_id, measured_at, limit_s, count(*) OVER () AS n FROM watched_probe
    WHERE status_id > :after AND status_id <= :up_to
        AND measured_at > :forgotten
        AND silent_at < :until
        {gaps}
    ORDER BY measured_at DESC
    LIMIT :named
"""
_NAMES = text("""
    SELECT status_id, service_flavour, host_name, metric_name, vo FROM probe_name
    WHERE status_id IN :numbers
""").bindparams(bindparam("numbers", expanding=True))
_GAP = "AND NOT (limit_s > {since:f} AND limit_s < {tolerated:f})"


def fold(engine: Engine) -> int:
    """Fold some batches (SQLite: results) into current_status and the due days.

    Returns their number, or 0 while another loader folds. Raises DatabaseAway.
    """
    if engine.dialect.name == "postgresql":
        return load_transaction(
            engine, lambda connection: int(connection.execute(_FOLD).scalar_one())
        )
    with reading(engine) as connection:
        unfolded = int(connection.execute(_UNFOLDED, {"at_most": MAX_RESULTS}).scalar_one())
    if unfolded:  # otherwise the only write lock is left to others
        with writing(engine) as connection:
            connection.execute(_FOLD_SQLITE, {"at_most": MAX_RESULTS})
    return unfolded


def fold_all(engine: Engine) -> None:
    """Fold everything that was loaded, unless another loader does; raises DatabaseAway."""
    while fold(engine):
        pass


def fold_here(connection: Connection) -> None:
    """Fold everything that was loaded, in the caller's transaction, unless another loader does."""
    if connection.dialect.name == "postgresql":
        while connection.execute(_FOLD).scalar_one():
            pass
    else:
        connection.execute(_FOLD_SQLITE, {"at_most": None})


def take_changes(connection: Connection) -> int:
    """Number the changes that a report run is going to read; returns the number, which is unique.

    Commit before reading anything.
    """
    if connection.dialect.name == "postgresql":
        return int(connection.execute(_NUMBER_CHANGES).scalar_one())
    connection.execute(_FOLD_SQLITE, {"at_most": None})
    number = int(connection.execute(_NEXT_NUMBER).scalar_one())
    connection.execute(_NUMBER_DAYS, {"number": number})
    return number


class ProbeName(NamedTuple):
    """A metric of an endpoint, as seen by one VO."""

    service_flavour: str
    host_name: str
    metric_name: str
    vo: str


class SilentProbe(NamedTuple):
    """A probe whose next result is overdue."""

    name: ProbeName
    last: datetime
    limit_s: float


@dataclass(frozen=True)
class Survey:
    """What the database says about silence at one moment."""

    silent: int
    """The number of silent probes."""
    probes: Sequence[SilentProbe]
    """The first MAX_NAMED of them, those that fell silent last first."""
    sites: Mapping[str, datetime | None]
    """The time of the newest result of each site that should report."""


def newest_unfolded(engine: Engine) -> int:
    """The number of the newest results that are not folded yet, or 0; raises DatabaseAway."""
    with reading(engine) as connection:
        return connection.execute(_FOLD_STATE).one().newest or 0


def is_folded(engine: Engine, number: int) -> bool:
    """Whether all results up to a number of `newest_unfolded` are folded; raises DatabaseAway."""
    with reading(engine) as connection:
        oldest = connection.execute(_FOLD_STATE).one().oldest
    return oldest is None or oldest > number


def survey(engine: Engine, until: datetime, gaps: Sequence[tuple[float, float]]) -> Survey:
    """Find the probes that are silent at a moment, up to which everything sent was stored.

    `gaps`: times in which nothing could be received: how many seconds before `until` each ended,
    and the limit from which on it is too short to matter.

    Raises:
        DatabaseAway: it is unavailable.
    """
    is_sqlite = engine.dialect.name == "sqlite"

    def stored(moment: datetime) -> object:
        return moment.timestamp() if is_sqlite else moment

    conditions = [_GAP.format(since=since, tolerated=tolerated) for since, tolerated in gaps]
    query = text(_SILENT.format(gaps=" ".join(conditions)))
    times = {"until": stored(until), "forgotten": stored(until - FORGOTTEN_AFTER)}
    with reading(engine) as connection:
        last = connection.execute(_FOLD_STATE).one().last_status or 0
        sites: dict[str, datetime | None] = dict.fromkeys(connection.execute(_SITES).scalars())
    count, rows = 0, list[Row[Any]]()
    for after in range(0, last, PART):
        bounds = {"after": after, "up_to": after + PART}
        with reading(engine) as connection:
            part = connection.execute(query, {**bounds, **times, "named": MAX_NAMED}).all()
            newest = connection.execute(_SITE_PROBES, bounds).all()
        count += part[0].n if part else 0
        rows += part
        for site, measured_at in newest:
            if site in sites and measured_at is not None:
                moment = time_of(measured_at)
                sites[site] = max(sites[site] or moment, moment)
    rows = sorted(rows, key=lambda row: row.measured_at, reverse=True)[:MAX_NAMED]
    with reading(engine) as connection:
        numbers = [row.status_id for row in rows]
        found = connection.execute(_NAMES, {"numbers": numbers})
        names = {row.status_id: ProbeName(*row[1:]) for row in found}
    probes = [
        SilentProbe(names[row.status_id], time_of(row.measured_at), row.limit_s) for row in rows
    ]
    return Survey(count, probes, sites)
