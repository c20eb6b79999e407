"""The bounded queue before the loop, and messages that kill the process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import (
    DATABASE,
    BatchRule,
    Delivery,
    Inbox,
    MessageOutcome,
    acknowledge,
    answering,
)
from sam_pipeline.consumer.core.recovery import MAX_FRAMES, Attempts
from sam_pipeline.consumer.sources.tap import TapInbox
from sam_pipeline.schema.messages.message import Message
from tests.support.consumer.doubles import BROKER, FakeSession, delivery, sized

SOON_S = 30.0


def filled(*deliveries: Delivery) -> Inbox:
    inbox = Inbox(len(deliveries))
    inbox.put(deliveries)
    return inbox


def test_a_batch_holds_deliveries_in_order_of_arrival_up_to_its_size() -> None:
    deliveries = [delivery() for _ in range(5)]
    inbox = filled(*deliveries)

    batches = [inbox.take(BatchRule(3, 0, 0), wait_s=0) for _ in range(3)]

    assert batches == [deliveries[:3], deliveries[3:], []]


def test_a_batch_of_a_steady_trickle_is_given_after_a_maximum_time() -> None:
    times = iter([0.0, 0.1, 0.19, 0.2])

    def clock() -> float:
        inbox.put([delivery()])  # one more each time somebody looks
        return next(times)

    inbox = Inbox(10, clock=clock)
    inbox.put([delivery()])

    assert len(inbox.take(BatchRule(1000, 0.2, 0.1), wait_s=0)) == 4


def test_a_source_waits_until_a_full_inbox_has_room() -> None:
    inbox, answers = filled(delivery()), list[bool]()
    waiting = threading.Thread(target=lambda: answers.append(inbox.wait_for_room(BROKER, SOON_S)))

    assert not inbox.wait_for_room(BROKER, 0)
    waiting.start()
    inbox.take(BatchRule(1, 0, 0), wait_s=0)
    waiting.join(SOON_S)

    assert answers == [True]


def test_a_paused_broker_is_not_read_while_the_others_are() -> None:
    now = [100.0]
    inbox = Inbox(10, clock=lambda: now[0])

    inbox.pause(BROKER, 30)
    paused = inbox.any_paused
    a, b = inbox.has_room_for(BROKER), inbox.wait_for_room("stomp://b:1", 0)
    now[0] += 30

    assert (paused, a, b) == (True, False, True)
    assert (inbox.any_paused, inbox.wait_for_room(BROKER, 0)) == (False, True)


def test_bodies_and_heads_fill_an_inbox_like_messages_do() -> None:
    inbox = Inbox(1000, max_bytes=20)
    room = []
    for item in (sized(19), sized(1), sized(10)):
        inbox.put([item])
        room.append(inbox.has_room)
    inbox.take(BatchRule(1, 0, 0), wait_s=0)

    assert (room, inbox.has_room, inbox.size_bytes) == ([True, False, False], True, 11)
    with_heads = Inbox(1000, max_bytes=1000)
    with_heads.put([sized(10), sized(10)], head_bytes=1000)
    full = not with_heads.has_room
    assert len(with_heads.take(BatchRule(10, 0, 0, max_bytes=600), wait_s=0)) == 1
    assert (full, with_heads.has_room, with_heads.size_bytes) == (True, True, 510)
    tiny = Inbox(1000, max_bytes=100_000)
    tiny.put([sized(0, headers=1000)])
    assert not tiny.has_room


def test_a_batch_does_not_exceed_its_bytes_unless_one_message_does() -> None:
    inbox = filled(sized(40), sized(40), sized(40), sized(200), sized(1), sized(1))
    rules = [BatchRule(10, SOON_S, 0, max_bytes=100)] * 4 + [BatchRule(10, SOON_S, 0, max_bytes=1)]

    batches = [inbox.take(rule, wait_s=0) for rule in rules]

    sizes = [[len(item.message.body) for item in batch] for batch in batches]
    assert sizes == [[40, 40], [40], [200], [1, 1], []]


def test_a_batch_does_not_wait_for_messages_that_a_broker_sends_only_after_an_ack() -> None:
    session = FakeSession()
    session.batch_size = 2
    deliveries = [delivery(session) for _ in range(3)]

    assert filled(*deliveries).take(BatchRule(1000, SOON_S, SOON_S), wait_s=0) == deliveries[:2]


def test_the_messages_of_a_lost_session_are_discarded_and_leave_their_room() -> None:
    lost, kept = sized(600), sized(10)
    inbox = Inbox(1000, max_bytes=500)
    inbox.put([lost, kept], head_bytes=20)

    inbox.discard(lost.session)

    assert (inbox.has_room, inbox.size_bytes) == (True, 20)
    assert inbox.take(BatchRule(10, 0, 0), wait_s=0) == [kept]


def test_the_inbox_of_a_look_leaves_messages_out_instead_of_waiting() -> None:
    session = FakeSession()
    inbox, choosy = TapInbox(max_messages=2), TapInbox(lambda message: False, max_messages=2)
    for item in (inbox, choosy):
        for _ in range(5):
            item.put([delivery(session)])
        item.discard(session)  # messages of a lost session are shown all the same

    assert (len(inbox), inbox.left_out, inbox.has_room_for(BROKER)) == (2, 3, True)
    assert (len(choosy), choosy.left_out) == (0, 0)


def test_the_failure_of_a_thread_ends_the_loop_even_while_it_waits() -> None:
    inbox = Inbox(10)
    failing = threading.Timer(0.01, inbox.fail, [RuntimeError("out of file descriptors")])
    failing.start()

    with pytest.raises(RuntimeError, match="file descriptors"):
        inbox.take(BatchRule(10, SOON_S, SOON_S), wait_s=SOON_S)
    failing.join(SOON_S)


def test_sessions_get_their_acks_in_order_or_the_outcomes_of_a_batch_at_once() -> None:
    first, second, door = FakeSession(), FakeSession(), FakeSession(answers=True)
    tokens = [(door, "x"), (first, 1), (second, "a"), (door, "y"), (first, 2)]
    batch = [delivery(*item) for item in tokens]
    outcomes = {at: MessageOutcome(DATABASE, rows=at) for at in answering(batch)}

    acknowledge(batch, outcomes)

    assert (first.acked, second.acked, door.acked) == ([1, 2], ["a"], [])
    assert door.answered == [{"x": outcomes[0], "y": outcomes[3]}]


POISON = "m-7"


class Killed(Exception):
    """The process dies here."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "attempts"


