"""Take, load, commit, then ack, with a scripted loader; when a drain ends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count, repeat
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any

import pytest

from sam_pipeline.consumer.core.inbox import (
    DATABASE,
    BatchRule,
    Delivery,
    Inbox,
    MessageOutcome,
    Outcome,
    answering,
)
from sam_pipeline.consumer.core.loop import Drain, Loop, Patience, Stopped, consume
from sam_pipeline.consumer.core.recovery import Attempts, UnstoredMessage
from sam_pipeline.consumer.core.source import growing_delays
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SinkAway, SourcesFull, needs_action
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.net.stomp.session import SessionLost
from sam_pipeline.sql.errors import DatabaseAway, SchemaMismatch
from tests.support.consumer.doubles import FakeSession, FakeSource, delivery

AWAY = SinkAway(DatabaseAway("connection refused"))
NEWER = SchemaMismatch("newer", version="2", wanted="1")


class Connection(FakeSession):
    def __init__(self, broker: str, events: list[str]) -> None:
        super().__init__(broker)
        self._events = events

    def ack(self, tokens: Sequence[Any]) -> None:
        self._events += [f"ack {token}" for token in tokens]

    def answer(self, outcomes: Sequence[tuple[Any, MessageOutcome]]) -> None:
        self._events += [f"answer {token}: {outcome.rows}" for token, outcome in outcomes]


class Scene:
    """A loop over `size` deliveries, and its sink, with failures scripted.

    `events` is what happened; `on_failure` is called before a failure is raised.
    """

    def __init__(self, directory: Path, size: int, batch_size: int = 1000, deaths: int = 0) -> None:
        self.events: list[str] = []
        self.sessions = [Connection(name, self.events) for name in ("spool:///in", "stomp://a:1")]
        self.failures: list[Exception] = []
        self.pauses: dict[str, float] = {}
        self.stop = threading.Event()
        self.inbox = Inbox(max(size, 1))
        batch = [delivery(self.sessions[number % 2], number) for number in range(size)]
        self.inbox.put(batch)
        for _ in range(deaths):  # earlier processes died while they decoded the batch
            with suppress(KeyboardInterrupt), Attempts(directory / "attempts").decoding(batch):
                raise KeyboardInterrupt
        self.state = State()
        self.on_failure: Callable[[], object] = lambda: None
        patience = Patience(self.stop, lambda: repeat(0.0), self.state)
        attempts = Attempts(directory / "attempts")
        rule = BatchRule(batch_size, age_s=1.0)
        self.unstored = UnstoredMessage(directory / "unstored")
        self.loop = Loop(self.inbox, rule, self, patience, attempts, self.unstored, self.state)

    def run(self) -> list[str]:
        """Run the loop until the inbox is empty; returns the events."""
        self.loop.run(lambda news: 0.001 * news)
        return self.events

    def prepare(self) -> None:
        """Does nothing."""

    def upkeep(self, news: bool) -> None:
        """Does nothing."""

    def finish(self) -> None:
        """Does nothing."""

    def load(self, batch: Sequence[Delivery]) -> Outcome:
        if self.failures:
            self.events.append("fail")
            self.on_failure()
            raise self.failures.pop(0)
        self.events.append(f"commit {len(batch)}")
        answers = {at: MessageOutcome(DATABASE, rows=batch[at].token) for at in answering(batch)}
        return Outcome(answers=answers, pauses=self.pauses)


def test_every_delivery_is_acked_in_order_after_the_commit_of_its_batch(tmp_path: Path) -> None:
    events = Scene(tmp_path, 3, batch_size=2).run()

    assert events == ["commit 2", "ack 0", "ack 1", "commit 1", "ack 2"]


def test_a_batch_that_killed_the_process_is_committed_and_acked_in_parts(tmp_path: Path) -> None:
    events = Scene(tmp_path, 3, deaths=2).run()

    assert events == ["commit 1", "ack 0", "commit 1", "ack 1", "commit 1", "ack 2"]


def test_after_an_outage_a_batch_is_acked_and_answered_once_it_is_committed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3, batch_size=2)
    scene.sessions[1].answers = True
    scene.failures = [AWAY]

    assert scene.run() == ["fail", "commit 2", "ack 0", "answer 1: 1", "commit 1", "ack 2"]
    assert (scene.state.waiting_since, len(scene.state.pending)) == (None, 0)


def test_a_message_that_could_not_be_stored_is_stored_first_by_the_next_process(
    tmp_path: Path,
) -> None:
    first = Scene(tmp_path, 2)
    first.failures, first.on_failure = [AWAY], first.stop.set
    with pytest.raises(Stopped):
        first.run()
    second = Scene(tmp_path, 2)
    second.failures = [AWAY]

    with pytest.raises(SinkAway):
        second.loop.prepare()
    second.loop.prepare()
    second.loop.prepare()
    second.run()

    assert second.events == ["fail", "commit 1", "commit 2", "ack 0", "ack 1"]


def test_a_message_whose_sender_waits_for_an_answer_is_not_kept(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)
    scene.sessions[0].answers = scene.sessions[1].answers = True
    scene.failures, scene.on_failure = [AWAY], scene.stop.set
    with pytest.raises(Stopped):
        scene.run()

    assert UnstoredMessage(tmp_path / "unstored").delivery is None


def test_messages_of_a_full_source_go_back_and_the_others_are_stored(tmp_path: Path) -> None:
    """Of a connection all, since acks are cumulative; of a door only those at fault."""
    scene = Scene(tmp_path, 0)
    door = FakeSession("listen+http://127.0.0.1:1", answers=True)
    full, other = scene.sessions
    batch = [delivery(session, at) for at, session in enumerate((full, door, other, door, full))]
    scene.inbox.max_messages = len(batch)
    scene.inbox.put(batch)
    messages = [id(batch[at].message) for at in (3, 4)]
    scene.failures = [SourcesFull(AWAY, {full.broker, door.broker}, messages)]

    scene.run()

    assert (full.given_back, door.given_back, other.given_back) == ([0, 4], [3], [])
    assert (full.acked, [*door.answered[0]]) == ([], [1])
    assert scene.events == ["fail", "commit 2", "ack 2"]
    assert [*scene.state.full_sources] == [full.broker]
    assert len(scene.state.pending) == 0


def test_a_sender_that_is_too_fast_is_paused_before_the_answer(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    scene.pauses = {"token:a": 60.0}
    scene.inbox.pause = lambda name, pause_s: scene.events.append(f"pause {name}")  # type: ignore[method-assign]

    assert scene.run() == ["commit 1", "pause token:a", "ack 0"]


def test_a_loop_waits_for_the_messages_of_a_broker_that_the_sink_pauses(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    scene.pauses = {"stomp://a:1": 0.3}
    pauses = []

    def wait_s(news: bool) -> float:
        pauses.append(scene.inbox.any_paused)
        return 0.05 * news

    scene.loop.run(wait_s)

    assert pauses[:2] == [False, True]
    assert pauses[-1] is False  # it went on until the pause was over


def test_what_sources_have_counted_moves_into_the_totals_at_the_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    counted = Counts(damaged_elements=2, refusals=Counter({("a", "not-authorised"): 1}))
    scene.inbox.count(counted)
    scene.inbox.count_reconnect("stomp://a:1")
    scene.stop.set()

    consume(scene.loop, [])

    assert (scene.state.counts, scene.inbox.counted()) == (counted, Counts())
    assert (scene.state.reconnects, scene.inbox.reconnects) == ({"stomp://a:1": 1}, {})


@pytest.mark.parametrize(
    ("failure", "on_failure", "error"),
    [
        (AWAY, lambda scene: scene.stop.set(), Stopped),
        (NEWER, lambda scene: None, SchemaMismatch),
        (AWAY, lambda scene: scene.inbox.fail(OSError("too many open files")), OSError),
    ],
)
def test_a_loop_that_ends_during_a_failure_acks_nothing(
    tmp_path: Path,
    failure: Exception,
    on_failure: Callable[[Scene], None],
    error: type[Exception],
) -> None:
    scene = Scene(tmp_path, 3)
    scene.failures = [failure] * 100
    scene.on_failure = lambda: on_failure(scene)

    with pytest.raises(error):
        scene.run()

    assert scene.events == ["fail"]
    assert len(scene.state.pending) == 3


def failing(*errors: Exception) -> Callable[[], str]:
    """An action that raises each of these, and then succeeds."""
    left = list(errors)

    def action() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return action


def patience(step_s: float, *limit: float) -> Patience:
    ticks = count(0.0, step_s)
    return Patience(threading.Event(), lambda: repeat(0.0), State(), *limit, clock=ticks.__next__)


def test_patience_waits_for_ever_by_default_and_in_a_drain_until_its_timeout() -> None:
    assert patience(3600).until_done(failing(*[AWAY] * 1000)) == "done"
    assert patience(25, 60).until_done(failing(AWAY, AWAY)) == "done"
    with pytest.raises(SinkAway):
        patience(25, 60).until_done(failing(*[AWAY] * 1000))


def test_delays_grow_to_a_cap_and_differ_between_consumers() -> None:
    shortest = growing_delays(1, 8, uniform=lambda low, high: low)
    longest = growing_delays(1, 8, uniform=lambda low, high: high)

    assert [next(shortest) for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]
    assert [next(longest) for _ in range(6)] == [1, 2, 4, 8, 8, 8]


NEWS, GONE, MISSING = "news", "away", "b (connection refused)"

Step = tuple[float, str, bool]
"""The time, whether there are news or the second source is away, and whether the drain goes on."""


@pytest.mark.parametrize(
    ("steps", "unreached"),
    [
        ([(0, "", True), (1, NEWS, True), (2.9, "", True), (3, "", False)], []),
        ([(0, GONE, True), (59, GONE, True)], []),  # a source that is not connected yet
        ([(30, GONE, True), (31, "", True), (32.9, "", True), (33, "", False)], []),
        ([(59, GONE + NEWS, True), (61.1, GONE, False)], [MISSING]),
        # The others are loaded first; a source that is lost again gets another minute.
        ([(100, GONE + NEWS, True), (101, GONE, True), (102, GONE, False)], [MISSING]),
        ([(50, NEWS, True), (51, GONE, True), (110.9, GONE, True), (111, GONE, False)], [MISSING]),
    ],
)
def test_the_end_of_a_drain(steps: Sequence[Step], unreached: list[str]) -> None:
    first, second = FakeSource("a"), FakeSource("b", MISSING)
    now = [0.0]
    drain = Drain([first, second], 60, lambda: now[0])

    for now[0], what, goes_on in steps:
        second.problems = [MISSING] if GONE in what else []
        assert (drain.wait_s(NEWS in what) > 0) is goes_on, now

    assert drain.unreached == unreached


def lost(text: str, cause: Exception | None = None) -> SessionLost:
    loss = SessionLost(text, by_error=cause is None)
    loss.__cause__ = cause
    return loss


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lost("User name [sam] or password is invalid."), True),
        (lost("Security Error occurred: User name [sam] or password is invalid"), True),
        (lost("Bad CONNECT: Access refused for user 'sam'"), True),
        (lost("it failed", ConfigError(["password_file: no such file"])), True),
        (lost("it failed", SSLCertVerificationError()), True),
        (SessionLost("Connection refused"), False),
        (lost("Client: site-a already connected from tcp://10.0.0.1:5"), False),
    ],
    ids=["ActiveMQ", "Artemis", "RabbitMQ", "configuration", "certificate", "away", "two clients"],
)  # fmt: skip
def test_a_refused_login_and_a_bad_certificate_need_somebody_to_act(
    loss: SessionLost, expected: bool
) -> None:
    assert needs_action(loss) is expected
