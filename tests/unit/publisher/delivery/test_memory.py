"""The memory of brokers, and that publishing works without it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.delivery.memory import FILE, MAX_REST_S, MIN_REST_S, TRUSTED_S, Memory
from sam_pipeline.schema.net.broker_url import parse_broker

NOW = 1_763_700_000.0
DAY_S = 86400.0
FIRST = parse_broker("stomp://msg.example.org")
SECOND = parse_broker("stomp://msg2.example.org")
AT_FIRST = BrokerAddress(FIRST, "192.0.2.1")
AT_SECOND = BrokerAddress(SECOND, "192.0.2.2")
KEY = b"stomp://msg.example.org:61613 192.0.2.1"


def memory(state: Path | None, now: float = NOW, credentials: str = "") -> Memory:
    """The memory as read by a process that starts at `now`."""
    known = Memory(state, [FIRST, SECOND], lambda: now, lambda broker: f"{broker} {credentials}")
    known.refresh()
    return known


def failed(state: Path, times: int = 1, now: float = NOW) -> None:
    for _ in range(times):
        known = memory(state, now)
        known.failed(AT_FIRST, "connection refused")
        known.save()


def worked(state: Path, address: BrokerAddress = AT_FIRST, now: float = NOW) -> None:
    known = memory(state, now)
    known.worked(address)
    known.save()


def rest_s(state: Path, now: float = NOW) -> float:
    fact = memory(state, now).rest_of(AT_FIRST)
    return fact.rests_until - now if fact else 0.0


def test_the_next_process_knows_the_address_that_worked_last_for_an_hour(tmp_path: Path) -> None:
    worked(tmp_path, AT_FIRST)
    worked(tmp_path, AT_SECOND, NOW + 1)

    assert memory(tmp_path, NOW + 2).last_worked() == (AT_SECOND, True)
    assert memory(tmp_path, NOW + 1 + TRUSTED_S).last_worked() == (AT_SECOND, False)


def test_changed_credentials_end_the_rest_of_an_address_and_are_not_stored(tmp_path: Path) -> None:
    first = memory(tmp_path, credentials="wrong password")
    first.failed(AT_FIRST, "login refused")
    first.save()

    assert memory(tmp_path, credentials="wrong password").rest_of(AT_FIRST) is not None
    assert memory(tmp_path, credentials="right password").rest_of(AT_FIRST) is None
    assert "password" not in (tmp_path / FILE).read_text()


def test_a_failed_address_is_paused_and_the_next_process_knows_the_reason(tmp_path: Path) -> None:
    failed(tmp_path)

    fact = memory(tmp_path).rest_of(AT_FIRST)

    assert fact is not None
    assert (fact.failures, fact.reason) == (1, "connection refused")
    assert memory(tmp_path).rest_of(AT_SECOND) is None
    assert memory(tmp_path, NOW + MIN_REST_S).rest_of(AT_FIRST) is None


def test_pauses_double_up_to_five_minutes_and_differ_between_hosts(tmp_path: Path) -> None:
    rests = []
    for times in range(1, 20):
        failed(tmp_path)
        longest_s = min(MAX_REST_S, MIN_REST_S * 2 ** (times - 1))
        assert longest_s / 2 <= rest_s(tmp_path) <= longest_s
        rests.append(rest_s(tmp_path) / longest_s)

    assert longest_s == MAX_REST_S
    assert len({*rests}) > 10


def test_a_success_forgets_the_failures(tmp_path: Path) -> None:
    failed(tmp_path, 5)
    worked(tmp_path)
    failed(tmp_path)

    assert rest_s(tmp_path) <= MIN_REST_S
    assert memory(tmp_path).last_worked() is None


def test_a_steady_state_writes_nothing(tmp_path: Path) -> None:
    worked(tmp_path)
    before = (tmp_path / FILE).stat()

    for second in range(5):
        worked(tmp_path, AT_FIRST, NOW + second)

    after = (tmp_path / FILE).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nothing_is_written_for_a_single_broker_or_without_a_directory(tmp_path: Path) -> None:
    spool = parse_broker("spool:///somewhere")
    single, nowhere = Memory(tmp_path, [spool]), memory(None)

    single.worked(BrokerAddress(spool))
    nowhere.failed(AT_FIRST, "refused")
    for known in (single, nowhere):
        known.save()

    assert list(tmp_path.iterdir()) == []


def test_the_file_is_private_and_the_only_one_in_its_directory(tmp_path: Path) -> None:
    state = tmp_path / "state"
    old_mask = os.umask(0)
    try:
        failed(state)
    finally:
        os.umask(old_mask)
    (state / f".{FILE}.{os.getpid()}.new").write_text("of a writer that was killed")
    worked(state)
    worked(state)

    (file,) = state.iterdir()
    assert memory(state).last_worked() == (AT_FIRST, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\x00",
        b'{"%b": 5}' % KEY,
        b'{"%b": {"worked_at": NaN, "rests_until": NaN}}' % KEY,
        b'{"%b": {"failures": 1e400}}' % KEY,
        b"[" * 100_000,
        b'{"no broker": {"worked_at": 1}, " ": {}, "": {}}',
    ],
)
def test_a_damaged_memory_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / FILE).chmod(0o600)

    remembered = memory(tmp_path)
    before = remembered.last_worked(), remembered.rest_of(AT_FIRST)
    worked(tmp_path)

    assert before == (None, None)
    assert memory(tmp_path).last_worked() == (AT_FIRST, True)


def test_facts_from_the_future_are_ignored_after_the_clock_was_set_back(tmp_path: Path) -> None:
    failed(tmp_path, 10, NOW + 3 * DAY_S)
    worked(tmp_path, AT_SECOND, NOW + DAY_S)

    assert memory(tmp_path).rest_of(AT_FIRST) is None
    assert memory(tmp_path).last_worked() is None
    failed(tmp_path)
    assert 0 < rest_s(tmp_path) <= MAX_REST_S


PLANTED: dict[str, Callable[[Path], object]] = {
    "a link": lambda file: file.symlink_to(file.parents[1] / "elsewhere" / FILE),
    "a directory": Path.mkdir,
    "a pipe": os.mkfifo,
    "of all": lambda file: (file.hardlink_to(file.parents[1] / "open"), file.chmod(0o666)),
    "below a file": lambda file: file.parent.rmdir() or file.parent.write_text("a file"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_only_a_regular_file_of_ours_is_read_and_written_to(tmp_path: Path, planted: str) -> None:
    elsewhere, state = tmp_path / "elsewhere" / FILE, tmp_path / "state"
    worked(elsewhere.parent)
    before = elsewhere.read_bytes()
    (tmp_path / "open").write_bytes(before)
    state.mkdir()
    PLANTED[planted](state / FILE)

    known = memory(state)
    known.failed(AT_SECOND, "refused")
    known.save()

    assert known.last_worked() is None
    assert elsewhere.read_bytes() == before
