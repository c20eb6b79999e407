"""A sink into a database, with the limits of a usual configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.consumer.core.recovery import Attempts
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sinks.database import DatabaseSink
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.quota import LetterBudget, LetterQuota
from sam_pipeline.sql.loading.load import Loader


def sink_into(
    engine: Engine,
    directory: Path,
    state: State | None = None,
    policy: Policy | None = None,
    letters_per_hour: int = 1000,
    clock: Callable[[], float] = time.monotonic,
) -> DatabaseSink:
    """`directory`: where the ids of messages are written while these are decoded."""
    loader = Loader(
        engine,
        Catalogue(engine),
        authority=Authority(policy) if policy else None,
        quota=LetterQuota(letters_per_hour, 20_000_000, LetterBudget(policy)),
    )
    attempts = Attempts(directory / "attempts")
    return DatabaseSink(loader, "site-a", state or State(), attempts, clock=clock)
