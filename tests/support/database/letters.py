"""Loading as the consumer does, and the dead letters that it leaves."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import (
    ALL_OPEN,
    NO_LIMIT,
    DeadLetter,
    LetterFilter,
    before_newest,
    dead_letter_pages,
)
from sam_pipeline.sql.loading.load import Audit, Loader, Loading, load_all
from tests.support.builders import NOW
from tests.support.database.roles import acting_as

ALL_LETTERS = LetterFilter(state=None)


def load_now(
    engine: Engine,
    *messages: Message,
    now: datetime = NOW,
    audit: Audit | None = None,
    poison: Collection[str] = (),
    **options: Any,
) -> Counts:
    """Load one batch with the rights of the loader; `options` of the `Loader`."""
    with acting_as("loader", engine) as role:
        loader = Loader(role, Catalogue(role), **options)
        return load_all(Loading(loader, messages, now, audit, poison))


def list_dead_letters(
    engine: Engine, selected: LetterFilter = ALL_OPEN, limit: int = NO_LIMIT
) -> list[DeadLetter]:
    """The newest `limit` letters that match, oldest first."""
    after = 0 if limit == NO_LIMIT else before_newest(engine, selected, limit)
    return [letter for page in dead_letter_pages(engine, selected, after) for letter in page]


def only_letter(engine: Engine) -> DeadLetter:
    """The only letter, in whatever state."""
    [letter] = list_dead_letters(engine, ALL_LETTERS)
    return letter


def reasons(engine: Engine) -> list[tuple[int, str]]:
    """The record number and the reason of each open letter."""
    return [(letter.record_number, letter.reason) for letter in list_dead_letters(engine)]
