"""Sealed months (availability rule 17), whose published figures stay until the next seal.

A later run of a sealed day becomes its candidate (spark_jobs.runs.record). Sealing the month again
publishes all its candidates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges, moment, month_of
from sam_pipeline.spark_jobs.runs.published import (
    Candidate,
    as_moment,
    candidates,
    published_reports,
)
from sam_pipeline.spark_jobs.runs.record import stored_time

# PostgreSQL. The login must not be able to change these tables by itself.
_SEAL_MONTH = "SELECT seal_month(:report, :month, :who, :now)"

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
    "INSERT INTO seal (report, month, who, sealed_at) VALUES (:report, :month, :who, :now)"
    " ON CONFLICT (report, month) DO UPDATE SET who = excluded.who, sealed_at = excluded.sealed_at"
)


@dataclass(frozen=True)
class Seal:
    """A sealed month, and the candidates that its next seal would publish."""

    report: str
    month: str
    who: str
    sealed_at: datetime
    candidates: Sequence[Candidate]

    @property
    def figures(self) -> int:
        """The number of figures that the candidates would change."""
        return sum(candidate.figures for candidate in self.candidates)

    @property
    def reasons(self) -> list[str]:
        return sorted({r for candidate in self.candidates for r in candidate.reasons})


def seal(
    connection: Connection, report: str | None, month: Period, who: str, now: int
) -> list[Seal]:
    """Freeze the published figures of a month, for one report or for all.

    If the month was sealed before, its candidates are published, and listed in the returned seal.
    The caller holds run_lock, so that no run publishes meanwhile.

    Raises:
        ReportUsage: nothing is published, or some days were never computed, or only while they
            were open. No report is sealed then.
    """
    reports = published_reports(connection, report, month)
    if not reports:
        raise ReportUsage(f"nothing is published for {month}: `sam-report run` computes it")
    problems = []
    for name in reports:
        rows = connection.execute(
            text(f"SELECT day, until FROM report_run WHERE {_OF_MONTH} AND state = 'published'"),
            {"report": name, **month.bounds},
        )
        was_open = {as_day(day): until is not None for day, until in rows}
        never = [day for day in month.days() if day not in was_open]
        still_open = [day for day in sorted(was_open) if was_open[day]]
        problems += [
            f"{name}: {in_ranges(days)} {problem}: `sam-report run` computes it"
            for days, problem in (
                (never, "never computed"),
                (still_open, "computed while still open"),
            )
            if days
        ]
    if problems:
        raise ReportUsage(*problems)
    name_of_month = f"{month.first:%Y-%m}"
    done = []
    for name in reports:
        published = candidates(connection, name, month)
        key = {
            "report": name,
            **month.bounds,
            "month": name_of_month,
            "who": who,
            "now": stored_time(connection, now),
        }
        lite = connection.dialect.name == "sqlite"
        steps = (_SUPERSEDE, _PUBLISH, _TURN, _NO_CANDIDATES, _SEAL) if lite else (_SEAL_MONTH,)
        for statement in steps:
            connection.execute(text(statement), key)
        done.append(Seal(name, name_of_month, who, moment(now), published))
    return done


def seals(connection: Connection) -> list[Seal]:
    """All sealed months, with the candidates that their next seals would publish."""
    rows = connection.execute(
        text("SELECT report, month, who, sealed_at FROM report_seal ORDER BY month, report")
    )
    return [
        Seal(
            report,
            month,
            who,
            as_moment(sealed_at),
            candidates(connection, report, month_of(as_day(f"{month}-01"))),
        )
        for report, month, who, sealed_at in rows.all()
    ]


def waiting(connection: Connection, report: str | None, period: Period) -> list[str]:
    """A line for each report in which figures of sealed days in the period would change now."""
    by_report: dict[str, list[Candidate]] = {}
    for candidate in candidates(connection, report, period):
        if candidate.figures:
            by_report.setdefault(candidate.report, []).append(candidate)
    return [
        f"{name}: sealed; since then {plural(sum(c.figures for c in changed), 'figure')} of"
        f" {plural(len(changed), 'day')} would change: `sam-report seal --list` shows why"
        for name, changed in by_report.items()
    ]
