"""Results of past days, and the rows that remain after a prune, for both dialects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, timedelta

from sqlalchemy import Engine, text

from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.removal.prune import Pruned, bounds_of, prune
from tests.support.builders import metric_result
from tests.support.database.sql_rows import insert, query

TODAY = date(2026, 11, 20)
HOSTS = ("ce01.example.org", "ce02.example.org")
TIMES = ("00:00:00", "12:00:00", "23:59:59")


def days_ago(days: int) -> date:
    return TODAY - timedelta(days=days)


def results_of(day: date, **changes: str | None) -> Iterator[Record]:
    """Six results of two instances, from the first to the last second of the day."""
    for host in HOSTS:
        for time in TIMES:
            yield metric_result(
                **{
                    "hostName": host,
                    "timestamp": f"{day}T{time}Z",
                    "detailsData": f"{host} at {time}",
                    **changes,
                }
            )


def prune_now(
    engine: Engine,
    results: int | None = None,
    details: int | None = None,
    audit: int | None = None,
    letters: int | None = None,
    statements: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Prune at TODAY, without pauses; ages in days."""
    bounds = bounds_of(TODAY, results, details, statements, audit, letters)
    return prune(engine, bounds, dry_run=dry_run, sleep=lambda seconds: None)


def fill(engine: Engine, ages: Iterable[int]) -> None:
    """Insert results of days with these ages, in days."""
    for age in ages:
        insert(engine, "metricOutput", *results_of(days_ago(age)))


def results_by_age(engine: Engine) -> dict[int, int]:
    """The number of results of each day, by its age in days."""
    return _by_age(engine, "SELECT timestamp FROM metricOutput")


def details_by_age(engine: Engine) -> dict[int, int]:
    return _by_age(engine, "SELECT timestamp FROM metricOutput WHERE detailsData IS NOT NULL")


def everything(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    """All rows that a prune with nothing to do must not change."""
    return {
        view: sorted(query(engine, f"SELECT * FROM {view}"), key=str)
        for view in (
            "report_result",
            "metricOutput",
            "current_status",
            "report_changed_day",
            "report_horizon",
        )
    }


def horizon(engine: Engine) -> date | None:
    with reading(engine) as connection:
        day = connection.scalar(text("SELECT day FROM report_horizon"))
    return None if day is None else date.fromisoformat(str(day))


def changed_days(engine: Engine) -> set[str]:
    return {str(day) for (day,) in query(engine, "SELECT day FROM report_changed_day")}


def forget_changes(engine: Engine) -> None:
    """Mark all days as reported."""
    fold_all(engine)
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM changed_day"))


def _by_age(engine: Engine, statement: str) -> dict[int, int]:
    days = [date.fromisoformat(time[:10]) for (time,) in query(engine, statement)]
    return dict(sorted(Counter((TODAY - day).days for day in days).items()))
