"""The order in which brokers are tried: stickiness, pauses, and late name look-ups."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher import Publication, PublisherConfig, publish
from sam_pipeline.publisher.delivery.memory import FILE
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
    return publish(messages(1), PublisherConfig(brokers, **{**kept, **settings}))


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
