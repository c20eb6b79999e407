"""Sealed months (availability rule 17), whose published figures stay until the next seal.

A later run of a sealed day becomes its candidate (spark_jobs.runs.record). Sealing the month again
publishes all its candidates at once, as a new revision; the older ones stay readable
(spark_jobs.runs.revisions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges, month_of
from sam_pipeline.spark_jobs.runs.due import first_result_day
from sam_pipeline.spark_jobs.runs.published import (
    Candidate,
    as_moment,
    candidates,
    published_reports,
)
from sam_pipeline.spark_jobs.runs.record import stored_time
from sam_pipeline.sql.database.operations import login_name, record_operation

# PostgreSQL. The login must not be able to change these tables by itself.
_SEAL_MONTH = "SELECT seal_month(:report, :month, :who, :reason, :now, :os_login)"

# SQLite.
_OF_MONTH = "report = :report AND day BETWEEN :first AND :last"
_SUPERSEDE = (
    "UPDATE run SET state = 'superseded' WHERE run_id IN (SELECT p.run_id FROM published_run AS p"
    " JOIN candidate_run AS c ON c.report = p.report AND c.day = p.day"
    " WHERE c.report = :report AND c.day BETWEEN :first AND :last)"
)
_PUBLISH = (
    "UPDATE run SET state = 'published'"
    f" WHERE run_id IN (SELECT run_id FROM candidate_run WHERE {_OF_MONTH})"
)
_TURN = (
    "INSERT INTO published_run (report, day, run_id)"
    f" SELECT report, day, run_id FROM candidate_run WHERE {_OF_MONTH}"
    " ON CONFLICT (report, day) DO UPDATE SET run_id = excluded.run_id"
)
_NO_CANDIDATES = f"DELETE FROM candidate_run WHERE {_OF_MONTH}"
_SEAL = (
    "INSERT INTO seal (report, month, revision, who, reason, sealed_at)"
    " SELECT :report, :month, 1 + coalesce(max(revision), 0), :who, :reason, :now FROM seal"
    " WHERE report = :report AND month = :month"
)
_KEEP = (
    "INSERT INTO revision_run (report, month, revision, day, run_id)"
    " SELECT report, :month, (SELECT max(revision) FROM seal"
    " WHERE report = :report AND month = :month), day, run_id FROM published_run"
    f" WHERE {_OF_MONTH}"
)

_STEPS = (_SUPERSEDE, _PUBLISH, _TURN, _NO_CANDIDATES, _SEAL, _KEEP)


@dataclass(frozen=True)
class Revision:
    """One seal of a month: who is responsible for the figures that it published, and its reason.

    The first revision may have none.
    """

    revision: int
    who: str
    reason: str
    sealed_at: datetime

    def __str__(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        by = f" by {self.who}" if self.who else ""
        return f"as revision {self.revision} on {self.sealed_at:%Y-%m-%d}{by}{because}"

    def unsigned(self) -> Revision:
        """The revision without the person behind it, for the public."""
        return replace(self, who="")


@dataclass(frozen=True)
class Seal:
    """A sealed month, its revisions so far, and the candidates that the next seal would publish."""

    report: str
    month: str
    revisions: Sequence[Revision]
    candidates: Sequence[Candidate]

    @property
    def newest(self) -> Revision:
        return self.revisions[-1]

    @property
    def figures(self) -> int:
        """The number of figures that the candidates would change."""
        return sum(candidate.figures for candidate in self.candidates)

    @property
    def reasons(self) -> list[str]:
        return sorted({r for candidate in self.candidates for r in candidate.reasons})


def complete_reports(connection: Connection, report: str | None, month: Period) -> list[str]:
    """The reports, or only `report`, that can be sealed: every day of the month is published.

    Days before the first result of the database need no figures.

    Raises:
        ReportUsage: nothing is published, or some days were never computed, or only while they
            were open.
    """
    reports = published_reports(connection, report, month)
    if not reports:
        raise ReportUsage(f"nothing is published for {month}: `sam-report run` computes it")
    began = first_result_day(connection) or month.first
    reports_of: dict[str, list[str]] = {}
    for name in reports:
        rows = connection.execute(
            text(f"SELECT day, until FROM report_run WHERE {_OF_MONTH} AND state = 'published'"),
            {"report": name, **month.bounds},
        )
        was_open = {as_day(day): until is not None for day, until in rows}
        never = [day for day in month.days() if day >= began and day not in was_open]
        still_open = [day for day in sorted(was_open) if was_open[day]]
        for days, problem in (
            (never, "never computed"),
            (still_open, "computed while still open"),
        ):
            if days:
                reports_of.setdefault(f"{in_ranges(days)} {problem}", []).append(name)
    if reports_of:
        raise ReportUsage(
            *(
                f"{', '.join(names)}: {problem}: `sam-report run` computes it"
                for problem, names in reports_of.items()
            )
        )
    return reports


def seal(
    connection: Connection, report: str | None, month: Period, who: str, reason: str, now: int
) -> tuple[list[Seal], list[Seal]]:
    """Freeze the published figures of a month, for one report or for all.

    If the month was sealed before, its candidates are published, and listed in the returned seal.
    The caller holds run_lock, so that no run publishes meanwhile.

    Returns:
        The new seals, and those that stay because no candidate would change a figure.
    Raises:
        ReportUsage: see `complete_reports`; or another revision has no reason. No report is sealed.
    """
    done, unchanged = [], []
    for name in complete_reports(connection, report, month):
        published = candidates(connection, name, month)
        before = seals(connection, name, month)
        if before and not published:
            unchanged += before
            continue
        if before and not reason:
            raise ReportUsage(
                f"{name} {month.first:%Y-%m} is sealed {before[0].newest}:"
                " --reason TEXT is required for another revision"
            )
        key = {
            "report": name,
            **month.bounds,
            "month": f"{month.first:%Y-%m}",
            "who": who,
            "reason": reason,
            "now": stored_time(connection, now),
            "os_login": login_name(),
        }
        lite = connection.dialect.name == "sqlite"
        for statement in _STEPS if lite else (_SEAL_MONTH,):
            connection.execute(text(statement), key)
        [sealed] = seals(connection, name, month)
        if lite:  # seal_month() records it
            arguments = {"report": name, "month": sealed.month, "who": who, "reason": reason}
            record_operation(connection, "seal", arguments)
        done.append(replace(sealed, candidates=published))
    return done, unchanged


def days_with_figures(connection: Connection, report: str, month: Period) -> int:
    """The number of published days of a month."""
    statement = f"SELECT count(*) FROM report_run WHERE {_OF_MONTH} AND state = 'published'"
    return connection.scalar(text(statement), {"report": report, **month.bounds}) or 0


def seals(
    connection: Connection, report: str | None = None, month: Period | None = None
) -> list[Seal]:
    """The sealed months, with the candidates that their next seals would publish.

    They are those of all reports or of one, and all months or one.
    """
    rows = connection.execute(
        text(
            "SELECT report, month, revision, who, reason, sealed_at FROM report_seal"
            " WHERE report = coalesce(:report, report) AND month = coalesce(:month, month)"
            " ORDER BY month, report, revision"
        ),
        {"report": report, "month": None if month is None else f"{month.first:%Y-%m}"},
    ).all()
    return [
        Seal(
            name,
            sealed,
            [Revision(number, who, why, as_moment(at)) for _, _, number, who, why, at in of_month],
            candidates(connection, name, month_of(as_day(f"{sealed}-01"))),
        )
        for (name, sealed), of_month in groupby(rows, key=itemgetter(0, 1))
    ]


def sealed_reports(connection: Connection, report: str | None, month: Period) -> list[Seal]:
    """The seals of a month, of all reports or of one.

    Raises:
        ReportUsage: the month is not sealed.
    """
    sealed = seals(connection, report, month)
    if not sealed:
        raise ReportUsage(f"{month.first:%Y-%m} is not sealed; `sam-report seal list` shows months")
    return sealed


def require_revisions(seal: Seal, *revisions: int) -> None:
    """Check that a sealed month has these revisions.

    Raises:
        ReportUsage: it does not.
    """
    newest = seal.newest.revision
    for revision in revisions:
        if revision > newest:
            problem = f"there is no revision {revision}: the newest is {newest}"
            raise ReportUsage(f"{seal.report} {seal.month}: {problem}")


def waiting(connection: Connection, report: str | None, period: Period) -> list[str]:
    """A line for each report in which figures of sealed days in the period would change now."""
    by_report: dict[str, list[Candidate]] = {}
    for candidate in candidates(connection, report, period):
        if candidate.figures:
            by_report.setdefault(candidate.report, []).append(candidate)
    return [
        f"{name}: sealed; since then {plural(sum(c.figures for c in changed), 'figure')} of"
        f" {plural(len(changed), 'day')} would change: `sam-report seal show` explains them"
        for name, changed in by_report.items()
    ]
