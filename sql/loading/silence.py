"""Probes that have stopped reporting, and the newest results of sites.

How long a probe may be silent is learned by the folds (fold.py). The statuses are read in parts, so
that no query takes long, however many probes there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import reading

FORGOTTEN_AFTER = timedelta(days=7)
"""A probe without a result for so long is not expected any more."""
PART = 100_000
"""The statuses that one query looks at."""
MAX_NAMED = 100
"""The limit on silent probes that are named; all are counted."""
MAX_SITES = 5000

_NEWS = text("SELECT oldest, newest FROM unfolded_news")
_LAST_STATUS = text("SELECT max(status_id) FROM watched_probe")
_SITES = text(f"SELECT site, measured_at FROM watched_site ORDER BY site LIMIT {MAX_SITES}")
_SILENT = """
    SELECT
        service_flavour, host_name, metric_name, vo, measured_at, limit_s, count(*) OVER () AS n
    FROM watched_probe
    WHERE status_id > :after AND status_id <= :up_to
        AND measured_at > :forgotten
        AND silent_at < :until
        {gaps}
    ORDER BY measured_at DESC
    LIMIT :named
"""
_GAP = "AND NOT (limit_s > {since:f} AND limit_s < {tolerated:f})"


class SilentProbe(NamedTuple):
    """A probe whose next result is overdue."""

    service_flavour: str
    host_name: str
    metric_name: str
    vo: str
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
        row = connection.execute(_NEWS).one_or_none()
    return row.newest or 0 if row else 0


def is_folded(engine: Engine, number: int) -> bool:
    """Whether all results up to a number of `newest_unfolded` are folded; raises DatabaseAway."""
    with reading(engine) as connection:
        row = connection.execute(_NEWS).one_or_none()
    return row is None or row.oldest is None or row.oldest > number


def survey(
    engine: Engine,
    until: datetime,
    gaps: Sequence[tuple[float, float]],
) -> Survey:
    """Find the probes that are silent at a moment, up to which everything sent was stored.

    `gaps`: times in which nothing could be received: how many seconds before `until` each ended,
    and the limit from which on it is too short to matter.

    Raises:
        DatabaseAway: it is unavailable.
    """
    is_sqlite = engine.dialect.name == "sqlite"

    def stored(moment: datetime) -> object:
        return moment.timestamp() if is_sqlite else moment

    def read_time(value: object) -> datetime:
        if isinstance(value, datetime):
            return value.astimezone(UTC)
        return datetime.fromtimestamp(float(str(value)), UTC)

    conditions = [_GAP.format(since=since, tolerated=tolerated) for since, tolerated in gaps]
    query = text(_SILENT.format(gaps=" ".join(conditions)))
    with reading(engine) as connection:
        last = connection.execute(_LAST_STATUS).scalar_one() or 0
        rows = connection.execute(_SITES).all()
    sites = {row.site: row.measured_at and read_time(row.measured_at) for row in rows}
    count, probes = 0, list[SilentProbe]()
    for after in range(0, last, PART):
        bounds = {"after": after, "up_to": after + PART, "named": MAX_NAMED}
        times = {"until": stored(until), "forgotten": stored(until - FORGOTTEN_AFTER)}
        with reading(engine) as connection:
            found = connection.execute(query, {**bounds, **times}).all()
        count += found[0].n if found else 0
        probes += (
            SilentProbe(
                row.service_flavour,
                row.host_name,
                row.metric_name,
                row.vo,
                read_time(row.measured_at),
                row.limit_s,
            )
            for row in found
        )
    probes.sort(key=lambda probe: probe.last, reverse=True)
    return Survey(count, probes[:MAX_NAMED], sites)
