"""Disk space for dead letters that can still be loaded once the site has corrected something.

A wrong policy, class or clock refuses thousands of good results in minutes. Their letters do not
count towards the hourly limits; instead, the open ones have a budget in bytes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.identity.policy import NOT_AUTHORISED, UNSIGNED, Policy
from sam_pipeline.schema.messages.refused import BAD_SIGNATURE, SIGNATURE_EXPIRED
from sam_pipeline.schema.records.normalise import IN_THE_FUTURE, TOO_OLD
from sam_pipeline.sql.errors import SqlError
from sam_pipeline.sql.loading.batch import CLASS_BROKEN, MIXED, UNKNOWN_CLASS

CORRECTABLE = frozenset(
    {
        *(NOT_AUTHORISED, UNSIGNED, BAD_SIGNATURE, SIGNATURE_EXPIRED),  # the policy
        *(UNKNOWN_CLASS, CLASS_BROKEN),
        *(IN_THE_FUTURE, TOO_OLD),  # a clock
        MIXED,  # one of these, perhaps
    }
)
"""The reasons that may be a mistake of the site, and not of the sender."""
OWNER_BYTES = 200_000_000
ALL_BYTES = 1_000_000_000
"""The open letters of one publisher, and of all."""
LETTER_BYTES = 300
"""What a letter takes beside body and headers."""
MEASURE_EVERY_S = 600.0
MEASURE_FULL_EVERY_S = 60.0
"""Sooner, since replays and drops make room."""
ROOM = 0.9
"""A publisher that exceeded its budget goes on below this part of it."""
STRANGERS = ""
"""The owner of all letters of senders that the policy does not name."""

_KEPT = text(f"""
    SELECT d.broker, d.login, p.identity,
        sum(length(d.body) + length(d.headers) + {LETTER_BYTES}) AS bytes
    FROM dead_letter AS d LEFT JOIN publisher AS p ON p.publisher_id = d.publisher_id
    WHERE d.state = 'open' AND d.reason IN :reasons
    GROUP BY d.broker, d.login, p.identity
""").bindparams(bindparam("reasons", sorted(CORRECTABLE), expanding=True))


class LettersFull(SqlError):
    """Letters of publishers do not fit into their budgets: nothing was committed.

    `owners` are the publishers by source, `messages` the id() of each of their messages.
    """

    def __init__(self, owners: Mapping[str, str], messages: frozenset[int]) -> None:
        names = ", ".join(sorted(set(owners.values())))
        super().__init__(
            f"the open dead letters of {names} fill their space on disk: correct the policy, the"
            " class or the clock that refuses them and replay them, or drop them"
        )
        self.owners = owners
        self.messages = messages


@dataclass
class LetterBudget:
    """The bytes of the open letters with a correctable reason, by owner, as last measured.

    An owner is a publisher of the policy; without a policy it is a source and a login.
    """

    policy: Policy | None = None
    owner_bytes: int = field(default_factory=lambda: OWNER_BYTES)
    all_bytes: int = field(default_factory=lambda: ALL_BYTES)
    clock: Callable[[], float] = time.monotonic
    kept: Counter[str] = field(default_factory=Counter)
    measured_at: float = -math.inf

    def owner_of(self, identity: str, source: str, user: str) -> str:
        """Whose budget the letters of a sender use."""
        if self.policy is None:
            return f"{source} {user}"
        publisher = self.policy.publisher_of(identity)
        return publisher.name if publisher else STRANGERS

    def measure_if_due(self, connection: Connection) -> None:
        """Measure the letters in the database, unless that was done a short time ago."""
        full = self.kept.total() > ROOM * self.all_bytes or any(
            size > ROOM * self.owner_bytes for size in self.kept.values()
        )
        now = self.clock()
        if now < self.measured_at + (MEASURE_FULL_EVERY_S if full else MEASURE_EVERY_S):
            return
        self.measured_at = now
        self.kept = Counter()
        for source, user, identity, size in connection.execute(_KEPT):
            self.kept[self.owner_of(identity or "", source or "", user or "")] += int(size)

    def copy(self) -> LetterBudget:
        """One that a transaction may spend."""
        return replace(self, kept=Counter(self.kept))

    def spend(self, owner: str, size_bytes: int) -> bool:
        """Whether there is room for a letter, which is then used."""
        fits = (
            self.kept[owner] + size_bytes <= self.owner_bytes
            and self.kept.total() + size_bytes <= self.all_bytes
        )
        if fits:
            self.kept[owner] += size_bytes
        return fits

    def has_room_again(self, owner: str) -> bool:
        """Whether an owner that exceeded it may go on."""
        return (
            self.kept[owner] < ROOM * self.owner_bytes and self.kept.total() < ROOM * self.all_bytes
        )
