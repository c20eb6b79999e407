"""Asks the policy about each decoded record, with the sites of its host from the topology."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from sqlalchemy import Connection, Engine, bindparam, text

from sam_pipeline.schema.identity.identity import OPERATOR, key_identity
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED, UNSIGNED, Policy, refusal
from sam_pipeline.schema.identity.signature import arrived
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import DOWNTIME, METRIC_OUTPUT
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.batch import (
    Batch,
    PendingRow,
    RecordFailure,
    ViewBatch,
    whole_message,
)
from sam_pipeline.sql.loading.catalogue import SOURCE, ClassView

MAX_AGE_S = 60.0
"""How long the topology, and decisions by it, are remembered."""
MAX_DECISIONS = 100_000
LONGEST_QUESTION = 2000
"""The characters of a question that is remembered: senders may invent names of any length."""
LONGEST_HOST = 255

_DAY = slice(len("2026-11-20"))
LAST_DAY = date.max.isoformat()

_PERIODS = {
    "starttime": ("endtime", ""),
    "validfrom": ("validto", LAST_DAY),
    "timestamp": ("", ""),
}
"""By the column where the period of a record begins: the one where it ends, and the default end."""

_NAME_PUBLISHERS = text("""
    SELECT name_publishers(CAST(:identities AS text[]), CAST(:names AS text[]))
""")
_NAME_PUBLISHER = text("""
    INSERT INTO publisher (identity, name) VALUES (:identity, :name)
    ON CONFLICT (identity) DO UPDATE SET name = excluded.name WHERE name <> excluded.name
""")
_SITES = text("""
    SELECT DISTINCT host_name, site, valid_from_s, valid_to_s FROM report_topology
    WHERE host_name IN :hosts
