"""Limits on the dead letters that one sender may cause, and the summary of the others.

Within the limits of an hour each letter is stored in full. Beyond them, the letters of a sender and
an hour are counted in one more letter, their summary, which quotes the first of them. So a sender
that never sends anything valid can't fill the disk, and still every message is a row, a letter or
counted.

A wrong policy, class or clock refuses thousands of good results in minutes. Their letters can still
be loaded once the site has corrected something, so they do not count towards the hourly limits;
instead, the open ones have a budget in bytes. The letters of a publisher of the policy are always
stored.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED, UNSIGNED, Policy, PublisherRule
from sam_pipeline.schema.messages.message import USER_HEADERS, Message
from sam_pipeline.schema.messages.refused import BAD_SIGNATURE, SIGNATURE_EXPIRED
from sam_pipeline.schema.program.wording import printable
from sam_pipeline.schema.records.normalise import IN_THE_FUTURE, TOO_OLD
from sam_pipeline.schema.times import format_time
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

MOST_SENDERS = 100
"""Senders of one source that are counted by themselves, per hour: publishers can forge headers."""
OTHERS = "(others)"

MOST_SAMPLES = 20
SAMPLE_BYTES = 200
LONGEST_SAMPLE = 400
"""Characters of one line of a summary, after escaping."""
LONGEST_SENDER = 160

SUMMARY = "flood:"
"""How the message ids of summaries begin."""

_COUNTS = re.compile(r"\d+ not stored \(([^)]*)\)")


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


class Sender(NamedTuple):
    """Who sent a message, as far as that is known."""

    source: str
    user: str

    def __str__(self) -> str:
        name = f"{self.source} as {self.user}" if self.user else self.source
        return printable(name)[:LONGEST_SENDER]


def sender_of(message: Message, source: str) -> Sender:
    """The sender: the broker or spool, and the login that the broker names, if it does."""
    return Sender(source, next(filter(None, map(message.headers.get, USER_HEADERS)), ""))


@dataclass
class _Used:
    """The number and the bytes of the letters stored in an hour, by source and user."""

    hour: datetime = datetime.min
    by_source: dict[str, dict[str, list[int]]] = field(default_factory=dict)


@dataclass
class LetterQuota:
    """The limits, and what the committed transactions of this process have used of them.

    A publisher of the policy may have a limit of its own on the number of letters.
    """

    letters_per_hour: int
    bytes_per_hour: int
    budget: LetterBudget = field(default_factory=LetterBudget)
    used: _Used = field(default_factory=_Used)

    def begin(self, now: datetime, source_of: Callable[[Message], str]) -> Ration:
        """The ration of one transaction at `now`; `source_of` names the source of a message."""
        hour = now.replace(minute=0, second=0, microsecond=0)
        used = deepcopy(self.used) if self.used.hour == hour else _Used(hour)
        budget = replace(self.budget, kept=Counter(self.budget.kept))
        return Ration(self, source_of, used, budget)


@dataclass
class Ration:
    """What one transaction may store, and the summaries of what it may not."""

    quota: LetterQuota
    source_of: Callable[[Message], str]
    used: _Used
    budget: LetterBudget
    too_much: dict[str, str] = field(default_factory=dict)
    """Publishers of the policy whose budgets are exceeded, by source."""
    messages: set[int] = field(default_factory=set)
    """The id() of their messages that did not fit."""
    summaries: dict[Sender, FloodSummary] = field(default_factory=dict)

    def commit(self) -> None:
        """The transaction was committed; one that was rolled back has used nothing."""
        self.quota.used = self.used
        self.quota.budget = self.budget

    def admits(self, message: Message, reason: str, size_bytes: int) -> bool:
        """Whether the sender of a message may have one more letter of this size, which it uses."""
        if reason in CORRECTABLE:
            owner = self._owner(message)
            if self.budget.spend(owner, size_bytes):
                return True
            if self._publisher(message):
                self.too_much[self.source_of(message)] = owner
                self.messages.add(id(message))
                return True
        used = self._used_by(self._sender(message))
        publisher = self._publisher(message)
        limit = publisher and publisher.dead_letters_per_hour
        if (
            used[0] >= (limit or self.quota.letters_per_hour)
            or used[1] + size_bytes > self.quota.bytes_per_hour
        ):
            return False
        used[0] += 1
        used[1] += size_bytes
        return True

    def give_back(self, message: Message, reason: str, size_bytes: int) -> None:
        """The letter that was admitted had been stored before."""
        if reason in CORRECTABLE:
            self.budget.spend(self._owner(message), -size_bytes)
            return
        used = self._used_by(self._sender(message))
        used[0] -= 1
        used[1] -= size_bytes

    def summarise(self, message: Message, message_id: str, reason: str, body: bytes) -> None:
        """Count a letter that was not admitted."""
        sender = self._sender(message)
        if sender not in self.summaries:
            self.summaries[sender] = FloodSummary(sender, self.used.hour)
        self.summaries[sender].add(message_id, reason, body)

    def _sender(self, message: Message) -> Sender:
        """The sender, or all OTHERS if its source has too many in this hour.

        A publisher of the policy is one sender, whatever its logins; there are not too many.
        """
        sender = sender_of(message, self.source_of(message))
        publisher = self._publisher(message)
        if publisher is not None:
            self.used.by_source.setdefault(sender.source, {})
            return sender._replace(user=publisher.name)
        users = self.used.by_source.setdefault(sender.source, {})
        if sender.user not in users and len(users) >= MOST_SENDERS:
            return sender._replace(user=OTHERS)
        return sender

    def _owner(self, message: Message) -> str:
        sender = sender_of(message, self.source_of(message))
        return self.budget.owner_of(identity_of(message), *sender)

    def _publisher(self, message: Message) -> PublisherRule | None:
        policy = self.budget.policy
        return policy.publisher_of(identity_of(message)) if policy else None

    def _used_by(self, sender: Sender) -> list[int]:
        return self.used.by_source[sender.source].setdefault(sender.user, [0, 0])


@dataclass
class FloodSummary:
    """The letters of a sender and an hour that were not stored: counts by reason, and samples.

    Its text is the error of the letter, so a loader can add to it: it may change errors, but no
    bodies. The first line has the counts, each of the others one sample.
    """

    sender: Sender
    hour: datetime
    counts: Counter[str] = field(default_factory=Counter)
    samples: list[str] = field(default_factory=list)

    @property
    def message_id(self) -> str:
        """The message id of the letter: the same in all processes, however long the names."""
        digest = sha256("\0".join(self.sender).encode("utf-8", "replace")).hexdigest()
        return f"{SUMMARY}{format_time(self.hour)}:{digest[:16]}"

    def add(self, message_id: str, reason: str, body: bytes) -> None:
        """Count a letter, and quote it if it is one of the first."""
        self.counts[reason] += 1
        if len(self.samples) < MOST_SAMPLES:
            quoted = body[:SAMPLE_BYTES].decode("utf-8", "backslashreplace")
            self.samples.append(printable(f"{message_id} {reason}: {quoted}")[:LONGEST_SAMPLE])

    def add_stored(self, text: str) -> None:
        """Add the counts and samples of a stored summary of the same sender and hour."""
        first, *samples = text.split("\n")
        match = _COUNTS.match(first)
        for pair in match[1].split(", ") if match else ():
            reason, _, count = pair.rpartition(" ")
            self.counts[reason] += int(count)
        self.samples = [*samples, *self.samples][:MOST_SAMPLES]

    def __str__(self) -> str:
        counts = ", ".join(f"{reason} {count}" for reason, count in self.counts.most_common())
        line = f"{self.counts.total()} not stored ({counts}): {self.sender} exceeded a limit"
        return "\n".join([f"{line} of the hour {format_time(self.hour)}", *self.samples])
