"""The state of the main loop, which other threads read."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.consumer.core.silence import Coverage, ProbeSilences
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import MESSAGE_ID

NOT_TRIED = "not tried yet"
CLOCKS_AGREE = timedelta(seconds=60)
"""Clocks that differ by more can't both be right."""
NOT_STORING = "left alone while messages can't be stored"
PAUSE_S = 1.0
"""The longest time between two turns of a waiting loop."""
QUIET_AFTER = timedelta(seconds=10)
"""The lag of the last commit is out of date after this time."""
RATE_S = 60
"""The time over which rates are averaged."""

LETTERS_MINUTES = 60
"""The time over which dead letters are counted for an alarm."""

LAG_EDGES_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600, 86400)
SAMPLE = 50
"""The number of messages of a batch whose lag is measured, about."""
COMMIT_EDGES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_EDGES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)

ID_DIGITS = 14
"""The hex digits at the beginning of a message id: microseconds since the epoch."""
BROKER_TIME = "timestamp"
"""The header in which a broker writes when it got the message, in ms since the epoch."""
EARLIEST, LATEST = 946_684_800.0, 4_102_444_800.0
"""The years 2000 and 2100; times outside are not times of sending."""


class State:
    """The progress of the daemon; readers hold `lock`. Recording takes microseconds per batch."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.lock = threading.Lock()
        self.clock = clock
        self.since = self.turned_at = clock()
        self.turns = 0
        """Turns of the main loop; the loop is alive while this number grows."""
        self.waiting_since: datetime | None = self.since
        """The time since which nothing can be committed; `waiting_for` is the reason."""
        self.waiting_for = NOT_TRIED
        self.pending: Sequence[Delivery] = ()
        """The messages of the current batch that are not yet committed."""
        self.behind_since: datetime | None = None
        """The time of the last commit or of taking the pending messages; None if there are none."""
        self.last_commit: datetime | None = None
        self.open_dead_letters: Mapping[str, int] | None = None
        """The number in the database by reason, as last counted; 0 of other known reasons."""
        self.counts = Counts()
        self.requests = Counter[int]()
        """The requests of all HTTP doors by the status of their answers."""
        self.connections: dict[str, int] = {}
        """The connections of each HTTP door by its name."""
        self.lags = Histogram(LAG_EDGES_S)
        self.batches = Histogram(BATCH_EDGES)
        self.commits = Histogram(COMMIT_EDGES_S)
        self.newest: dict[str, tuple[datetime, datetime]] = {}
        """When messages of a broker were last committed, and when the newest of them was sent."""
        self.coverage: Coverage | None = None
        """Of which times everything has arrived; None unless a watch keeps it."""
        self.probe_silences = ProbeSilences()
        self.reconnects = Counter[str]()
        """The sessions with brokers that replaced a lost one, before the last reload."""
        self.clock_offset = timedelta()
        """How far the clock of the database is ahead of ours, as last measured."""
        self.full_sources: dict[str, str] = {}
        """Why sources are left alone, by their names."""
        self.unused_files: dict[str, str] = {}
        """Why the present content of files is not in use, by what it is for."""
        self.schema = ""
        """The version of the schema of the database; empty if it is unknown, or of a relay."""
        self.received: dict[str, datetime] = {}
        """When records of a class were last stored, by class."""
        self._letters: deque[list[int]] = deque(maxlen=LETTERS_MINUTES)
        """The last minutes in which there were dead letters: minute, dead letters."""
        self._last_lag_s: float | None = None
        self._seconds: deque[list[int]] = deque(maxlen=RATE_S)
        """The last seconds in which something was committed: second, messages, rows."""

    def turned(self) -> None:
        """The main loop begins a turn, or goes on with one. Only the main loop may call this."""
        self.turns += 1
        self.turned_at = self.clock()

    def pause(self, stop: threading.Event, wait_s: float) -> bool:
        """Wait, counting turns; returns whether `stop` was set meanwhile."""
        ends_at = time.monotonic() + wait_s
        while not stop.wait(min(PAUSE_S, max(ends_at - time.monotonic(), 0.0))):
            self.turned()
            if time.monotonic() >= ends_at:
                return False
        return True

    def taken(self, batch: Sequence[Delivery]) -> None:
        """The batch is pending."""
        with self.lock:
            self.pending = batch
            self.behind_since = self.clock() if batch else None

    def committed(self, batch: Sequence[Delivery], counts: Counts) -> None:
        """The first of the pending messages are committed and acked."""
        now = self.clock()
        step = len(batch) // SAMPLE + 1
        sample = batch[::-step]
        times = [sent_at(delivery.message.headers) for delivery in sample]
        lags = [max(now.timestamp() - moment, 0.0) for moment in times if moment is not None]
        newest: dict[str, float] = {}
        for delivery, moment in zip(sample, times, strict=True):
            broker, sent = delivery.session.broker, now.timestamp() if moment is None else moment
            newest[broker] = max(newest.get(broker, sent), sent)
        second = int(now.timestamp())
        with self.lock:
            self.counts += Counts(messages_by_broker=Counter(one.session.broker for one in batch))
            self.counts += counts.printable_for(self.counts)
            self.lags.add(lags, step)
            self.batches.add([len(batch)])
            if not self._seconds or self._seconds[-1][0] != second:
                self._seconds.append([second, 0, 0])
            self._seconds[-1][1] += len(batch)
            self._seconds[-1][2] += counts.rows
            for broker, sent in newest.items():
                self.newest[broker] = now, datetime.fromtimestamp(sent, UTC)
            if letters := counts.dead_letters.total() + counts.summarised_dead_letters:
                if not self._letters or self._letters[-1][0] != second // 60:
                    self._letters.append([second // 60, 0])
                self._letters[-1][1] += letters
            self.received.update(dict.fromkeys(counts.rows_by_class, now))
            self.received.update(dict.fromkeys(counts.duplicates_by_class, now))
            self._last_lag_s = min(lags, default=None)
            self.last_commit = now
            self.pending = self.pending[len(batch) :]
            self.behind_since = now if self.pending else None

    def stored(self, seconds: float) -> None:
        """A batch was stored and committed in this time."""
        with self.lock:
            self.commits.add([seconds])

    def count(self, counts: Counts) -> None:
        """Add what sources have counted."""
        with self.lock:
            self.counts += counts.printable_for(self.counts)

    def cannot_commit(self, reason: str) -> None:
        """An attempt to use the sink failed."""
        with self.lock:
            self.waiting_since = self.waiting_since or self.clock()
            self.waiting_for = reason

    def can_commit(self) -> None:
        """An attempt to use the sink succeeded."""
        if self.waiting_since is not None:
            with self.lock:
                self.waiting_since, self.waiting_for = None, ""

    def now(self) -> datetime:
        """The time, by the clock of the database if ours is far off."""
        return self.clock() + self.correction

    @property
    def correction(self) -> timedelta:
        """What to add to our clock: nothing, unless it is far off."""
        return self.clock_offset if abs(self.clock_offset) > CLOCKS_AGREE else timedelta()

    def pause_of(self, source: str) -> str:
        """Why messages of a source can't be stored at present; empty if they can."""
        return self.full_sources.get(source) or (NOT_STORING if self.waiting_since else "")

    def dropped(self, deliveries: Sequence[Delivery]) -> None:
        """Some of the pending messages stay with their brokers."""
        gone = {id(delivery) for delivery in deliveries}
        with self.lock:
            self.pending = [item for item in self.pending if id(item) not in gone]
            self.behind_since = self.behind_since if self.pending else None

    def out_of_use(self, name: str, problem: str) -> None:
        """Note why a file can't be used, so that its previous content is; "" if it can."""
        with self.lock:
            self.unused_files.pop(name, None)
            if problem:
                self.unused_files[name] = problem

    def lag_s(self) -> float | None:
        """Time from sending to commit of the newest message; None if unknown.

        A pending message counts as if it were committed now.
        """
        now = self.clock()
        if self.pending:
            moment = sent_at(self.pending[-1].message.headers)
            return None if moment is None else max(now.timestamp() - moment, 0.0)
        if self.last_commit is None or now - self.last_commit > QUIET_AFTER:
            return 0.0
        return self._last_lag_s

    def rates(self) -> tuple[float, float]:
        """Messages and rows per second, averaged over the last minute."""
        now = self.clock()
        period_s = min(max((now - self.since).total_seconds(), 1.0), RATE_S)
        start = now.timestamp() - RATE_S
        recent = [counts for second, *counts in self._seconds if second > start]
        messages, rows = (sum(counts[index] for counts in recent) for index in (0, 1))
        return messages / period_s, rows / period_s

    def letters_by_minute(self) -> dict[str, int]:
        """The new dead letters of the last hour, by minutes since the epoch."""
        return {str(minute): count for minute, count in self._letters}

    def resume_letters(self, by_minute: Mapping[str, int]) -> None:
        """Continue the counts of an earlier process."""
        with self.lock:
            if not self._letters:
                self._letters.extend([int(minute), count] for minute, count in by_minute.items())

    def dead_letters_last_hour(self) -> int:
        """The new dead letters of the last hour, to the minute."""
        start = self.clock().timestamp() // 60 - LETTERS_MINUTES
        return sum(count for minute, count in self._letters if minute > start)


def sent_at(headers: Mapping[str, str]) -> float | None:
    """The time of sending in seconds since the epoch, or None if unknown.

    Our publishers put it into the message id, brokers into a header.
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


class Histogram:
    """Counts values between edges; adding many values at once is cheap."""

    def __init__(self, edges: Sequence[float] = ()) -> None:
        self.edges = edges
        self.total = 0.0
        """The sum of all values."""
        self._counts = [0] * (len(edges) + 1)

    def add(self, values: Sequence[float], times: int = 1) -> None:
        """Count each value `times` times."""
        ordered = sorted(values)
        ends = [0, *(bisect_right(ordered, edge) for edge in self.edges), len(ordered)]
        for index, (start, end) in enumerate(pairwise(ends)):
            self._counts[index] += times * (end - start)
        self.total += times * sum(ordered)

    def cumulative(self) -> list[int]:
        """For each edge the number of values up to it; the last item counts all values."""
        return list(accumulate(self._counts))
