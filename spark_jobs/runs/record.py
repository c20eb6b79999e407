"""The record of a run, from its beginning to its publication.

A run writes its rows under its own number, which no view shows yet. Publishing is one transaction:
it finishes the record, records the differences from the previous report, and switches the views to
the new run. A failure before that leaves the previous report intact. The run of a sealed day is
finished and compared in the same way, but the views do not switch: it becomes the day's candidate
(spark_jobs.runs.seal).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import AnotherRun
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion, GroupMember
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.figures import Member, MemberDay, group_figures
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.changes import insert_into, note_changes
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.database.locks import one_at_a_time
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.errors import SqlError

TIMELINES = "timeline_segment"
REPORT_TABLES = (
    TIMELINES,
    "figure",
    "group_figure",
    "group_site",
)

_UNSEEN = (
    "SELECT run_id FROM run WHERE state IN ('superseded', 'failed')"
    " AND run_id NOT IN (SELECT run_id FROM candidate_run)"
)
_IN_NO_REVISION = " AND run_id NOT IN (SELECT run_id FROM revision_run)"
_PUBLISHED = "SELECT run_id FROM published_run WHERE report = :report AND day = :day"
_SEALED = "SELECT 1 FROM seal WHERE report = :report AND month = :month"
_FINISH = (
    "UPDATE run SET state = :state, finished_at = :now WHERE run_id = :run_id AND state = 'running'"
)
_FAIL = "UPDATE run SET state = 'failed' WHERE run_id = :run_id AND state = 'running'"
# An older run that is still "running" was killed, or will find that it is too late.
_GIVE_UP = (
    "UPDATE run SET state = 'failed'"
    " WHERE report = :report AND day = :day AND run_id < :run_id AND state = 'running'"
)
_SUPERSEDE = (
    "UPDATE run SET state = 'superseded'"
    " WHERE report = :report AND day = :day AND run_id < :run_id AND state = 'published'"
)
_TURN = (
    "INSERT INTO {table} (report, day, run_id) VALUES (:report, :day, :run_id)"
    " ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id"
)


@dataclass(frozen=True)
class DayFacts:
    """The inputs of a run for one day.

    `results_ignored` counts the results that do not count, by reason; `newest_result` is the
    highest result_id of all. `downtimes` and `exclusions` are all those that overlap the day, even
    if they change nothing. `archived` are the versions of days that were read from the archive.
    """

    day: date
    instances: int
    results_digest: str
    topology_digest: str
    downtimes_digest: str
    members: Sequence[GroupMember]
    until: int | None = None
    results_read: int = 0
    results_ignored: Mapping[str, int] = field(default_factory=dict)
    exclusions_digest: str = ""
    newest_result: int = 0
    downtimes: Sequence[Downtime] = ()
    exclusions: Sequence[Exclusion] = ()
    archived: Mapping[date, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        profile: Profile,
        expected: DayExpectation,
        members: Sequence[GroupMember],
        results_digest: str,
        **read: Any,
    ) -> DayFacts:
        """The facts of a run that expects this, and has `read` the results of this digest."""
        return cls(
            day=expected.day,
            instances=expected.instances(profile),
            results_digest=results_digest,
            topology_digest=expected.topology_digest,
            downtimes_digest=expected.downtimes_digest,
            exclusions_digest=expected.exclusions_digest,
            downtimes=expected.downtimes,
            exclusions=expected.exclusions,
            members=members,
            **read,
        )


@dataclass(frozen=True)
class Published:
    """The number of figures that a publication changed.

    On `sealed_days` days nothing was published; `candidates` of their figures would change.
    """

    changes: int = 0
    sealed_days: int = 0
    candidates: int = 0


def begin(engine: Engine, profile: Profile, days: Mapping[date, int], now: int) -> list[int]:
    """Record the start of a run for each day, and return the ids of the runs.

    Also deletes the rows of runs that no view shows any more.

    Args:
        days: with the number of the newest change that the run reads.
    """
    run_ids = []
    with writing(engine) as connection:
        if _is_sqlite(connection):
            for table in REPORT_TABLES:
                # A revision of a sealed month keeps its figures, but not its timelines.
                swept = _UNSEEN + ("" if table == TIMELINES else _IN_NO_REVISION)
                connection.execute(text(f"DELETE FROM {table} WHERE run_id IN ({swept})"))
        else:
            connection.execute(text("SELECT sweep_runs()"))
        for day, change_no in days.items():
            row = {
                "report": profile.name,
                "day": day.isoformat(),
                "started_at": stored_time(connection, now),
                "state": "running",
                "profile": profile.document,
                "profile_digest": profile.digest,
                "software_version": version("sam-pipeline"),
                "who": login_name(),
                "change_no": change_no,
                "look_back": profile.look_back,
            }
            insert = insert_into("run", row, " RETURNING run_id")
            run_ids.append(int(connection.execute(insert, row).scalar_one()))
    return run_ids


def input_digests(profile: Profile, day: DayFacts) -> dict[str, str]:
    """The digests of what a run has read, and `input_digest` over all of it."""
    digests = {
        "results_digest": day.results_digest,
        "topology_digest": _sha256(day.topology_digest, *(str(tuple(m)) for m in day.members)),
        "downtimes_digest": day.downtimes_digest,
        "exclusions_digest": day.exclusions_digest,
    }
    inputs = (*digests.values(), profile.digest, day.day.isoformat(), str(day.until))
    return {**digests, "input_digest": _sha256(*inputs)}


def note_facts(
    engine: Engine, profile: Profile, facts: Sequence[DayFacts], run_ids: Sequence[int]
) -> None:
    """Record what each run has read, also if it cannot be published; not if it has ended."""
    with writing(engine) as connection:
        for day, run_id in zip(facts, run_ids, strict=True):
            row = {
                **input_digests(profile, day),
                "until": None if day.until is None else stored_time(connection, day.until),
                "results_read": day.results_read,
                "results_ignored": json.dumps(day.results_ignored, sort_keys=True),
                "instances": day.instances,
                "newest_result": day.newest_result,
                "downtimes": as_json(day.downtimes),
                "exclusions": as_json(day.exclusions),
            }
            values = ", ".join(f"{name} = :{name}" for name in row)
            # A later run may have ended this one; `publish` reports it.
            update = f"UPDATE run SET {values} WHERE run_id = :run_id AND state = 'running'"
            if connection.execute(text(update), {**row, "run_id": run_id}).rowcount:
                for read, number in day.archived.items():
                    of_archive = {"run_id": run_id, "day": str(read), "version": number}
                    connection.execute(insert_into("run_archive", of_archive), of_archive)


def publish(
    engine: Engine, profile: Profile, facts: Sequence[DayFacts], run_ids: Sequence[int], now: int
) -> Published:
    """Switch the views to the new runs, all days at once; a sealed day gets a candidate instead.

    Raises:
        AnotherRun: a later run of the same day published first.
    """
    changes = sealed_days = candidates = 0
    with writing(engine) as connection:
        for day, run_id in zip(facts, run_ids, strict=True):
            key = {"report": profile.name, "day": day.day.isoformat(), "run_id": run_id}
            _write_groups(connection, profile, day, run_id)
            old = connection.scalar(text(_PUBLISHED), key)
            changed = note_changes(connection, old, run_id, profile) if old is not None else 0
            sealed = connection.scalar(text(_SEALED), {**key, "month": f"{day.day:%Y-%m}"})
            state = "published" if sealed is None else "superseded"
            finished = {**key, "state": state, "now": stored_time(connection, now)}
            if connection.execute(text(_FINISH), finished).rowcount != 1:
                raise AnotherRun(f"{profile.name} {day.day}: a later run published first")
            connection.execute(text(_GIVE_UP), key)
            if sealed is None:
                connection.execute(text(_SUPERSEDE), key)
                connection.execute(text(_TURN.format(table="published_run")), key)
                changes += changed
            else:
                connection.execute(text(_TURN.format(table="candidate_run")), key)
                sealed_days += 1
                candidates += changed
    return Published(changes, sealed_days, candidates)


@contextmanager
def failing(engine: Engine, run_ids: Iterable[int]) -> Iterator[None]:
    """Mark the runs as failed if the block fails; a later run deletes their rows."""
    try:
        yield
    except BaseException:
        with suppress(SqlError), writing(engine) as connection:
            for run_id in run_ids:
                connection.execute(text(_FAIL), {"run_id": run_id})
        raise


def expected_members(
    profile: Profile, day: date, members: Iterable[GroupMember], sites: Mapping[str, Seconds]
) -> list[MemberDay]:
    """The members of groups that have figures on a day, with the weights that the profile uses.

    Nothing is expected of the others in this report; another one may measure them.
    """
    return [
        MemberDay(day, Member(*member[:3], profile.weight_of(member.weight)), seconds)
        for member in members
        for seconds in [sites.get(member.site)]
        if seconds is not None
    ]


def _write_groups(connection: Connection, profile: Profile, day: DayFacts, run_id: int) -> None:
    """Write the members and figures of groups, from the site figures that Spark wrote (rule 13)."""
    statement = (
        f"SELECT site, {', '.join(SECONDS)} FROM figure WHERE run_id = :run_id AND level = 'site'"
    )
    sites = {
        row[0]: Seconds(*row[1:]) for row in connection.execute(text(statement), {"run_id": run_id})
    }
    expected = expected_members(profile, day.day, day.members, sites)
    if not expected:
        return

    def stored(value: Fraction | None) -> object:
        figure = rounded(value)
        # The sqlite3 module does not accept decimals.
        return float(figure) if figure is not None and _is_sqlite(connection) else figure

    rows = [{"run_id": run_id, **member._asdict()} for _, member, _ in expected]
    figures = [
        {
            "run_id": run_id,
            **dict(zip(NAMES[GROUP], group.names, strict=True)),
            "availability": stored(group.availability),
            "reliability": stored(group.reliability),
            "sites_expected": group.sites_expected,
            "sites_known": group.sites_known,
        }
        for group in group_figures(expected)
    ]
    connection.execute(insert_into("group_site", rows[0]), rows)
    connection.execute(insert_into("group_figure", figures[0]), figures)


def as_json(values: Sequence[Downtime | Exclusion]) -> str:
    return json.dumps([asdict(value) for value in values], ensure_ascii=False)


def stored_time(connection: Connection, second: int) -> int | str:
    """A time as the tables store it: epoch seconds on SQLite, timestamptz on PostgreSQL."""
    return second if _is_sqlite(connection) else format_time(moment(second))


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@contextmanager
def run_lock(engine: Engine, reports: Iterable[str], warn: Callable[[str], None]) -> Iterator[None]:
    """Keep other processes from computing or sealing these reports during the block.

    If it has to wait, it warns once, with the holder of the lock.

    Raises:
        DatabaseAway: the database cannot be reached.
    """

    def waiting(report: str, by: str) -> None:
        warn(f"report {report}: another run is under way{by}: waiting for it to end")

    locks = {report: f"sam report {report}" for report in sorted(set(reports))}
    with one_at_a_time(engine, locks, "sam-report run", "report.lock", waiting):
        yield
