"""A digest of all that is published about a month: while it is the same, so are its pages."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.published import as_moment

_PROGRAM = Path(__file__).parents[1]
_SOURCES = ("*.py", "*.html", "*.css", "*.js")
_PUBLISHED = (
    "SELECT report, day, run_id, input_digest, finished_at FROM report_run"
    " WHERE state = 'published' AND (report = :report AND day BETWEEN :since AND :last"
    " OR day BETWEEN :first AND :last) ORDER BY report, day"
)
_CANDIDATES = (
    "SELECT day, run_id FROM report_candidate"
    " WHERE report = :report AND day BETWEEN :first AND :last ORDER BY day"
)


def month_digest(
    connection: Connection, report: str, month: Period, year: Period, *others: object
) -> str:
    """The digest of the inputs of a month's pages.

    These are this program, the runs of the report in the `year` up to the month, those of other
    reports in the month, its candidates, and `others`, which are compared by their `repr`.
    """
    parameters = {"report": report, **month.bounds, "since": str(year.first)}
    digest = hashlib.sha256(_program_digest())
    for name, day, run_id, inputs, finished_at in connection.execute(text(_PUBLISHED), parameters):
        at = finished_at and as_moment(finished_at).timestamp()
        digest.update(repr((name, str(day), run_id, inputs, at)).encode())
    for day, run_id in connection.execute(text(_CANDIDATES), parameters):
        digest.update(repr((str(day), run_id)).encode())
    digest.update(repr(others).encode())
    return digest.hexdigest()


@cache
def _program_digest() -> bytes:
    """The digest of this program: another version may write other pages from the same figures."""
    digest = hashlib.sha256()
    for path in sorted(path for kind in _SOURCES for path in _PROGRAM.rglob(kind)):
        digest.update(path.read_bytes())
    return digest.digest()
