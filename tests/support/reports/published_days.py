"""Published days of a report, written straight into the tables of either database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, moment
from sam_pipeline.spark_jobs.rules.groups import Member, group_figures
from sam_pipeline.spark_jobs.rules.levels import (
    ALL_NAMES,
    ENDPOINT,
    FUNCTION,
    METRIC,
    NAMES,
    SERVICE,
    SITE,
)
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.sql.database.engine import writing

Timeline = Mapping[str, str]
"""Statuses by their start, hh:mm: {"00:00": "OK", "06:00": "CRITICAL"}."""


def publish(
    engine: Engine,
    profile: Profile,
    day: date,
    endpoints: Mapping[str, Timeline],
    members: Sequence[Member] = (),
    until: int | None = None,
) -> int:
    """Write a day as a run publishes it, and return the run's number.

    `endpoints` are named "SITE FLAVOUR HOST". The timeline of an endpoint is also that of its
    service and function; the first endpoint of a site is also the site. The only metric is "ping".
    """
    with writing(engine) as connection:
        run_id = _run(connection, profile, day, until)
        seconds_of: dict[str, Seconds] = {}
        for level, names, timeline in _timelines(endpoints):
            segments = list(_segments(timeline, day, until))
            seconds = _figure(connection, run_id, level, names, segments)
            if level == SITE:
                seconds_of[names["site"]] = seconds
        _groups(connection, run_id, members, seconds_of)
        key = {"report": profile.name, "day": str(day), "run_id": run_id}
        of_day = "WHERE report = :report AND day = :day AND run_id < :run_id"
        connection.execute(text(f"UPDATE run SET state = 'superseded' {of_day}"), key)
        connection.execute(text(f"DELETE FROM published_run {of_day}"), key)
        _insert(connection, "published_run", **key)
    return run_id


def _timelines(
    endpoints: Mapping[str, Timeline],
) -> Iterator[tuple[str, dict[str, str], Timeline]]:
    sites = set()
    for name, timeline in endpoints.items():
        site, flavour, host = name.split()
        endpoint = {"site": site, "service_flavour": flavour, "host_name": host}
        if site not in sites:
            yield SITE, {"site": site}, timeline
        sites.add(site)
        yield FUNCTION, {"site": site, "function": flavour.lower()}, timeline
        yield SERVICE, {"site": site, "service_flavour": flavour}, timeline
        yield ENDPOINT, endpoint, timeline
        yield METRIC, {**endpoint, "metric_name": "ping"}, timeline


def _segments(timeline: Timeline, day: date, until: int | None) -> Iterator[tuple[int, int, str]]:
    starts = [day_start(day) + 3600 * int(at[:2]) + 60 * int(at[3:]) for at in timeline]
    last = day_start(day) + DAY_S if until is None else until
    return zip(starts, [*starts[1:], last], timeline.values(), strict=True)


def _run(connection: Connection, profile: Profile, day: date, until: int | None) -> int:
    values = {
        "report": profile.name,
        "day": str(day),
        "started_at": _time(connection, day_start(day) + DAY_S),
        "state": "published",
        "until": None if until is None else _time(connection, until),
        "profile": profile.document,
        "newest_result": 2**62,
    }
    names, placeholders = ", ".join(values), ", ".join(f":{name}" for name in values)
    insert = text(f"INSERT INTO run ({names}) VALUES ({placeholders}) RETURNING run_id")
    return int(connection.execute(insert, values).scalar_one())


def _figure(
    connection: Connection,
    run_id: int,
    level: str,
    names: Mapping[str, str],
    segments: Sequence[tuple[int, int, str]],
) -> Seconds:
    total = Seconds()
    for start, end, status in segments:
        total += Seconds(**{status.lower(): end - start})
        _insert(
            connection,
            "timeline_segment",
            run_id=run_id,
            level=level,
            **{name: names.get(name, "") for name in ALL_NAMES},
            start_time=_time(connection, start),
            end_time=_time(connection, end),
            status=status,
        )
    if level != METRIC:
        assert set(names) == set(NAMES[level])
        percents = (rounded(total.availability), rounded(total.reliability))
        _insert(
            connection,
            f"{level}_figure",
            run_id=run_id,
            **names,
            availability=None if percents[0] is None else str(percents[0]),
            reliability=None if percents[1] is None else str(percents[1]),
            **{f"{status}_s": seconds for status, seconds in vars(total).items()},
        )
    return total


def _groups(
    connection: Connection,
    run_id: int,
    members: Sequence[Member],
    seconds_of: Mapping[str, Seconds],
) -> None:
    expected = {member: seconds_of[member.site] for member in members if member.site in seconds_of}
    for member in expected:
        _insert(connection, "group_site", run_id=run_id, **vars(member))
    for figure in group_figures(expected):
        percents = (rounded(figure.availability), rounded(figure.reliability))
        _insert(
            connection,
            "group_figure",
            run_id=run_id,
            group_type=figure.names[0],
            group_name=figure.names[1],
            availability=None if percents[0] is None else str(percents[0]),
            reliability=None if percents[1] is None else str(percents[1]),
            sites_expected=figure.sites_expected,
            sites_known=figure.sites_known,
        )


def _insert(connection: Connection, table: str, **values: Any) -> None:
    names, placeholders = ", ".join(values), ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({placeholders})"), values)


def _time(connection: Connection, second: int) -> int | str:
    return second if connection.dialect.name == "sqlite" else format_time(moment(second))
