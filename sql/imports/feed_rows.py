"""The rows of a feed, normalised like those of messages so that they compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.schema.records.classes import MessageClass
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.topology.view_rows import Row, key_of

ALL_TYPES = ""
"""Instead of a group type: the feed has all of its groups, whatever their type."""

MAX_PROBLEMS = 20
"""How many invalid elements an error lists."""

# Rows need a time to be valid; this one is removed afterwards, and that of the snapshot set later.
_PLACEHOLDER = datetime(1970, 1, 1, tzinfo=UTC)


T = TypeVar("T")


@dataclass(frozen=True)
class FeedRows:
    """The rows of a feed; `groups` by group type. None or {} if not read."""

    endpoints: Sequence[Row] | None = None
    groups: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    downtimes: Sequence[Row] | None = None


def rows_of(
    items: Iterable[tuple[str, T]],
    message_class: MessageClass,
    read: Callable[[T], Iterable[Mapping[str, str]]],
    problems: list[str],
) -> Iterator[Row]:
    """The rows, without `validFrom`, of the records that `read` makes of each item.

    Items come with their location; those that are invalid are added to `problems`.
    """
    for where, item in items:
        try:
            for fields in read(item):
                complete = {**fields, "validFrom": format_time(_PLACEHOLDER)}
                for row in normalise(complete, message_class.name, {}, _PLACEHOLDER):
                    del row["validFrom"]
                    yield row
        except RecordRefused as error:
            problems.append(f"{where}: {error.text}")


def best_endpoints(rows: Iterable[Row]) -> list[Row]:
    """One row per site, host, flavour and VO: preferably one in production and monitored."""

    def rank(row: Row) -> tuple[object, ...]:
        production, monitored = (row.get(key, "Y") for key in ("production", "monitored"))
        return production == monitored == "Y", production, monitored, row.get("serviceURI", "")

    best: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = key_of(row, ("siteName", "hostName", "serviceFlavour", "voName"))
        best[key] = max(best.get(key, row), row, key=rank)
    return list(best.values())


def refuse_invalid(problems: Sequence[str]) -> None:
    """Raise BadInput if there are problems: a feed is imported as a whole, or not at all."""
    if problems:
        more = len(problems) - MAX_PROBLEMS
        raise BadInput(
            *problems[:MAX_PROBLEMS],
            *([f"… and {more} more"] if more > 0 else []),
            "nothing was changed: fix the export or remove these elements",
        )
