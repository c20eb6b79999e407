"""What messages would become if they were loaded now: nothing is written.

They are decoded and judged as in `load`. What a trigger or a constraint of the database refuses,
and which rows it has already, is not known before they are inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sam_pipeline.schema.identity.policy import ENFORCE, Policy
from sam_pipeline.schema.messages.decode import Row
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import CHECK_CLASS, built_in, folded
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.batch import RecordFailure
from sam_pipeline.sql.loading.catalogue import Classes
from sam_pipeline.sql.loading.letters.store import collapsed
from sam_pipeline.sql.loading.load import decode_batch


def _no_topology() -> AbstractContextManager[Connection]:
    raise RuntimeError("a policy needs a database")


@dataclass(frozen=True)
class Preview:
    """What a message would become.

    `rows` are for the view of `message_class`, and `letters` the dead letters. `observed` are the
    records that the policy would refuse if it enforced; they are among the rows.
    """

    message_class: str
    is_check: bool = False
    rows: Sequence[Row] = ()
    letters: Sequence[RecordFailure] = ()
    observed: Sequence[RecordFailure] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)


class Previewer:
    """Decodes messages for some classes, and asks the policy with the topology of a database."""

    def __init__(
        self,
        classes: Classes,
        limits: Limits,
        policy: Policy | None = None,
        signature_age: timedelta = timedelta(days=30),
        connected: Callable[[], AbstractContextManager[Connection]] = _no_topology,
    ) -> None:
        self._classes = classes
        self._limits = limits
        self._connected = connected
        self._enforces = policy is not None and policy.enforces
        # A policy that observes only counts; its reasons are those of one that enforces.
        enforcing = replace(policy, mode=ENFORCE) if policy else None
        self._authority = Authority(enforcing, signature_age) if enforcing else None

    def of(self, message: Message, now: datetime) -> Preview:
        """What a message that arrives now would become."""
        name = folded(message.message_class or "")
        known = built_in(name)
        message_class = known.name if known else message.message_class or ""
        batch = decode_batch(self._classes, [message], now, self._limits)
        parts = batch.by_view.values()

        def failures() -> list[RecordFailure]:
            return [*batch.failures, *(failure for part in parts for failure in part.failures)]

        rows = [pending.row for part in parts for pending in part.rows]
        undecodable, observed = failures(), list[RecordFailure]()
        letters = undecodable
        if self._authority is not None:
            self._authority.judge(batch, now, self._connected)
            if self._enforces:
                rows = [pending.row for part in parts for pending in part.rows]
                letters = failures()
            else:
                observed = [failure for failure in failures() if failure not in undecodable]
        return Preview(
            message_class,
            name == CHECK_CLASS,
            rows,
            collapsed(letters),
            observed,
            batch.counts.ignored_keys,
        )
