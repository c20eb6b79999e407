"""What pages read of a site, a month at a time: no more than they show."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.explain.page_failures import Said
from sam_pipeline.spark_jobs.explain.results import Instance
from sam_pipeline.spark_jobs.inputs.announced import WINDOW
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, as_day, day_start
from sam_pipeline.spark_jobs.rules.levels import (
    ALL_NAMES,
    ENDPOINT,
    FUNCTION,
    METRIC,
    NAMES,
    SERVICE,
    SITE,
)
from sam_pipeline.spark_jobs.runs.published import Run, Segment

_SECONDS = {"sqlite": "unixepoch({})", "postgresql": "extract(epoch FROM {})::bigint"}
_LEVELS = ", ".join(f"'{level}'" for level in (SITE, FUNCTION, SERVICE, ENDPOINT, METRIC))


def site_segments(
    connection: Connection, report: str, period: Period, site: str
) -> dict[date, list[Segment]]:
    """The timelines of a site and its parts, day by day; of metrics only what is not OK."""
    second = _SECONDS[connection.dialect.name]
    # Naming all levels looks idle, but lets the database find the site by its index.
    found = connection.execute(
        text(
            f"SELECT day, level, {', '.join(ALL_NAMES)}, {second.format('start_time')},"
            f" {second.format('end_time')}, status FROM status_timeline"
            " WHERE report = :report AND day BETWEEN :first AND :last AND site = :site"
            f" AND level IN ({_LEVELS}) AND (level <> '{METRIC}' OR status <> 'OK')"
            f" ORDER BY day, level, {', '.join(ALL_NAMES)}, start_time"
        ),
        {"report": report, "site": site, "first": str(period.first), "last": str(period.last)},
    )
    return {
        as_day(day): _segments(as_day(day), rows)
        for day, rows in groupby(map(tuple, found), key=lambda row: row[0])
    }


def _segments(day: date, rows: Iterable[tuple[Any, ...]]) -> list[Segment]:
    """Rows: day, level, the five names, start, end, status."""
    return [
        Segment(day, row[1], tuple(row[place] for place in _PLACES[row[1]]), row[7], row[8], row[9])
        for row in rows
    ]


_PLACES = {
    level: tuple(2 + ALL_NAMES.index(name) for name in NAMES[level])
    for level in (SITE, FUNCTION, SERVICE, ENDPOINT, METRIC)
}


# A site that was down all month has more failing results than are worth reading.
_MAX_RESULTS = 50_000
# A bound JSON list as a table: any number of values in one parameter.
_TEXTS = {
    "sqlite": "SELECT value FROM json_each(:values)",
    "postgresql": "SELECT json_array_elements_text(CAST(:values AS json))",
}
_NUMBERS = {
    "sqlite": "SELECT value FROM json_each(:values)",
    "postgresql": "SELECT json_array_elements_text(CAST(:values AS json))::text::bigint",
}


def site_results(
    connection: Connection, runs: Sequence[Run], period: Period, failing: Collection[Instance]
) -> dict[Instance, list[Said]]:
    """The results of metrics that failed, from the day before the period on, oldest first.

    At most 50 000, the newest. OK ones are left out unless the profile has thresholds, which may
    have made them worse.
    """
    instances = _instances(connection, runs[-1].profile, failing)
    dialect = connection.dialect.name
    only_bad = "" if runs[-1].profile.thresholds else " AND status <> 'OK'"
    rows = connection.execute(
        text(
            "SELECT instance_id, measured_at_s, result_id, coalesce(summary, ''),"
            " coalesce(message_id, ''), coalesce(monitoring_host, '') FROM report_result"
            f" WHERE instance_id IN ({_NUMBERS[dialect]}) AND {WINDOW[dialect]}{only_bad}"
            " ORDER BY measured_at_s DESC, result_id DESC LIMIT :at_most"
        ),
        {
            "values": json.dumps(sorted(instances)),
            "start": day_start(period.first) - DAY_S,
            "end": day_start(period.last) + DAY_S,
            "at_most": _MAX_RESULTS,
        },
    )
    found: dict[Instance, list[Said]] = {}
    for instance_id, *said in rows:
        found.setdefault(instances[instance_id], []).append(Said(*said))
    return {instance: newest_first[::-1] for instance, newest_first in found.items()}


def seals(connection: Connection, report: str) -> dict[str, str]:
    """When and by whom each sealed month (`2026-11`) was sealed."""
    found = connection.execute(
        text("SELECT month, sealed_at, who FROM report_seal WHERE report = :report"),
        {"report": report},
    )
    return {month: f"{str(sealed_at)[:10]} by {who}" for month, sealed_at, who in found}


def _instances(
    connection: Connection, profile: Profile, failing: Collection[Instance]
) -> dict[int, Instance]:
    """The ids of metric instances that count in the profile."""
    dialect = connection.dialect.name
    found = connection.execute(
        text(
            "SELECT instance_id, service_flavour, host_name, metric_name, vo, fqan"
            f" FROM report_instance WHERE host_name IN ({_TEXTS[dialect]})"
        ),
        {"values": json.dumps(sorted({host for _, host, _ in failing}))},
    )
    return {
        row[0]: (row[1], row[2], row[3])
        for row in found
        if (row[1], row[2], row[3]) in failing
        and profile.vo in (None, row[4])
        and profile.fqan in (None, row[5])
    }
