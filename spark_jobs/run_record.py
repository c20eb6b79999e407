"""The record of a run, from its first line to its publication.

A run writes its rows under its own number, which no view shows. Publishing is one transaction: the
record is finished, the differences to the report before are noted, and the views turn to the new
run. Whatever fails before leaves the old report whole.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import date
from fractions import Fraction
from importlib.metadata import version

from sqlalchemy import Connection, Engine, TextClause, text

from schema.times import format_time
from spark_jobs.changes import note_changes
from spark_jobs.days import moment
from spark_jobs.errors import AnotherRun
from spark_jobs.figures import Seconds, rounded
from spark_jobs.groups import GroupFigure, Member, group_figures
from spark_jobs.levels import SECONDS
from spark_jobs.profile import Profile
from sql.engine import writing

REPORT_TABLES = (
    "timeline_segment",
    "endpoint_figure",
    "service_figure",
    "function_figure",
    "site_figure",
    "group_figure",
    "group_site",
)

_UNSEEN = "SELECT run_id FROM run WHERE state IN ('superseded', 'failed')"
_PUBLISHED = "SELECT run_id FROM published_run WHERE report = :report AND day = :day"
_FINISH = (
    "UPDATE run SET state = 'published', finished_at = :now"
    " WHERE run_id = :run_id AND state = 'running'"
)
# A run that is still "running" here was killed, or will find that it comes too late.
_RETIRE = (
    "UPDATE run SET state = CASE state WHEN 'published' THEN 'superseded' ELSE 'failed' END"
    " WHERE report = :report AND day = :day AND run_id < :run_id"
    " AND state IN ('published', 'running')"
)
_SWITCH = (
    "INSERT INTO published_run (report, day, run_id) VALUES (:report, :day, :run_id)"
    " ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id"
)


@dataclass(frozen=True)
class DayFacts:
    """What a run read for one day; `ignored` counts results by the reason they don't count."""

    day: date
    until: int | None
    results_read: int
    results_ignored: Mapping[str, int]
    instances: int
    results_digest: str
    topology_digest: str
    downtimes_digest: str
    members: Sequence[Member]


def begin(
    engine: Engine, profile: Profile, facts: Sequence[DayFacts], change_no: int, now: int
) -> list[int]:
    """Record that a run of each day begins; the numbers of the runs.

    `change_no` is the newest change that was there before anything was read.
    Also sweeps the rows of runs that no view has shown since an earlier run.
    """
    with writing(engine) as connection:
        for table in REPORT_TABLES:
            connection.execute(text(f"DELETE FROM {table} WHERE run_id IN ({_UNSEEN})"))
        return [_insert_run(connection, profile, each, change_no, now) for each in facts]


def publish(
    engine: Engine, profile: Profile, facts: Sequence[DayFacts], run_ids: Sequence[int], now: int
) -> int:
    """Turn the views to the new runs, all days at once; how many figures differ from before.

    Raises:
        AnotherRun: a later run of the same day took over meanwhile.
    """
    with writing(engine) as connection:
        days = zip(facts, run_ids, strict=True)
        return sum(_publish(connection, profile.name, each, run, now) for each, run in days)


def fail(engine: Engine, run_ids: Iterable[int]) -> None:
    """Note that the runs came to nothing; a later run sweeps their rows."""
    statement = "UPDATE run SET state = 'failed' WHERE run_id = :run_id AND state = 'running'"
    with writing(engine) as connection:
        for run_id in run_ids:
            connection.execute(text(statement), {"run_id": run_id})


def _insert_run(
    connection: Connection, profile: Profile, facts: DayFacts, change_no: int, now: int
) -> int:
    topology = _sha256(facts.topology_digest, *(str(astuple(each)) for each in facts.members))
    digests = (facts.results_digest, topology, facts.downtimes_digest, profile.digest)
    row = {
        "report": profile.name,
        "day": facts.day.isoformat(),
        "started_at": _time(connection, now),
        "state": "running",
        "until": None if facts.until is None else _time(connection, facts.until),
        "results_read": facts.results_read,
        "results_ignored": json.dumps(facts.results_ignored, sort_keys=True),
        "instances": facts.instances,
        "results_digest": facts.results_digest,
        "topology_digest": topology,
        "downtimes_digest": facts.downtimes_digest,
        "profile_digest": profile.digest,
        "input_digest": _sha256(*digests, facts.day.isoformat(), str(facts.until)),
        "profile": profile.document,
        "software_version": version("sam-pipeline"),
        "who": _who(),
        "change_no": change_no,
    }
    run_id: int = connection.execute(_insert("run", row, " RETURNING run_id"), row).scalar_one()
    return run_id


def _publish(connection: Connection, report: str, facts: DayFacts, run_id: int, now: int) -> int:
    """One day: groups, changes, then the switch; each statement says its part."""
    key = {"report": report, "day": facts.day.isoformat(), "run_id": run_id}
    _write_groups(connection, facts.members, run_id)
    old = connection.scalar(text(_PUBLISHED), key)
    changes = note_changes(connection, old, run_id) if old is not None else 0
    finished = connection.execute(text(_FINISH), {**key, "now": _time(connection, now)})
    if finished.rowcount != 1:
        raise AnotherRun(f"{report} {facts.day}: a later run published first")
    connection.execute(text(_RETIRE), key)
    connection.execute(text(_SWITCH), key)
    return changes


def _write_groups(connection: Connection, members: Sequence[Member], run_id: int) -> None:
    """Group figures of a day, from the site figures that Spark wrote (rule 13)."""
    statement = f"SELECT site, {', '.join(SECONDS)} FROM site_figure WHERE run_id = :run_id"
    found = connection.execute(text(statement), {"run_id": run_id})
    of_site = {row[0]: Seconds(*row[1:]) for row in found}
    seconds_of = {each: of_site.get(each.site, Seconds()) for each in members}
    rows = [{"run_id": run_id, **asdict(each)} for each in members]
    figures = [_group_row(connection, run_id, f) for f in group_figures(members, seconds_of)]
    if rows:
        connection.execute(_insert("group_site", rows[0]), rows)
        connection.execute(_insert("group_figure", figures[0]), figures)


def _group_row(connection: Connection, run_id: int, figure: GroupFigure) -> dict[str, object]:
    def stored(value: Fraction | None) -> object:
        told = rounded(value)
        # SQLite's driver knows no decimals.
        return float(told) if told is not None and _is_sqlite(connection) else told

    return {
        "run_id": run_id,
        **asdict(figure),
        "availability": stored(figure.availability),
        "reliability": stored(figure.reliability),
    }


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def _insert(table: str, row: Mapping[str, object], ending: str = "") -> TextClause:
    places = ", ".join(f":{name}" for name in row)
    return text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places}){ending}")


def _time(connection: Connection, second: int) -> int | str:
    """A time as the tables hold it: epoch seconds on SQLite, timestamptz on PostgreSQL."""
    return second if _is_sqlite(connection) else format_time(moment(second))


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