def batch(count: int) -> list[Delivery]:
    return [delivery(message=Message({"samMessageId": f"m-{n}"}, b"")) for n in range(count)]


def die(path: Path, pending: Sequence[Delivery]) -> None:
    """One life of a process that dies while it decodes these messages."""
    attempts = Attempts(path)
    with suppress(Killed), attempts.decoding(pending):
        raise Killed
    attempts.close()


def live(path: Path, deliveries: Sequence[Delivery]) -> set[str] | None:
    """One life of a process that POISON kills; returns the poison ids, or None if it died."""
    attempts = Attempts(path)
    ids: set[str] = set()
    try:
        for part in attempts.parts(deliveries):
            poison = attempts.poison(part)
            with attempts.decoding(part):
                if any(item.message.message_id == POISON for item in part) and not poison:
                    raise Killed
            attempts.end(part)
            ids |= poison
    except Killed:
        return None
    finally:
        attempts.close()
    return ids


def test_only_a_message_that_kills_the_process_repeatedly_is_poison(path: Path) -> None:
    deliveries = batch(1000)
    lives = [live(path, deliveries) for _ in range(5)]

    assert lives == [None] * 4 + [{POISON}]
    assert live(path, batch(5)) == set()


def test_with_each_death_the_pending_messages_are_loaded_in_smaller_parts(path: Path) -> None:
    deliveries = batch(100)
    die(path, deliveries[10:80])

    parts = list(Attempts(path).parts(deliveries))

    assert [item for part in parts for item in part] == deliveries
    assert len(parts) <= 5
    suspects = [part for part in parts if deliveries[10] in part or deliveries[79] in part]
    assert max(len(part) for part in suspects) <= 32
    for _ in range(2):
        die(path, deliveries[4:6])
    assert [len(part) for part in Attempts(path).parts(deliveries[:10])] == [4, 1, 1, 4]


@pytest.mark.parametrize("forgives", [False, True], ids=["decoded", "stopped while decoding"])
def test_a_death_without_pending_messages_is_not_attributed_to_any(
    path: Path, forgives: bool
) -> None:
    deliveries, attempts = batch(100), Attempts(path)
    with suppress(Killed), attempts.decoding(deliveries):
        if forgives:
            attempts.forgive()
            raise Killed

    assert list(Attempts(path).parts(deliveries)) == [deliveries]


def test_a_message_that_was_finally_loaded_is_trusted_again(path: Path) -> None:
    deliveries = batch(2)
    die(path, deliveries)
    second = Attempts(path)
    for part in second.parts(deliveries):
        with second.decoding(part):
            pass
        second.end(part)

    assert list(Attempts(path).parts(deliveries)) == [deliveries]
    assert path.stat().st_size == 0


def test_the_third_session_that_cannot_read_a_frame_is_the_last_even_in_other_processes(
    path: Path,
) -> None:
    first = Attempts(path)
    keys = [("stomp://a:1", "m-1"), ("stomp://b:1", "m-1"), ("stomp://a:1", "m-2")]

    answers = [first.is_last_for_frame(*key) for key in keys]
    answers += [Attempts(path).is_last_for_frame(*keys[0]) for _ in range(2)]

    assert answers == [False] * 4 + [True]


def test_unreadable_frames_change_nothing_for_the_pending_messages(path: Path) -> None:
    deliveries, attempts = batch(100), Attempts(path)
    for number in range(MAX_FRAMES + 1):
        attempts.is_last_for_frame("stomp://a:1", f"m-{number}")
    assert list(attempts.parts(deliveries)) == [deliveries]
    with attempts.decoding(deliveries[:2]):
        attempts.is_last_for_frame("stomp://a:1", "m-50")
        killed = Attempts(path)

    assert [len(part) for part in killed.parts(deliveries)] == [32, 68]
    assert path.stat().st_size < 10_000


@pytest.mark.parametrize("content", [b"{", b'{"pending": 7}', b"\xff"])
def test_a_truncated_file_is_ignored(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    deliveries = batch(3)
    assert list(Attempts(path).parts(deliveries)) == [deliveries]
