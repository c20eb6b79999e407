"""One run of a report at a time: a second one waits, and then computes only the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from sam_pipeline.sql.database.locks import one_at_a_time


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
