"""Work between two batches: partitions, parked messages, statuses, and the log of dead letters."""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Engine

from sam_pipeline.consumer.core.silence import PROBE, Coverage, ProbeSilences, Silence
from sam_pipeline.consumer.core.state import State
from sam_pipeline.schema.identity.identity import sender_name
from sam_pipeline.schema.program.wording import one_line, plural
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.sql.database.partitions import days_until
from sam_pipeline.sql.errors import SqlError
from sam_pipeline.sql.loading.batch import CLASS_BROKEN
from sam_pipeline.sql.loading.fold import fold, is_folded, newest_unfolded, survey
from sam_pipeline.sql.loading.letters.store import NewLetter
from sam_pipeline.sql.loading.load import Loader
from sam_pipeline.sql.loading.replay import replay_parked

EVERY_S = 1.0
"""How often to fold while there is time for it, which bounds the age of current_status."""
PARKED_EVERY_S = 10.0
"""How often to retry parked messages whose class does not work yet."""
COMING_EVERY_S = 600.0
"""How often to look for coming days that need partitions."""
A_DAY, COMING = timedelta(days=1), timedelta(days=3)
"""How far ahead partitions are created: at least, and at most."""
SHARE = 0.1
"""The share of time that each task may take from loading."""
WATCH_SHARE = 0.03
"""The share that the search for silent probes may take: it reads all statuses."""
IDLE_TURNS = 2
"""Turns without work after which a task rests; in one turn another loader may be doing the work."""

LINE_EVERY_S = 60.0
"""The time between two lines about one reason, or two errors about one class."""
LONGEST_NAME = 80
"""Characters of a class name, which senders choose."""
LONGEST_ERROR = 200

logger = logging.getLogger(__name__)


class TurnResult(enum.Enum):
    """The result of one turn of a periodic task."""

    DONE = "some work was done, and there may be more"
    WAITING = "there is work that can't be done yet"
    NOTHING = "nothing to do until something is loaded"


@dataclass
class PeriodicTask:
    """A task whose `turn` does a little work, called every `every_s` while there is any.

    `in_background`: in a thread of its own, while loading goes on.
    """

    turn: Callable[[], TurnResult]
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.monotonic
    in_background: bool = False
    share: float = SHARE
    _thread: threading.Thread | None = field(default=None, init=False)
    _next: float = field(default=-math.inf, init=False)
    _idle_turns: int = field(default=0, init=False)

    def run(self, news: bool) -> bool:
        """Take a turn if one is due; whether work was done. `news`: there may be new work."""
        if news:
            self._idle_turns = 0
        is_running = self._thread is not None and self._thread.is_alive()
        if is_running or self.clock() < self._next or self._idle_turns == IDLE_TURNS:
            return False
        if not self.in_background:
            return self._take_turn()
        self._thread = threading.Thread(target=self._take_turn, name="upkeep", daemon=True)
        self._thread.start()
        return False

    def wait(self) -> None:
        """Wait for the end of a turn in the background."""
        if self._thread is not None:
            self._thread.join()

    def _take_turn(self) -> bool:
        began = self.clock()
        try:
            result = self.turn()
        except SqlError as error:  # the next batch gets the same error, and waits
            logger.debug("postponed: %s", error)
            result = TurnResult.WAITING
        self._idle_turns = self._idle_turns + 1 if result is TurnResult.NOTHING else 0
        done = result is TurnResult.DONE
        ended = self.clock()
        wait_s = EVERY_S if done else self.every_s
        self._next = ended + max(wait_s, (ended - began) / self.share)
        return done


def run_due(tasks: Sequence[PeriodicTask], news: bool) -> None:
    """Run the tasks that are due; to be called after each batch, and regularly without one.

    The first turns do the work that an earlier process left. A task without work does not query the
    database until there is news.
    """
    for task in tasks:
        news = task.run(news) or news


def make_tasks(
    loader: Loader,
    clock: Callable[[], datetime],
    class_works: Callable[[str], None],
    watch: Callable[[], TurnResult] | None = None,
) -> list[PeriodicTask]:
    """The tasks of every process that loads into this database.

    `class_works` is called with the name of a class of which parked messages were loaded. `watch`
    looks for silent probes.
    """
    replayed, engine, limits = 0, loader.engine, loader.limits

    def create_coming() -> TurnResult:
        """Create the partitions of today and the coming days."""
        now = clock()
        loader.catalogue.partitions.make(
            days_until(now, now + min(COMING, max(limits.future, A_DAY)))
        )
        return TurnResult.WAITING  # for another day to come

    def replay() -> TurnResult:
        """Load messages that were parked as class-broken, once their view works."""
        nonlocal replayed
        parked = replay_parked(engine, clock, limits, loader.authority)
        if parked.loaded:
            class_works(parked.message_class)
            if not replayed:
                logger.info("replaying messages of a class that was broken")
            replayed += parked.loaded
            return TurnResult.DONE
        if replayed:
            logger.info("replayed %d messages of classes that were broken", replayed)
            replayed = 0
        return TurnResult.WAITING if parked.any else TurnResult.NOTHING

    folding = PeriodicTask(
        lambda: TurnResult.DONE if fold(engine) else TurnResult.NOTHING,
        in_background=engine.dialect.name == "postgresql",  # SQLite has a single writer
    )
    tasks = [
        PeriodicTask(create_coming, COMING_EVERY_S),
        PeriodicTask(replay, PARKED_EVERY_S),
        folding,
    ]
    if watch:
        tasks.append(PeriodicTask(watch, in_background=True, share=WATCH_SHARE))
    return tasks