""").bindparams(bindparam("hosts", expanding=True))


class Question(NamedTuple):
    """The facts that decide about a record; records with the same facts have the same answer.

    The days are those of its period as YYYY-MM-DD. The last one of a moment is "", and so are both
    of a record without times.
    """

    identity: str
    message_class: str
    host: str
    site: str
    monitoring_host: str
    first_day: str
    last_day: str


class _Answer(NamedTuple):
    """Why a record is refused, and the publisher that it counts for."""

    publisher: str
    reason: str
    text: str


_ALLOWED = _Answer("", "", "")

PERIOD_S = 1800.0
"""The present period and the one before are remembered."""
MOST_QUESTIONS = 10_000
"""Different questions of a period."""
MOST_REFUSED = 0.1
"""The share of them that a new policy may refuse."""
OF_A_CLASS = 50
"""About how many records of a class are remembered from a batch; each stands for several others."""


class HostMembership(NamedTuple):
    """A site, and the days on which a host belongs to it, as YYYY-MM-DD."""

    site: str
    first_day: str
    last_day: str

    @classmethod
    def during(cls, site: str, start_s: int, end_s: int | None) -> HostMembership:
        """The membership in [start, end)."""
        first = _day_of(start_s)
        # An endpoint that was announced by mistake ends as it begins; it belongs to that day.
        return cls(site, first, LAST_DAY if end_s is None else max(_day_of(end_s - 1), first))

    def overlaps(self, first_day: str, last_day: str) -> bool:
        """Whether it has one of these days."""
        return self.first_day <= last_day and first_day <= self.last_day


class Authority:
    """Applies a policy; used for one batch at a time."""

    def __init__(
        self,
        policy: Policy,
        signature_age: timedelta = timedelta(days=30),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self._signature_age = signature_age
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Forget the topology: it has changed, or may have."""
        self._memberships: dict[str, list[HostMembership]] = {}
        self._answers: dict[tuple[str, ...], _Answer] = {}
        self._named: set[str] = set()
        self._forget_at = self._clock() + MAX_AGE_S

    def new_names(self, identities: Iterable[str]) -> dict[str, str]:
        """The publishers' names of those identities for which they were not asked lately."""
        new = set(identities) - self._named
        self._named |= new
        publishers = {identity: self.policy.publisher_of(identity) for identity in new}
        return {identity: rule.name for identity, rule in publishers.items() if rule}

    def judge(
        self,
        batch: Batch,
        now: datetime,
        connected: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        """Count what the policy refuses in `refusals`, and if it enforces, make it failures."""
        if self._clock() >= self._forget_at or len(self._answers) > MAX_DECISIONS:
            self.forget()
        questions = {
            name: questions_about(part.view, part.rows) for name, part in batch.by_view.items()
        }
        answers = {name: [*map(self._answers.get, own)] for name, own in questions.items()}
        if any(None in own for own in answers.values()):
            new = set(chain.from_iterable(questions.values())) - self._answers.keys()
            self.answer([Question(*question) for question in new], now.date(), connected)
            answers = {name: [*map(self._answers.get, own)] for name, own in questions.items()}
            for question in new:
                if sum(map(len, question)) > LONGEST_QUESTION:
                    del self._answers[question]
        for name, part in batch.by_view.items():
            batch.records.update(map(itemgetter(0), questions[name]))
            if answers[name].count(_ALLOWED) < len(part.rows):
                _refuse(batch, part, answers[name], self.policy.enforces)
            if part.view.known is DOWNTIME:
                # It was announced at its timestamp, if its publisher may say so.
                columns = [name for name in part.view.statement_columns if name != SOURCE]
                for at, (*_, identity, row) in enumerate(part.rows):
                    publisher = self.policy.publisher_of(identity)
                    said_at = row.values.get("timestamp")
                    if columns and said_at and publisher and publisher.backdates:
                        values = {**row.values, columns[0]: said_at}
                        part.rows[at] = part.rows[at]._replace(row=row._replace(values=values))

    def verified(self, message: Message, received_at: datetime) -> Message:
        """A message that a source refused for its signature, verified by the present policy."""
        return arrived(message, self.policy, received_at, self._signature_age).message

    def answer(
        self,
        questions: Collection[Question],
        today: date,
        connected: Callable[[], AbstractContextManager[Connection]],
    ) -> dict[Question, str]:
        """Answer these questions, and remember the answers; returns why records are refused."""
        names = {question.host.lower() for question in questions} - self._memberships.keys()
        if hosts := {name for name in names if 0 < len(name) <= LONGEST_HOST}:
            with connected() as connection:
                self._memberships.update((host, []) for host in hosts)
                for host, site, start_s, end_s in connection.execute(
                    _SITES, {"hosts": sorted(hosts)}
                ):
                    self._memberships[host].append(HostMembership.during(site, start_s, end_s))
        answers = {question: self._answer(question, today) for question in questions}
        for question, answer in answers.items():
            self._answers[question] = answer
        return {question: one.text for question, one in answers.items() if one is not _ALLOWED}

    def _answer(self, question: Question, today: date) -> _Answer:
        identity = question.identity
        if identity.startswith(f"{OPERATOR}:"):  # the roles of the database have decided that
            return _ALLOWED
        publisher = self.policy.publisher_of(identity)
        name = publisher.name if publisher else identity
        sender = f"{identity} (publisher {name})" if publisher else identity
        is_signed = publisher and identity in map(key_identity, publisher.key_names)
        if publisher and publisher.signed and not is_signed:
            return _Answer(name, UNSIGNED, f"{sender}: signed: the message has no signature")
        first, last = question.first_day or today.isoformat(), question.last_day
        sites = {
            membership.site
            for membership in self._memberships.get(question.host.lower(), ())
            if membership.overlaps(first, last or first)
        }
        row = {
            "hostName": question.host,
            "siteName": question.site,
            "monitoringHost": question.monitoring_host,
        }
        why = refusal(publisher, question.message_class, row, sites, today)
        return _Answer(name, NOT_AUTHORISED, f"{sender}: {why}") if why else _ALLOWED


def name_publishers(connection: Connection, names: Mapping[str, str]) -> None:
    """Store the names that the policy has for these identities."""
    items = sorted(names.items())
    if not items:
        return
    if connection.dialect.name == "postgresql":
        identities, policy_names = map(list, zip(*items, strict=True))
        values = {"identities": identities, "names": policy_names}
        connection.execute(_NAME_PUBLISHERS, values)
    else:
        rows = [{"identity": identity, "name": name} for identity, name in items]
        connection.execute(_NAME_PUBLISHER, rows)


class RecentRecords:
    """A sample of the records of the last hour, on which a new policy is tried before it is used.

    The main loop adds to it; the thread that reads the files again asks it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._periods: tuple[Counter[Question], Counter[Question]] = Counter(), Counter()

    def add(self, batch: Batch) -> None:
        """Remember some of the records that are to be stored."""
        with self._lock:
            if (passed_s := time.monotonic() - self._began) >= PERIOD_S:
                before = self._periods[1] if passed_s < 2 * PERIOD_S else Counter[Question]()
                self._periods, self._began = (before, Counter()), time.monotonic()
            present = self._periods[1]
            for part in batch.by_view.values():
                step = len(part.rows) // OF_A_CLASS + 1
                for question in questions_about(part.view, part.rows[::step]):
                    if question in present or len(present) < MOST_QUESTIONS:
                        present[Question(*question)] += step

    def objection(self, policy: Policy, engine: Engine) -> str:
        """Why the policy should not be used yet; empty if it refuses few of them.

        Raises:
            SqlError: the topology, which the policy needs, can't be read.
        """
        if policy.accept_refusals or not policy.enforces:
            return ""
        with self._lock:
            records = self._periods[0] + self._periods[1]
        why = Authority(policy).answer(records, datetime.now(UTC).date(), partial(reading, engine))
        share = sum(records[question] for question in why) / max(records.total(), 1)
        if share <= MOST_REFUSED:
            return ""
        return (
            f"it would refuse {share:.0%} of the records that were accepted in the last hour, such"
            f' as {next(iter(why.values()))}: correct it, or use mode = "observe" or'
            " accept_refusals = true"
        )


def questions_about(view: ClassView, rows: Iterable[PendingRow]) -> list[tuple[str, ...]]:
    """The Question about each row, as a plain tuple: there is one for every record."""
    class_name = view.class_name
    column_of = {column.lower(): column for column in view.columns}
    host, site, monitoring_host = (
        column_of.get(key, "") for key in ("hostname", "sitename", "monitoringhost")
    )
    if view.known is METRIC_OUTPUT:
        site = ""  # the site that a result names is not trusted
    start_key = next((key for key in _PERIODS if key in column_of), "")
    end_key, if_open = _PERIODS.get(start_key, ("", ""))
    start, end = column_of.get(start_key, ""), column_of.get(end_key, "")
    return [
        (
            publisher,
            class_name,
            values.get(host, ""),  # no row has a column ""
            values.get(site, ""),
            values.get(monitoring_host, ""),
            values.get(start, "")[_DAY],
            values.get(end, if_open)[_DAY],
        )
        for _, _, publisher, (_, _, values) in rows
    ]


def _refuse(
    batch: Batch, part: ViewBatch, answers: Iterable[_Answer | None], enforces: bool
) -> None:
    """Count the refused records of one class, and if the policy enforces, make them failures."""
    records: dict[tuple[int, int], tuple[PendingRow, _Answer]] = {}
    for pending, answer in zip(part.rows, answers, strict=True):
        if answer is not None and answer is not _ALLOWED:
            # The rows of a record, one for each of its flavours, have the same answer.
            records[id(pending.message), pending.row.number] = (pending, answer)
    batch.counts.refusals.update(
        (answer.publisher, answer.reason) for _, answer in records.values()
    )
    if not enforces:
        batch.observed.update(pending.publisher for pending, _ in records.values())
        return
    unsigned = {}
    for pending, answer in records.values():
        message, row = pending.message, pending.row
        if answer.reason == UNSIGNED:  # which is a property of the message
            unsigned[id(message)] = whole_message(message, UNSIGNED, answer.text)
        else:
            failure = RecordFailure(message, row.number, answer.reason, answer.text, row.raw)
            part.failures.append(failure)
    part.rows = [row for row in part.rows if (id(row.message), row.row.number) not in records]
    if unsigned:
        batch.failures += unsigned.values()
        part.messages = [item for item in part.messages if id(item) not in unsigned]
        part.failures = [item for item in part.failures if id(item.message) not in unsigned]


def _day_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
