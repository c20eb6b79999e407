"""Published days of a report, written straight into the tables of either database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start, moment
from sam_pipeline.spark_jobs.rules.figures import Member, MemberDay
from sam_pipeline.spark_jobs.rules.levels import (
    ALL_NAMES,
    ENDPOINT,
    FIGURE_NAMES,
    FUNCTION,
    METRIC,
    SERVICE,
    SITE,
)
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs import record as run_record
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.support.database.roles import acting_as
from tests.support.reports.month import figures_of, group_rows, insert, seconds_of

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
    service and function; the first endpoint of a site is also the site. The only metric is "ping",
    which has no downtimes.
    """
    with writing(engine) as connection:
        run_id = _run(connection, profile, day, until)
        of_sites = write_day(connection, run_id, day, endpoints, until)
        expected = [
            MemberDay(day, member, of_sites[member.site])
            for member in members
            if member.site in of_sites
        ]
        for table, row in group_rows(expected):
            insert(connection, table, [{"run_id": run_id, **row}])
        key = {"report": profile.name, "day": str(day), "run_id": run_id}
        of_day = "WHERE report = :report AND day = :day AND run_id < :run_id"
        connection.execute(text(f"UPDATE run SET state = 'superseded' {of_day}"), key)
        connection.execute(text(f"DELETE FROM published_run {of_day}"), key)
        insert(connection, "published_run", [key])
    return run_id


def write_day(
    connection: Connection,
    run_id: int,
    day: date,
    endpoints: Mapping[str, Timeline],
    until: int | None = None,
) -> dict[str, Seconds]:
    """Write timelines and figures of a run; returns those of the sites."""
    of_sites = {}
    for level, names, timeline in _timelines(endpoints):
        starts = [day_start(day) + 3600 * int(at[:2]) + 60 * int(at[3:]) for at in timeline]
        last = day_start(day) + DAY_S if until is None else until
        stretches = list(zip(starts, [*starts[1:], last], timeline.values(), strict=True))
        of_thing = {"run_id": run_id, "level": level, **dict.fromkeys(ALL_NAMES, ""), **names}
        segments = [
            {**of_thing, "start_time": start, "end_time": end, "status": status}
            for start, end, status in stretches
        ]
        insert(connection, "timeline_segment", segments)
        if level != METRIC:
            of_figure = {name: of_thing[name] for name in ("run_id", "level", *FIGURE_NAMES)}
            insert(connection, "figure", [{**of_figure, **figures_of(stretches)}])
        if level == SITE:
            of_sites[names["site"]] = seconds_of(stretches)
    return of_sites


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
        measured = {at: status.replace("DOWNTIME", "OK") for at, status in timeline.items()}
        yield METRIC, {**endpoint, "metric_name": "ping"}, measured


def _run(connection: Connection, profile: Profile, day: date, until: int | None) -> int:
    def stored(second: int) -> int | str:
        return second if connection.dialect.name == "sqlite" else format_time(moment(second))

    values: dict[str, object] = {"report": profile.name, "day": str(day), "state": "published"}
    values |= {"started_at": stored(day_start(day) + DAY_S), "until": until and stored(until)}
    values |= {"profile": profile.document, "newest_result": 2**62}
    values |= {"look_back": profile.look_back}
    names, placeholders = ", ".join(values), ", ".join(f":{name}" for name in values)
    statement = text(f"INSERT INTO run ({names}) VALUES ({placeholders}) RETURNING run_id")
    return int(connection.execute(statement, values).scalar_one())


# Runs without Spark -------------------------------------------------------------------------------


FIRST = date(2025, 10, 1)
"""A day that is closed whenever the tests run."""


def day_facts(day: date, **changes: object) -> DayFacts:
    """The facts that a run has read about a closed day."""
    read = {"results_read": 3, "results_ignored": {}, "instances": 1, "members": ()}
    digests = {f"{name}_digest": name for name in ("results", "topology", "downtimes")}
    return DayFacts(**{"day": day, "until": None, **read, **digests, **changes})  # type: ignore[arg-type]


def computed(
    engine: Engine,
    profile: Profile,
    facts: DayFacts,
    endpoints: Mapping[str, Timeline] | None = None,
    *,
    ok_h: int = 24,
    publish: bool = True,
    now: int | None = None,
) -> tuple[int, Published | None]:
    """Run one day as sam_reporter; without `endpoints` that of site A is OK for `ok_h` hours.

    Returns:
        The run's number, and the publication if `publish`.
    """
    failing = {} if ok_h == 24 else {f"{ok_h:02}:00": "CRITICAL"}
    moment = day_start(facts.day) + 2 * DAY_S if now is None else now
    with acting_as("reporter", engine) as reporter:
        with writing(reporter) as connection:
            change_no = take_changes(connection)
        [run_id] = run_record.begin(reporter, profile, {facts.day: change_no}, moment)
        with writing(reporter) as connection:
            timelines = endpoints or {"A CE h1": {"00:00": "OK", **failing}}
            write_day(connection, run_id, facts.day, timelines, facts.until)
        run_record.note_facts(reporter, profile, [facts], [run_id])
        done = None
        if publish:
            done = run_record.publish(reporter, profile, [facts], [run_id], moment)
    return run_id, done