class ProbeWatch:
    """Looks for probes that have stopped reporting, by the coverage of the daemon.

    What had arrived when the coverage was noted must be folded first: until then its results are
    missing in the statuses.
    """

    def __init__(self, engine: Engine, state: State) -> None:
        self._engine = engine
        self._state = state
        self._noted: tuple[Coverage, int] | None = None

    def turn(self) -> TurnResult:
        """Note the coverage, or judge by the one noted; raises DatabaseAway."""
        coverage = self._state.coverage
        if self._noted is None and coverage is not None:
            self._noted = coverage, newest_unfolded(self._engine)
        if self._noted is None or not is_folded(self._engine, self._noted[1]):
            return TurnResult.WAITING
        noted, self._noted = self._noted[0], None
        found = survey(self._engine, noted.until, noted.seconds_since_gaps())
        silences = []
        for probe in found.probes:
            flavour, host, metric, vo = probe.name
            name = f"{host} {flavour} {metric}" + (f" (VO {vo})" if vo else "")
            silences.append(Silence(PROBE, name, probe.last, probe.limit_s))
        self._state.probe_silences = ProbeSilences(found.silent, silences, found.sites)
        return TurnResult.WAITING


@dataclass
class _Letters:
    """The dead letters of a reason that were not logged yet."""

    due_at: float
    first: NewLetter | None = None
    count: int = 0
    are_alike: bool = True
    """Whether all have the class and the sender of the first one."""


@dataclass
class _Outage:
    """A class that is broken, or was."""

    name: str
    due_at: float
    error: str = ""
    """Empty while the class works."""
    began: float = 0.0
    parked: int = 0
    is_logged: bool = False


class LetterLog:
    """Logs the first dead letters of a reason at once, then the number of others once a minute.

    Senders may cause thousands of them a second.

    An outage of a class is logged when it begins and when it ends. If another one begins within a
    minute, it is logged when the minute is over, unless it has ended.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_reason: dict[str, _Letters] = {}
        self._outages: dict[str, _Outage] = {}
        """By folded name of the class."""

    def add(self, letters: Sequence[NewLetter]) -> None:
        """These letters were committed."""
        now = self._clock()
        for letter in letters:
            if letter.reason == CLASS_BROKEN:
                name = letter.message_class[:LONGEST_NAME]
                outage = self._outages.setdefault(folded(name), _Outage(name, now))
                if not outage.error:
                    outage.began, outage.parked = now, 0
                outage.error = letter.error
                outage.parked += 1
                continue
            waiting = self._by_reason.setdefault(letter.reason, _Letters(now))
            first = waiting.first = waiting.first or letter
            waiting.count += 1
            if letter.group != first.group:
                waiting.are_alike = False
        self.write_due()

    def class_works(self, name: str) -> None:
        """Messages of the class were loaded."""
        outage = self._outages.get(folded(name))
        if outage is None or not outage.error:
            return
        if outage.is_logged:
            logger.info(
                "class %s works again after %.0f s; %s of it, stored as dead letters meanwhile,"
                " will be loaded without further action",
                outage.name,
                self._clock() - outage.began,
                plural(outage.parked, "message"),
                extra={"message_class": outage.name},
            )
        outage.error, outage.is_logged = "", False

    def write_due(self, everything: bool = False) -> None:
        """Log the lines that are due, or at the end of the process all that remain."""
        now = self._clock()
        for reason, waiting in self._by_reason.items():
            if waiting.first and (everything or now >= waiting.due_at):
                _warn(reason, waiting.first, waiting.count, waiting.are_alike)
                self._by_reason[reason] = _Letters(now + LINE_EVERY_S)
        for outage in self._outages.values():
            if outage.error and not outage.is_logged and (everything or now >= outage.due_at):
                logger.error(
                    "class %s is broken: %s; its messages become dead letters (%s), which are"
                    " loaded once it works again: repair its view, trigger or grants (see"
                    " `sam-db check` and `sam-db class list`)",
                    outage.name,
                    outage.error,
                    CLASS_BROKEN,
                    extra={"message_class": outage.name},
                )
                outage.is_logged, outage.due_at = True, now + LINE_EVERY_S


def _warn(reason: str, first: NewLetter, count: int, are_alike: bool) -> None:
    name = one_line(first.message_class, LONGEST_NAME)
    sender = one_line(sender_name(first.identity, first.origin), LONGEST_ERROR)
    sender = f" from {sender}" if sender else ""
    if first.sender.source:
        sender += f" {'via' if sender else 'from'} {first.sender}"
    logger.warning(
        "%s, %s: %s%s%s, first message id %s (%s); see `sam-consume dead-letter list --reason %s`",
        plural(count, "new dead letter"),
        reason,
        f"class {name}" if name else "no class",
        sender,
        "" if are_alike else " and others",
        first.message_id,
        one_line(first.error, LONGEST_ERROR),
        reason,
        extra={
            "broker": first.sender.source,
            "message_id": first.message_id,
            "message_class": first.message_class,
            "login": first.sender.user,
            "publisher": first.identity,
            "claimed_host": first.origin.host,
            "claimed_program": first.origin.program,
            "claimed_user": first.origin.user,
        },
    )
