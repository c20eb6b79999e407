"""The order in which brokers are tried: stickiness, pauses, and the memory that keeps them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher import Publication, PublisherConfig, publish
from sam_pipeline.publisher.delivery.route import FILE, MAX_REST_S, MIN_REST_S, TRUSTED_S, Memory
from sam_pipeline.schema.net.broker import Target, parse_broker
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.stand_in import HOST
from tests.support.publishing import dead_url, messages, spooled

real_getaddrinfo = socket.getaddrinfo


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked up; each has the address of the fake brokers."""
    names: list[str] = []

    def answer(host: str, port: int, *arguments: Any) -> Any:
        if host.endswith(".invalid") and not arguments[-1] & socket.AI_NUMERICHOST:
            names.append(host)
            if host.startswith("no-"):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = HOST
        return real_getaddrinfo(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return names


def named(url: str, name: str = "msg.invalid") -> str:
    return url.replace(HOST, name)


def call(*brokers: str, at: str = ".", **settings: Any) -> Publication:
    """Publish a message, as one process of a user whose state and spool are in `at`."""
    directory = Path(at).absolute()
    kept = {"spool": directory / "spool", "state": directory / "state", "timeout_s": 2.0}
    return publish(messages(1), PublisherConfig(brokers=brokers, **{**kept, **settings}))


def remember(old: str, new: str) -> None:
    """Replace a text in the memory of brokers."""
    file = Path("state", FILE)
    file.write_text(file.read_text().replace(old, new))


def test_the_broker_that_worked_last_is_asked_first() -> None:
    with FakeBroker() as second:
        first_call, later_call = (call(dead, second.url) for dead in [dead_url()] * 2)

    assert (len(first_call.failures), later_call.failures) == (1, ())
    assert len(second.taken) == 2


def test_a_failed_broker_is_not_tried_while_the_spool_accepts_messages() -> None:
    with FakeBroker(refuses_login="not now") as broker:
        call(broker.url)
        (failure,) = call(broker.url).failures

    assert (broker.connections, len(spooled())) == (1, 2)
    assert failure.broker == broker.url
    assert failure.reason.startswith("left out, because it failed once: ")
    assert "not now" in failure.reason


@pytest.mark.parametrize(
    "settings", [{"spool": None}, {"require_broker": True}, {"spool_max_messages": 1}], ids=str
)
def test_a_paused_broker_is_tried_if_the_message_would_be_lost(settings: dict[str, Any]) -> None:
    with FakeBroker(refuses_login="not now") as broker:
        call(broker.url)
        broker.refuses_login = ""
        publication = call(broker.url, **settings)

    assert (len(publication.receipts), publication.spooled, publication.failures) == (1, (), ())


def test_a_pause_ends() -> None:
    with FakeBroker(refuses_login="not now") as broker:
        call(broker.url)
        broker.refuses_login = ""
        remember('"rests_until":', '"rests_until": 1763700000.0, "":')

        assert len(call(broker.url).receipts) == 1


def test_no_other_name_is_looked_up_when_the_first_broker_answers(looked_up: list[str]) -> None:
    with FakeBroker() as broker:
        for _ in range(2):
            call(named(broker.url), "stomp://other.invalid")

    assert looked_up == ["msg.invalid"]


def test_the_name_is_looked_up_when_its_remembered_address_fails(looked_up: list[str]) -> None:
    with FakeBroker() as broker:
        call(named(broker.url))
        remember(HOST, "127.0.0.77")
        publication = call(named(broker.url))

    assert looked_up == ["msg.invalid", "msg.invalid"]
    assert "(127.0.0.77): connection refused" in str(publication.failures[0])
    assert len(publication.receipts) == 1


def test_a_changed_address_is_used_after_an_hour(looked_up: list[str]) -> None:
    with FakeBroker() as broker:
        call(named(broker.url))
        remember(HOST, "127.0.0.77")
        remember('"worked_at":', '"worked_at": 1763700000.0, "":')

        assert call(named(broker.url)).failures == ()


def test_a_name_that_does_not_resolve_is_paused_too(looked_up: list[str]) -> None:
    call("stomp://no-such.invalid")

    assert "name resolution failed" in call("stomp://no-such.invalid").failures[0].reason
    assert looked_up == ["no-such.invalid"]


def test_shuffled_brokers_share_the_load_and_listed_ones_do_not() -> None:
    with FakeBroker() as first, FakeBroker() as second:
        for number in range(24):
            call(first.url, second.url, at=f"a{number}", order="shuffled")
        shuffled = [len(first.taken), len(second.taken)]
        for number in range(4):
            call(first.url, second.url, at=f"b{number}")

    assert min(shuffled) > 0  # fails by chance once in 8 million
    assert len(first.taken) - shuffled[0] == 4


def test_a_broker_that_was_not_tried_is_reported_and_not_paused() -> None:
    with FakeBroker() as broker:
        late = call(broker.url, timeout_s=1e-9)
        in_time = call(broker.url)

    assert [failure.reason for failure in late.failures] == ["not tried: no time left"]
    assert (broker.connections, len(in_time.receipts)) == (1, 1)


NOW = 1_763_700_000.0
DAY_S = 86400.0
FIRST = Target(parse_broker("stomp://msg.example.org"))
SECOND = Target(parse_broker("stomp://msg2.example.org"))
AT_FIRST = FIRST._replace(ip="192.0.2.1")
AT_SECOND = SECOND._replace(ip="192.0.2.2")
KEY = b"stomp://msg.example.org:61613 192.0.2.1"


def memory(state: Path | None, now: float = NOW, credentials: str = "") -> Memory:
    """The memory as read by a process that starts at `now`."""
    known = Memory(state, [FIRST, SECOND], lambda: now, lambda target: f"{target} {credentials}")
    known.refresh()
    return known


def failed(state: Path, times: int = 1, now: float = NOW) -> None:
    for _ in range(times):
        known = memory(state, now)
        known.failed(AT_FIRST, "connection refused")
        known.save()


def worked(state: Path, target: Target = AT_FIRST, now: float = NOW) -> None:
    known = memory(state, now)
    known.worked(target)
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
