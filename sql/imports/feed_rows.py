"""The rows of a feed, normalised like those of messages so that they compare."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import MessageClass
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.topology.view_rows import Row

ALL_TYPES = ""
"""Instead of a group type: the feed has all of its groups, whatever their type."""

# Rows need a time to be valid; this one is removed afterwards, and that of the snapshot set later.
_PLACEHOLDER = datetime(1970, 1, 1, tzinfo=UTC)


T = TypeVar("T")

LONGEST_CONTACT = 255

Files = Mapping[str, Sequence[Path]]
"""The files of a feed by what they contain."""


class LeftOut(NamedTuple):
    """An odd element of a feed, of which no row was made: where it is, and the reason."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class SiteFacts(NamedTuple):
    """What a feed says about a site; None for what it does not say."""

    certification: Collection[str] | None = None
    infrastructure: Collection[str] | None = None
    scope: Collection[str] | None = None
    countries: Collection[str] | None = None
    """The name and the code of its country."""


@dataclass(frozen=True)
class FeedRows:
    """The rows of a feed, as its files have them; `groups` by group type. None or {} if not read.

    `feed` is its name; `sites` are the facts about the sites that it lists. Rows may have the same
    key. Of the sites in `filtered`, by the condition that they do not meet, no rows are left.
    """

    feed: str
    endpoints: Sequence[Row] | None = None
    groups: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    contacts: Sequence[Row] | None = None
    downtimes: Sequence[Row] | None = None
    sites: Mapping[str, SiteFacts] | None = None
    left_out: Sequence[LeftOut] = ()
    filtered: Mapping[str, Collection[str]] = field(default_factory=dict)


def rows_of(
    items: Iterable[tuple[str, T]],
    message_class: MessageClass,
    read: Callable[[T], Iterable[Mapping[str, str]]],
    left_out: list[LeftOut],
) -> Iterator[Row]:
    """The rows, without `validFrom`, of the records that `read` makes of each item.

    Items come with their location. Records that are invalid are added to `left_out`.
    """
    for where, item in items:
        try:
            for fields in read(item):
                try:
                    complete = {**fields, "validFrom": format_time(_PLACEHOLDER)}
                    for row in normalise(complete, message_class.name, {}, _PLACEHOLDER):
                        del row["validFrom"]
                        yield row
                except RecordRefused as error:
                    left_out.append(LeftOut(where, error.text))
        except RecordRefused as error:
            left_out.append(LeftOut(where, error.text))


def contact_of(people: Iterable[str]) -> str:
    """The contact of a site: its people in alphabetical order, as far as there is room."""
    contact = ""
    for person in sorted(set(filter(None, people))):
        longer = f"{contact}, {person}" if contact else person
        contact = longer if len(longer) <= LONGEST_CONTACT else contact
    return contact
