"""The database as a sink: good records become rows, bad records become dead letters."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from sqlalchemy import Engine

from sam_pipeline.consumer.core.inbox import (
    DATABASE,
    Delivery,
    MessageOutcome,
    Outcome,
    UnloadedRecord,
    answering,
)
from sam_pipeline.consumer.core.recovery import Attempts
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SinkAway, SourcesFull, SourceTaken
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sinks.upkeep import LetterLog, ProbeWatch, make_tasks, run_due
from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.identity.policy import Policy, RateLimits, load_policy
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import did_you_mean
from sam_pipeline.schema.records import reasons
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.sql.checks.check import loader_problems
from sam_pipeline.sql.database.config import database_url, note_on_plain_text
from sam_pipeline.sql.database.engine import clock_offset, make_engine, name_of, reading, writing
from sam_pipeline.sql.database.locks import LockHolder, LockSession
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.database.version import follow_schema, require_compatible
from sam_pipeline.sql.errors import DatabaseAway, DatabaseRefused, SchemaMismatch, SqlError
from sam_pipeline.sql.loading.authorise import Authority, RecentRecords
from sam_pipeline.sql.loading.batch import CLASS_BROKEN, REASONS
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.letters.dead_letter import open_by_reason
from sam_pipeline.sql.loading.letters.quota import LetterBudget, LetterQuota, LettersFull
from sam_pipeline.sql.loading.load import Audit, Loader, Loading

WATCH_EVERY_S = 30.0
"""How often to count the open dead letters, and to check that the name is still held."""
AWAY_EVERY_S = 2.0
"""How often to look whether a database that is away has come back."""

COUNT_EVERY_S = 1.0
COUNT_SHARE = 0.02
"""New dead letters are counted sooner: after this time, in at most this share of the time."""

_NONE_OPEN = dict.fromkeys(REASONS | reasons.REASONS, 0)

MAX_APPLICATION = 63
"""PostgreSQL cuts an application_name there (bytes; it replaces other characters than ASCII)."""

POLL_S = 0.1
GRACE_S = 2.0
"""How long an ended process may seem to hold the name, until the server has ended its session."""

logger = logging.getLogger(__name__)


class DatabaseSinks:
    """Makes the sinks of a process, one for each configuration.

    They remember the records that were accepted lately, by which a new policy is tried.
    """

    def __init__(self) -> None:
        self._recent = RecentRecords()

    @contextmanager
    def opened(
        self,
        url: str,
        config: ConsumerConfig,
        policy: Policy | None,
        policy_read: Mapping[str, str],
        name: str,
        state: State,
        attempts: Attempts,
    ) -> Iterator[DatabaseSink]:
        """The database, where the name of the consumer is released at the end."""
        engine = make_engine(url)
        loader = Loader(
            engine,
            Catalogue(engine),
            config.limits(),
            Authority(policy, timedelta(days=config.signature_age_days)) if policy else None,
            LetterQuota(
                config.dead_letters_per_hour,
                config.dead_letter_bytes_per_hour,
                LetterBudget(policy),
            ),
            self._recent,
        )
        subscriptions = config.network_subscriptions
        shared = all(subscription.shared for subscription in subscriptions)
        held = HeldName(engine, config.name, shared) if config.network_brokers else None
        with closing(DatabaseSink(loader, name, state, attempts, held, policy_read)) as sink:
            yield sink

    def objections(self, url: str, policy: Policy, file: Path | None) -> Iterator[str]:
        """Why the policy should not be used yet, judged by the records accepted lately."""
        engine = make_engine(url)
        try:
            if objection := self._recent.objection(policy, engine):
                yield f"{file}: {objection}"
        except SqlError as error:
            logger.warning("the policy was not tried on the records accepted lately: %s", error)
        finally:
            engine.dispose()


class DatabaseSink:
    """The views of one database; `consumer` is the name in the audit.

    Unless `held` is None, it is the name to hold in the database while loading. `policy_read` is
    what the log of operations has yet to get of a policy that was read again.
    """

    def __init__(
        self,
        loader: Loader,
        consumer: str,
        state: State,
        attempts: Attempts,
        held: HeldName | None = None,
        policy_read: Mapping[str, str] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loader = loader
        self._engine = loader.engine
        follow_schema(loader.engine)
        self._consumer = consumer
        self._state = state
        self._attempts = attempts
        self._held = held
        self._policy_read = policy_read
        self._clock = clock
        self._rates = RateLimits()
        self._host = socket.gethostname()
        self._letter_log = LetterLog(clock)
        watch = ProbeWatch(loader.engine, state)
        self._tasks = make_tasks(loader, state.now, self._letter_log.class_works, watch.turn)
        self._full: dict[str, str] = {}
        """The sources that are left alone, with the publishers whose budgets they exceeded."""
        self._watch_at = self._count_at = clock()
        """When to watch next, and from when on the open letters may be counted again."""

    def prepare(self) -> None:
        try:
            schema = require_compatible(self._engine)
            self._state.schema = schema.version
            if not schema.is_wanted:
                logger.info("%s: %s", name_of(self._engine), schema)
            if self._held is not None:
                self._held.hold()
            self._compare_clocks()
            if self._policy_read:
                with writing(self._engine) as connection:
                    record_operation(connection, "policy read", self._policy_read)
                self._policy_read = {}
        except DatabaseAway as error:
            raise self._away(error) from error

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        brokers = [delivery.session.broker for delivery in batch]
        loading = Loading(
            self._loader,
            [delivery.message for delivery in batch],
            self._state.now(),
            Audit(self._consumer, self._host, os.getpid(), brokers),
            self._attempts.poison(batch),
            answering(batch),
        )
        outcome, records, broken = Outcome(), Counter[str](), set[str]()
        try:
            while loading.is_pending:
                with self._attempts.decoding(batch):  # a crash is attributed to the batch
                    decoded = loading.decode()
                for commit in loading.store(decoded):
                    self._state.turned()
                    outcome.counts += commit.counts
                    for at, report in commit.reports.items():
                        failed = tuple(
                            UnloadedRecord(failure.number or None, failure.reason, failure.text)
                            for failure in report.failures
                        )
                        outcome.answers[at] = MessageOutcome(
                            DATABASE, report.rows, report.duplicates, failed
                        )
                    records.update(commit.records)
                    if commit.letters:
                        self._letter_log.add(commit.letters)
                        self._watch_at = min(self._watch_at, self._count_at)
                        broken.update(
                            folded(letter.message_class)
                            for letter in commit.letters
                            if letter.reason == CLASS_BROKEN
                        )
        except LettersFull as error:
            self._full |= error.owners
            raise SourcesFull(error, error.owners, error.messages) from error
        except DatabaseAway as error:
            raise self._away(error) from error
        for name in outcome.counts.rows_by_class:
            if folded(name) not in broken:
                self._letter_log.class_works(name)
        outcome.pauses = self._pauses(batch, records)
        return outcome

    def upkeep(self, news: bool) -> None:
        self._letter_log.write_due()
        began = self._clock()
        if began >= self._watch_at:
            # Without messages, this also shows whether the database is away, or was upgraded.
            every_s = WATCH_EVERY_S
            try:
                self._state.schema = require_compatible(self._engine).version
                if self._held is not None:
                    self._held.hold()
                self._state.open_dead_letters = _NONE_OPEN | open_by_reason(self._engine)
                if self._full and (quota := self._loader.quota):
                    with reading(self._engine) as connection:
                        quota.budget.measure_if_due(connection)
                    for source, owner in list(self._full.items()):
                        if quota.budget.has_room_again(owner):
                            del self._full[source]
                            self._state.full_sources.pop(source, None)
                            text = "broker %s is read again: there is room for dead letters of %s"
                            logger.info(text, source, owner)
                self._compare_clocks()
                self._state.can_commit()
            except DatabaseAway as error:
                every_s = AWAY_EVERY_S
                self._state.cannot_commit(str(error))
            except SchemaMismatch:
                raise
            except SqlError as error:
                logger.warning("the open dead letters could not be counted: %s", error)
            now = self._clock()
            self._watch_at = now + every_s
            self._count_at = now + max(COUNT_EVERY_S, (now - began) / COUNT_SHARE)
        run_due(self._tasks, news)

    def finish(self) -> None:
        for task in self._tasks:
            task.wait()  # otherwise nobody else could fold
        with suppress(SqlError):  # otherwise the next loader or report does it
            fold_all(self._engine)

    def close(self) -> None:
        """Log the letters that are not logged yet, and let others have the name."""
        self._letter_log.write_due(everything=True)
        if self._held is not None:
            self._held.close()

    def _pauses(self, batch: Sequence[Delivery], records: Mapping[str, int]) -> dict[str, float]:
        """For how many seconds to read no more, by broker, or by identity of who gets answers."""
        pauses: dict[str, float] = {}
        authority = self._loader.authority
        if authority is None or not authority.policy.enforces:
            return pauses
        now = self._clock()
        for identity, count in records.items():
            publisher = authority.policy.publisher_of(identity)
            pause_s = self._rates.spend(publisher, count, now) if publisher else 0.0
            for delivery in batch if pause_s else ():
                if identity_of(delivery.message) == identity:
                    session = delivery.session
                    paused = identity if session.answers else session.broker
                    pauses[paused] = max(pauses.get(paused, 0.0), pause_s)
        return pauses

    def _compare_clocks(self) -> None:
        """Measure how far our clock is off, by which no time of a result is judged then."""
        before = self._state.correction
        self._state.clock_offset = clock_offset(self._engine, self._state.clock)
        correction = self._state.correction
        if correction and not before:
            logger.error(
                "the clock of this host differs by %.0f s from that of %s, which is used instead",
                correction.total_seconds(),
                name_of(self._engine),
            )
        elif before and not correction:
            logger.info("the clock of this host agrees with that of the database again")

    def _away(self, error: DatabaseAway) -> SinkAway:
        self._watch_at = self._clock()  # the name may be lost: check once the database is back
        return SinkAway(error, needs_action=isinstance(error, DatabaseRefused))


def database_findings(
    args: argparse.Namespace, config: ConsumerConfig | None
) -> Iterator[tuple[bool, str]]:
    """What `check` reports of the database, or with --files of its URL: whether it is a problem."""
    try:
        url = database_url(args)
        if note := note_on_plain_text(url):
            yield False, note
        if not args.files:
            yield from ((True, problem) for problem in _problems(make_engine(url), config))
    except ConfigError as error:
        yield from ((True, problem) for problem in error.problems)
    except SamError as error:
        yield True, str(error)


def _problems(engine: Engine, config: ConsumerConfig | None) -> Iterator[str]:
    """Why some messages could not be loaded."""
    require_compatible(engine)
    problems = [problem.text for problem in loader_problems(engine)]
    yield from problems
    catalogue = Catalogue(engine)
    for subscription in config.subscription if config else ():
        name = subscription.message_class
        view = catalogue.find(name) if name else None
        if name and view is None:
            place = f"[consumer] subscription {subscription.destination}"
            yield f"{place}: class {name}: no such view (see `sam-db class list`)"
        elif view and view.problem:
            problem = f"class {view.name}: {view.problem}"
            if problem not in "\n".join(problems):  # reported with the name of the database
                yield problem
    if config and config.policy_file:
        with suppress(ConfigError):  # reported as a problem of the policy
            names = load_policy(config.policy_file).class_names
            known = catalogue.names()
            for name in sorted(names):
                if folded(name) not in map(folded, known):
                    hint = did_you_mean(name, known) or "see `sam-db class list`"
                    yield f"{config.policy_file}: class {name}: no such view ({hint})"


class HeldName:
    """The name of the consumer, which this process holds while it loads into the database.

    `name_locked` covers one host. ActiveMQ refuses a name that is in use, but Artemis and RabbitMQ
    would silently share the messages between two hosts. Processes for which the name is `shared`
    hold it together. SQLite is used by one host only.
    """

    def __init__(
        self, engine: Engine, name: str, shared: bool, host: str = socket.gethostname()
    ) -> None:
        self._engine = engine
        self._name = name
        self._shared = shared
        # PostgreSQL cuts an application_name that is too long: cut the name of the consumer.
        start, end = f"sam-consume {name}", f"@{host} {os.getpid()}"
        self._application = (start[: max(0, MAX_APPLICATION - len(end))] + end)[-MAX_APPLICATION:]
        self._session: LockSession | None = None
        self._reported = ""

    def hold(self) -> None:
        """Take the name, or make sure that it is still held, with a new connection if necessary.

        Raises:
            SourceTaken: another process holds it.
            DatabaseAway: unknown; the next call connects again.
        """
        if self._engine.dialect.name == "sqlite":
            return
        lock = f"sam consumer {self._name}"
        try:
            if self._session is not None and not self._session.is_usable():
                self.close()
            if self._session is None:
                self._session = LockSession(self._engine, self._application)
            grace = Deadline.after(GRACE_S)
            while not self._session.try_lock(lock, self._shared):
                others = self._session.others(lock, self._shared)
                loaders = [other for other in others if other.may_load]
                if not loaders or grace.expired:
                    for holder in loaders:
                        # After a network failure, the server needs up to a minute to drop an
                        # earlier connection of this process.
                        if holder.application != self._application:
                            raise SourceTaken(
                                f"another sam-consume named {self._name!r} uses this database"
                                f" ({_described(holder)}): stop it, or configure another name"
                            )
                    text = "" if loaders else ", ".join(map(_described, others))
                    if text and text != self._reported:
                        logger.warning(
                            "continuing, but the name %s can't be held in the database: a login"
                            " that may not load holds its lock (%s)",
                            self._name,
                            text,
                        )
                        self._reported = text
                    return
                time.sleep(POLL_S)
        except DatabaseAway:
            self.close()
            raise
        self._reported = ""

    def close(self) -> None:
        """Let others have the name."""
        if self._session is not None:
            self._session.close()
            self._session = None


def _described(holder: LockHolder) -> str:
    parts = (holder.application, holder.address, holder.login and f"login {holder.login}")
    return ", ".join(filter(None, parts)) or f"process {holder.process} of the server"
