"""Dead letters, all at once."""

from __future__ import annotations

from sqlalchemy import Engine

from sam_pipeline.sql.loading.letters.dead_letter import (
    ALL_OPEN,
    NO_LIMIT,
    DeadLetter,
    LetterFilter,
    before_newest,
    dead_letter_pages,
)


def list_dead_letters(
    engine: Engine, selected: LetterFilter = ALL_OPEN, limit: int = NO_LIMIT
) -> list[DeadLetter]:
    """The newest `limit` letters that match, oldest first."""
    after = 0 if limit == NO_LIMIT else before_newest(engine, selected, limit)
    return [letter for page in dead_letter_pages(engine, selected, after) for letter in page]
