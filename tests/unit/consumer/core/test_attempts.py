"""Messages that kill the process are identified by what was pending when it died."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.attempts import MAX_FRAMES, Attempts
from sam_pipeline.consumer.core.inbox import Delivery
from sam_pipeline.schema.messages.message import Message
from tests.support.consumer.doubles import delivery

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
