"""What messages would become if they were loaded now: nothing is written.

They are decoded and judged as in `load`. What a trigger or a constraint of the database refuses,
and which rows it has already, is not known before they are inserted.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.identity.policy import ENFORCE, Policy
from sam_pipeline.schema.messages.decode import WHOLE, Row
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.schema.records.classes import CHECK_CLASS, built_in, folded
from sam_pipeline.sql.database.config import has_database, open_database
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.roles import READER
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.batch import UNKNOWN_CLASS, RecordFailure
from sam_pipeline.sql.loading.catalogue import BuiltInClasses, Catalogue, Classes
from sam_pipeline.sql.loading.letters.store import collapsed
from sam_pipeline.sql.loading.load import decode_batch

LONGEST_TEXT = 500
"""Characters of an error, and of a value that is not shown in full."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Preview:
    """What a message would become.

    `rows` are for the view of `message_class`, and `letters` the dead letters. `observed` are the
    records that the policy would refuse if it enforced; they are among the rows. The class of
    `undecided` letters may exist in a database, which is not known.
    """

    message_class: str
    is_check: bool = False
    rows: Sequence[Row] = ()
    letters: Sequence[RecordFailure] = ()
    undecided: Sequence[RecordFailure] = ()
    observed: Sequence[RecordFailure] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """The preview as text."""
        if self.is_check:
            yield "    a test message: it is counted, and not loaded"
        for row in self.rows:
            yield f"    record {row.number}: a row of {self.message_class}"
            yield from (f"      {column}: {one_line(text)}" for column, text in row.values.items())
        for letter in self.letters:
            yield f"    {_named(letter)}: a dead letter, {_text(letter)}"
        for _ in self.undecided:
            yield f"    undecided: {self.message_class} is not one of the built-in classes"
        for refused in self.observed:
            yield f"    {_named(refused)}: loaded, but the policy would refuse it: {_text(refused)}"
        for key, count in self.ignored.items():
            yield f"    key {one_line(key)}: ignored, the class has no such column ({count} times)"

    def document(self) -> dict[str, Any]:
        """The preview for JSON."""
        return {
            "is_check": self.is_check,
            "is_undecided": bool(self.undecided),
            "rows": [
                {"record": row.number, "class": self.message_class, "values": dict(row.values)}
                for row in self.rows
            ],
            "dead_letters": [*map(_failure_document, self.letters)],
            "observed": [*map(_failure_document, self.observed)],
            "ignored_keys": dict(self.ignored),
        }


def previewing(
    args: argparse.Namespace, config: ConsumerConfig, policy: Policy | None
) -> Callable[[Message, datetime], Preview]:
    """What a message that arrives at a time would become.

    The classes and the topology, which a policy needs, are those of the configured database.
    Without one, only the built-in classes are known.
    """
    limits, has_topology = config.limits(), has_database(args)
    classes: Classes = BuiltInClasses()
    if has_topology:
        engine = open_database(args, READER, read_only=True)
        classes, connected = Catalogue(engine), partial(reading, engine)
        logger.info(
            "nothing is stored, so duplicates are not detected, nor what a trigger or a constraint"
            " of the database would refuse"
        )
    else:
        logger.info(
            "nothing is stored; without a database only the built-in classes are known%s",
            ", and the policy is not asked, as it needs the topology" if policy else "",
        )
    authority = None
    if policy and has_topology:
        # A policy that observes only counts; its reasons are those of one that enforces.
        age = timedelta(days=config.signature_age_days)
        authority = Authority(replace(policy, mode=ENFORCE), age)

    def preview(message: Message, now: datetime) -> Preview:
        name = folded(message.message_class or "")
        known = built_in(name)
        batch = decode_batch(classes, [message], now, limits)
        parts = batch.by_view.values()

        def rows() -> list[Row]:
            return [pending.row for part in parts for pending in part.rows]

        def failures() -> list[RecordFailure]:
            return [*batch.failures, *(failure for part in parts for failure in part.failures)]

        decoded, undecodable = rows(), failures()
        if authority:
            authority.judge(batch, now, connected)
        enforces = authority is None or (policy is not None and policy.enforces)
        letters = failures() if enforces else undecodable
        undecided = [
            letter
            for letter in letters
            if not has_topology and letter.reason == UNKNOWN_CLASS and letter.message.message_class
        ]
        return Preview(
            message_class=known.name if known else message.message_class or "",
            is_check=name == CHECK_CLASS,
            rows=rows() if enforces else decoded,
            letters=collapsed([letter for letter in letters if letter not in undecided]),
            undecided=undecided,
            observed=[] if enforces else [one for one in failures() if one not in undecodable],
            ignored=batch.counts.ignored_keys,
        )

    return preview


def _failure_document(failure: RecordFailure) -> dict[str, Any]:
    number = None if failure.number == WHOLE else failure.number
    return {"record": number, "reason": failure.reason, "error": failure.text}


def _named(failure: RecordFailure) -> str:
    return "the whole message" if failure.number == WHOLE else f"record {failure.number}"


def _text(failure: RecordFailure) -> str:
    return f"{failure.reason}: {one_line(failure.text, LONGEST_TEXT)}"
