"""Where the daemon stands: the one object that knows, for all who ask while it runs.

The main loop tells it about each turn and each batch; threads that answer questions only read.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from sam_pipeline.consumer.core.histogram import Distribution, Histogram
from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.schema.messages.message import MESSAGE_ID
from sam_pipeline.sql.loading.load import Loaded

NOT_TRIED = "not tried yet"
PAUSE_S = 1.0
"""The loop turns at least this often while it waits."""
QUIET_S = 10.0
"""After so long without anything to commit, the lag of the last commit is history."""
MINUTE_S = 60

LAG_EDGES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600, 86400)
SAMPLE = 50
"""So many messages of a batch are asked when they were sent; each counts for its neighbours."""
BATCH_EDGES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)

ID_DIGITS = 14
"""A message id begins with the µs since the epoch, in so many hex digits."""
BROKER_TIME = "timestamp"
"""When a broker took a message, in ms since the epoch."""
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0
"""The years 2000 and 2100: what says another time does not know the time."""


@dataclass(frozen=True)
class Waiting:
    """Nothing can be committed since then (epoch seconds), for this reason."""

    since: float
    reason: str


@dataclass(frozen=True)
class Standing:
    """A consistent copy of everything; moments are seconds since the epoch."""

    since: float
    turned_at: float
    last_commit: float | None
    behind_since: float | None
    """When what is in hand was taken: nothing was committed since."""
    waiting: Waiting | None
    tally: Tally
    lag_s: float | None
    """From sending to commit, of the newest message; None where none says when it was sent."""
    in_hand: Mapping[str, int]
    """Messages taken for the present batch, by broker."""
    in_hand_bytes: int
    messages_per_s: float
    rows_per_s: float
    open_dead_letters: Mapping[str, int] | None
    """In the database, by reason, as last asked; None before."""
    lags: Distribution
    batches: Distribution


class State:
    """Safe to ask from any thread; what it costs is a few microseconds a batch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        now = clock()
        self.tally = Tally()
        self._since = now
        self.turns = 0
        """Of the main loop: whoever finds another number than before knows that it lives."""
        self._turned_at = now
        self._last_commit: float | None = None
        self._behind_since: float | None = None
        self._waiting: Waiting | None = Waiting(now, NOT_TRIED)
        self._in_hand: Sequence[Delivery] = ()
        self._lag_s: float | None = None
        self._rates = _Minute(now)
        self._open_dead_letters: Mapping[str, int] | None = None
        self._lags = Histogram(LAG_EDGES_S)
        self._batches = Histogram(BATCH_EDGES)

    def turned(self) -> None:
        """The main loop is alive: to be called by nobody else."""
        self.turns += 1
        self._turned_at = self._clock()

    def taken(self, batch: Sequence[Delivery]) -> None:
        with self._lock:
            self._in_hand = batch
            self._behind_since = self._clock() if batch else None

    def committed(self, batch: Sequence[Delivery], loaded: Loaded) -> None:
        """And acked; the next of what was taken. It is no longer in hand."""
        now = self._clock()
        step = len(batch) // SAMPLE + 1
        times = [sent_at(each.message.headers) for each in batch[::-step]]
        lags = [max(now - moment, 0.0) for moment in times if moment is not None]
        with self._lock:
            self.tally.add(batch, loaded)
            self._lags.add(lags, step)
            self._batches.add([len(batch)])
            self._rates.add(now, len(batch), loaded.rows)
            self._lag_s = min(lags, default=None)
            self._last_commit = now
            self._in_hand = self._in_hand[len(batch) :]
            self._behind_since = now if self._in_hand else None

    def cannot_commit(self, reason: str) -> None:
        with self._lock:
            since = self._waiting.since if self._waiting else self._clock()
            self._waiting = Waiting(since, reason)

    def can_commit(self) -> None:
        if self._waiting is not None:
            with self._lock:
                self._waiting = None

    def open_dead_letters(self, by_reason: Mapping[str, int]) -> None:
        with self._lock:
            self._open_dead_letters = dict(by_reason)

    def pause(self, stop: threading.Event, wait_s: float) -> bool:
        """Whether we were told to stop meanwhile; a loop that waits turns, too."""
        ends_at = time.monotonic() + wait_s
        while not stop.wait(min(PAUSE_S, max(ends_at - time.monotonic(), 0.0))):
            self.turned()
            if time.monotonic() >= ends_at:
                return False
        return True

    def standing(self) -> Standing:
        now = self._clock()
        with self._lock:
            messages_per_s, rows_per_s = self._rates.per_second(now)
            return Standing(
                since=self._since,
                turned_at=self._turned_at,
                last_commit=self._last_commit,
                behind_since=self._behind_since,
                waiting=self._waiting,
                tally=deepcopy(self.tally),
                lag_s=self._lag_at(now),
                in_hand=Counter(each.session.broker for each in self._in_hand),
                in_hand_bytes=sum(len(each.message.body) for each in self._in_hand),
                messages_per_s=messages_per_s,
                rows_per_s=rows_per_s,
                open_dead_letters=self._open_dead_letters,
                lags=self._lags.distribution(),
                batches=self._batches.distribution(),
            )

    def _lag_at(self, now: float) -> float | None:
        """Of what is in hand as if it were committed now; of the last commit, while it is news."""
        if self._in_hand:
            moment = sent_at(self._in_hand[-1].message.headers)
            return None if moment is None else max(now - moment, 0.0)
        if self._last_commit is None or now - self._last_commit > QUIET_S:
            return 0.0
        return self._lag_s


def sent_at(headers: Mapping[str, str]) -> float | None:
    """When the message was sent, in seconds since the epoch, as far as it tells.

    Our publishers say it in the id, brokers in a header of their own.
    """
    message_id = headers.get(MESSAGE_ID, "")
    if message_id[ID_DIGITS : ID_DIGITS + 1] == "-":
        digits, base, per_s = message_id[:ID_DIGITS], 16, 1e6
    else:
        digits, base, per_s = headers.get(BROKER_TIME, "")[:ID_DIGITS], 10, 1e3
    try:
        moment = int(digits, base) / per_s
    except ValueError:
        return None
    return moment if EARLIEST < moment < LATEST else None


class _Minute:
    """What happened in each second of the last minute."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._seconds: deque[tuple[int, int, int]] = deque()

    def add(self, now: float, messages: int, rows: int) -> None:
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            _, before, rows_before = self._seconds.pop()
            messages, rows = before + messages, rows_before + rows
        self._seconds.append((second, messages, rows))
        self._forget(now)

    def per_second(self, now: float) -> tuple[float, float]:
        self._forget(now)
        lasted_s = min(max(now - self._began, 1.0), float(MINUTE_S))
        messages = sum(each[1] for each in self._seconds)
        return messages / lasted_s, sum(each[2] for each in self._seconds) / lasted_s

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] <= now - MINUTE_S:
            self._seconds.popleft()
