"""The reasons of dead letters: for the tables of these pages, and for completion."""

from __future__ import annotations

from collections.abc import Mapping

from sam_pipeline.schema.records import reasons
from sam_pipeline.sql.loading import batch


def dead_letter_reasons() -> Mapping[str, tuple[str, str]]:
    """The meaning of each reason, and what to do."""
    return {**batch.REASONS, **reasons.REASONS}
