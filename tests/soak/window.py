"""One window: minutes of load with events, then silence, in which its records are accounted for.

The results of a window have a day of their own. They are read at the end of their window and again
at the end of the next one, so that a late copy cannot hide, and are then forgotten here and pruned
there: neither our memory nor the database grows with the number of messages.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice

from sam_pipeline.sql.loading.letters.dead_letter import StoredBody, original_body
from tests.soak.crowd import Crowd
from tests.soak.events import Event, cause
from tests.soak.posters import Poster
from tests.soak.records import CLASSES, WRONG_DETAILS, keys_in, midnight_of
from tests.soak.senders import Ledger, Senders, sending
from tests.soak.stage import Stage
from tests.support.brokers.subscriber import backlog
from tests.support.conservation import Account, account, grow_old
from tests.support.consumer.door import COMMITTED, KEPT

FIRST_DAY = 3000
"""Days ago; the consumer accepts results of the last ten years."""
LAST = 5
"""Records that are sent to the brokers, and into the spool, when the consumers have ended."""
SETTLE_S = 300.0
"""The time in which all records of a window become rows or dead letters after its load."""
QUIET_S = 5.0
SLOWER = 3.0
"""The pauses between the messages of HTTP clients, relative to a test without any other load."""

_LAST_BATCH = "SELECT coalesce(max(batch_id), 0) FROM loaded_batch"
_REDELIVERED = "SELECT coalesce(sum(duplicates), 0) FROM loaded_batch WHERE batch_id > :batch"
_LETTERS = (
    "SELECT body, body_bytes, compressed, message_id FROM dead_letter WHERE received_at >= :since"
)


@dataclass
class Window:
    """Its prefix is that of all its keys, its day that of all its results."""

    number: int
    brokers: tuple[str, ...]
    midnight: datetime
    batch: int
    """The last batch that was committed before it."""
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    ledger: Ledger = field(default_factory=Ledger)
    faults: Counter[str] = field(default_factory=Counter)
    back_s: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """How many records of a window are where, and the account of them."""

    letters: int
    spool: int
    messages: int
    """Different message ids of rows and dead letters."""
    redelivered: int
    """Rows that changed nothing, since the window began."""
    account: Account
    problems: tuple[str, ...]


@dataclass
class Soak:
    """The windows of a run, one after the other."""

    stage: Stage
    rate: float
    seed: int
    today: datetime = field(default_factory=lambda: datetime.now(UTC))
    ending: threading.Event = field(default_factory=threading.Event)
    """Set to end the run: the current window ends early, and is accounted for."""
    previous: Window | None = None

    def window(
        self, number: int, brokers: tuple[str, ...], events: Iterator[Event], duration_s: float
    ) -> tuple[Window, Reading]:
        """Load and events for so long; then all records must be where they belong.

        Raises:
            AssertionError: a process ended, or did not recover or stop in time.
        """
        stage = self.stage
        stage.change_pair(brokers)
        batch = stage.query(_LAST_BATCH)[0][0]
        window = Window(number, brokers, midnight_of(FIRST_DAY - number, self.today), batch)
        senders, posters, crowd = self._load(window)
        posted = [kind for poster in posters for kind in poster.kinds]
        slower = [kind._replace(pause_s=SLOWER * kind.pause_s) for kind in posted]
        load = [*senders.kinds, *slower, *crowd.kinds]
        ends_at = time.monotonic() + duration_s
        with sending(load, window.ledger, self.seed + number, stage.pausing):
            for event in events:
                if time.monotonic() >= ends_at or self.ending.is_set() or window.ledger.failures:
                    break
                back_s = cause(stage, event)
                window.faults[event.name] += 1
                if back_s is not None:
                    window.back_s.setdefault(event.name, []).append(round(back_s, 2))
                stage.check_processes()
        reading = self._settled(window, senders)
        return window, reading

    def forget(self, window: Window) -> tuple[str, ...]:
        """Check the previous window again, prune what is older, and remember this one."""
        problems: tuple[str, ...] = ()
        if self.previous:
            again = self._read(self.previous)
            problems = tuple(
                f"window {self.previous.number}, read again: {text}" for text in again.problems
            )
            environments = "DELETE FROM metric_environment WHERE name LIKE '{}%%'"
            self.stage.sites[0].execute(environments.format(self.previous.prefix))
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self.stage.prune((today - window.midnight).days + 1)
        self.previous = window
        return problems

    def last(self, window: Window) -> Reading:
        """Stop the consumers, send what they can't have loaded, and find it where it is."""
        stage = self.stage
        stage.stop(stage.servlet)
        stage.stop(stage.daemon)
        stage.stop(stage.consumer)
        last = Window(window.number + 1, window.brokers, window.midnight + timedelta(days=1), 0)
        senders = replace(self._load(last)[0], urls=stage.pair_urls, prefix=f"{last.prefix}sent")
        nowhere = replace(senders, urls=["stomp://127.0.0.1:1"], prefix=f"{last.prefix}spooled")
        for sender in (senders, nowhere):
            for _ in islice(sender.one_shots(random.Random(0)), LAST):
                pass
        held = [
            key
            for broker in stage.running
            for site, destination in zip(stage.sites, stage.destinations, strict=True)
            for body in backlog(broker, site.name, destination)
            for key in keys_in(body)
        ]
        reading = self._read(last, held)
        places = (("spool", reading.spool), ("brokers", len(held)))
        problems = [
            f"the last records were not found in the {place}: {number}"
            for place, number in places
            if number < LAST
        ]
        return replace(reading, problems=(*reading.problems, *problems))

    def _load(self, window: Window) -> tuple[Senders, list[Poster], Crowd]:
        """One-shot publishers, HTTP clients and the crowd, whose records have the window's day."""
        stage, doors = self.stage, self.stage.doors
        of_window = (window.ledger, window.prefix, int(window.midnight.timestamp()))
        (commands, pipes), urls = stage.homes, stage.pair_urls
        senders = Senders(commands, [*urls, doors["door"].url, doors["servlet"].url], *of_window)
        killed, steady = stage.destinations
        posters = [
            Poster(door, steady if name in ("steadydoor", "relay") else killed, *of_window)
            for name, door in doors.items()
        ]
        urls = [*urls, *urls, doors["steadydoor"].url, doors["relay"].url]
        send = stage.steady["send"].stdin
        assert send
        of_day = (window.ledger, window.prefix, window.midnight)
        return senders, posters, Crowd(pipes, urls, self.rate, *of_day, send)

    def _settled(self, window: Window, senders: Senders) -> Reading:
        """The reading, once all is where it belongs, or has not been for SETTLE_S."""
        stage = self.stage
        deadline = time.monotonic() + SETTLE_S
        last, since = -1, time.monotonic()
        while True:
            for spool in stage.spools:
                grow_old(spool)  # the locks of killed publishers; all others have ended
            next(senders.drains(random.Random(0)))
            stage.check_processes()
            waiting = stage.held() or any(len(list(spool.names())) for spool in stage.spools)
            if last != (last := stage.query(_LAST_BATCH)[0][0]) or waiting:
                since = time.monotonic()
            if time.monotonic() - since >= QUIET_S or time.monotonic() > deadline:
                reading = self._read(window)
                if reading.account.is_balanced or time.monotonic() > deadline:
                    return reading
                since = time.monotonic()
            time.sleep(1.0)

    def _read(self, window: Window, held: Sequence[str] = ()) -> Reading:
        """Read what exists where, and compare it with what was published."""
        stage, ledger = self.stage, window.ledger
        values = {
            "day": window.midnight,
            "next_day": window.midnight + timedelta(days=1),
            "prefix": f"{window.prefix}%",
        }
        rows, ids = [], set[str]()
        for record_class in CLASSES.values():
            found = stage.query(record_class.keys, **values)
            rows += [str(key) for key, _ in found]
            ids.update(message_id for _, message_id in found)
        letters = []
        for body, size, compressed, message_id in stage.query(_LETTERS, since=window.began):
            keys = keys_in(original_body(StoredBody(bytes(body), size, compressed)))
            ours = [key for key in keys if key.startswith(window.prefix)]
            letters += ours
            ids.update([message_id] if ours else [])
        spool = [
            key
            for queue in stage.spools
            for name in queue.names()
            for key in keys_in(queue.read(name).body)
        ]
        spool = [key for key in spool if key.startswith(window.prefix)]
        result = account(
            ledger.accepted, ledger.uncertain, stored=[*rows, *letters], waiting=[*spool, *held]
        )
        wrong_details = int(stage.query(WRONG_DETAILS, **values)[0][0])
        checks = {
            "lost": result.lost,
            "twice": result.twice,
            "never published": result.unknown,
            "good records among the dead letters": {*letters} - ledger.bad,
            "bad records among the rows": {*rows} & ledger.bad,
            "commands and clients that failed": ledger.failures,
            "details with a wrong length": [str(wrong_details)] if wrong_details else [],
        }
        problems = tuple(
            f"{problem}: {len(found)}, such as {sorted(found)[:3]}"
            for problem, found in checks.items()
            if found
        )
        redelivered = int(stage.query(_REDELIVERED, batch=window.batch)[0][0])
        return Reading(len(letters), len(spool), len(ids), redelivered, result, problems)


def entry_of(window: Window, reading: Reading, seconds: float) -> dict[str, object]:
    """The line of the log for a finished window."""
    ledger = window.ledger
    return {
        "window": window.number,
        "brokers": window.brokers,
        "began": window.began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "messages": reading.messages,
        "records": len(ledger.accepted),
        "uncertain": len(ledger.uncertain - ledger.accepted),
        "dead_letters": reading.letters,
        "redelivered": reading.redelivered,
        "lost": len(reading.account.lost),
        "twice": len(reading.account.twice),
        "unknown": len(reading.account.unknown),
        "faults": window.faults,
        "back_s": window.back_s,
        "commands": ledger.commands,
        "answers": ledger.answers,
        "problems": reading.problems,
    }


def missing_answers(ledger: Ledger) -> list[str]:
    """A problem for each answer that every window should have seen."""
    expected = (f"door, {COMMITTED}", f"servlet, {KEPT}", f"steadydoor, {COMMITTED}")
    return [f"no message was posted with success: {a}" for a in expected if not ledger.answers[a]]
