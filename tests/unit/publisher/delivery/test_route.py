"""The order in which brokers are tried: stickiness, pauses, and late name look-ups."""

from __future__ import annotations

import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, Publication, PublisherConfig, publish
from sam_pipeline.publisher.delivery.memory import FILE
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.builders import metric_message

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
            host = "127.0.0.1"
        return real_getaddrinfo(host, port, *arguments)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return names


def dead_url() -> str:
    return f"stomp://127.0.0.1:{closed_port()}"


def named(url: str, name: str = "msg.invalid") -> str:
    return url.replace("127.0.0.1", name)


class Site:
    """Processes of one user that share state and spool; each call stands for one process."""

    def __init__(self, directory: Path, *brokers: str, **settings: Any) -> None:
        kept = {"spool": directory / "spool", "state": directory / "state", "timeout_s": 2.0}
        self.config = PublisherConfig(brokers, **{**kept, **settings})

    def publish(self, **settings: Any) -> Publication:
        return publish([metric_message()], self.config._replace(**settings))

    @property
    def spooled(self) -> int:
        assert self.config.spool is not None
        return DirectoryQueue(self.config.spool).count()


def test_the_broker_that_worked_last_is_asked_first(tmp_path: Path) -> None:
    with FakeBroker() as second:
        site = Site(tmp_path, dead_url(), second.url)
        first_call, later_call = site.publish(), site.publish()

    assert len(first_call.failures) == 1
    assert later_call.failures == ()
    assert len(second.taken) == 2


def test_a_broker_that_recovers_does_not_replace_the_one_that_works(tmp_path: Path) -> None:
    with FakeBroker() as preferred, FakeBroker() as other:
        Site(tmp_path, other.url).publish()
        Site(tmp_path, dead_url(), other.url).publish()
        Site(tmp_path, preferred.url, other.url).publish()

    assert preferred.taken == []
    assert len(other.taken) == 3


def test_a_failed_broker_is_not_tried_while_the_spool_accepts_messages(
    tmp_path: Path,
) -> None:
    with FakeBroker(refuses_login="not now") as broker:
        site = Site(tmp_path, broker.url)
        site.publish()
        resting = site.publish()

    assert broker.connections == 1
    assert site.spooled == 2
    (failure,) = resting.failures
    assert failure.broker == broker.url
    assert failure.reason.startswith("left out, because it failed once: ")
    assert "not now" in failure.reason


@pytest.mark.parametrize("settings", [{"spool": None}, {"require_broker": True}])
def test_a_paused_broker_is_tried_where_the_message_would_be_refused_otherwise(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    broker = FakeBroker(refuses_login="not now")
    with broker:
        site = Site(tmp_path, broker.url)
        site.publish()
        broker.refuses_login = ""

        publication = site.publish(**settings)

    assert len(publication.receipts) == 1
    assert publication.spooled == ()


def test_a_paused_broker_is_tried_when_the_spool_refuses(tmp_path: Path) -> None:
    broker = FakeBroker(refuses_login="not now")
    with broker:
        site = Site(tmp_path, broker.url, spool_max_messages=1)
        site.publish()
        broker.refuses_login = ""

        publication = site.publish()

    assert len(publication.receipts) == 1
    assert publication.failures == ()


def test_paused_brokers_are_tried_last(tmp_path: Path) -> None:
    with FakeBroker(refuses_login="not now") as resting, FakeBroker() as awake:
        Site(tmp_path, resting.url).publish()

        publication = Site(tmp_path, resting.url, awake.url).publish(spool=None)

    assert resting.connections == 1
    assert len(publication.receipts) == 1


def test_each_broker_is_reported_once_when_none_accepted_the_message(tmp_path: Path) -> None:
    dead, other = dead_url(), dead_url()
    Site(tmp_path, dead).publish()

    with pytest.raises(NoBrokerTookIt) as caught:
        Site(tmp_path, dead, other).publish(spool=None)

    failures = caught.value.publication.failures
    assert sorted(failure.broker for failure in failures) == sorted([dead, other])
    assert {failure.reason for failure in failures} == {"connection refused"}


def test_a_pause_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker(refuses_login="not now")
    with broker:
        site = Site(tmp_path, broker.url)
        site.publish()
        broker.refuses_login = ""
        monkeypatch.setattr("sam_pipeline.publisher.delivery.memory.Memory", _later_memory(6))

        publication = site.publish()

    assert len(publication.receipts) == 1


def _later_memory(seconds: float) -> Any:
    from sam_pipeline.publisher.delivery.memory import Memory

    def later(*arguments: Any, **keywords: Any) -> Memory:
        return Memory(*arguments, clock=lambda: time.time() + seconds, **keywords)

    return later


def test_no_other_name_is_looked_up_when_the_first_broker_answers(
    tmp_path: Path, looked_up: list[str]
) -> None:
    with FakeBroker() as broker:
        site = Site(tmp_path, named(broker.url), "stomp://other.invalid")
        site.publish()
        site.publish()

    assert looked_up == ["msg.invalid"]


def test_the_name_is_looked_up_when_its_remembered_address_fails(
    tmp_path: Path, looked_up: list[str]
) -> None:
    with FakeBroker() as broker:
        site = Site(tmp_path, named(broker.url))
        site.publish()
        file = tmp_path / "state" / FILE
        file.write_text(file.read_text().replace("127.0.0.1", "127.0.0.77"))
        publication = site.publish()

    assert looked_up == ["msg.invalid", "msg.invalid"]
    assert "(127.0.0.77): connection refused" in str(publication.failures[0])
    assert len(publication.receipts) == 1


def test_a_changed_address_is_used_after_an_hour(
    tmp_path: Path, looked_up: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeBroker() as broker:
        site = Site(tmp_path, named(broker.url))
        site.publish()
        file = tmp_path / "state" / FILE
        file.write_text(file.read_text().replace("127.0.0.1", "127.0.0.77"))
        monkeypatch.setattr("sam_pipeline.publisher.delivery.memory.Memory", _later_memory(3601))
        publication = site.publish()

    assert publication.failures == ()
    assert len(publication.receipts) == 1


def test_a_name_that_does_not_resolve_is_paused_too(tmp_path: Path, looked_up: list[str]) -> None:
    site = Site(tmp_path, "stomp://no-such.invalid")

    site.publish()
    publication = site.publish()

    assert looked_up == ["no-such.invalid"]
    assert "name resolution failed" in publication.failures[0].reason
    assert site.spooled == 2


def test_shuffled_brokers_share_the_load_and_listed_ones_do_not(tmp_path: Path) -> None:
    with FakeBroker() as first, FakeBroker() as second:
        for number in range(24):
            Site(tmp_path / f"a{number}", first.url, second.url, order="shuffled").publish()
        shuffled = Counter({"one": len(first.taken), "two": len(second.taken)})
        for number in range(4):
            Site(tmp_path / f"b{number}", first.url, second.url).publish()

    assert min(shuffled.values()) > 0  # fails by chance once in 8 million
    assert len(first.taken) - shuffled["one"] == 4


def test_shuffled_brokers_are_sticky_too(tmp_path: Path) -> None:
    with FakeBroker() as first, FakeBroker() as second:
        site = Site(tmp_path, first.url, second.url, order="shuffled")
        for _ in range(10):
            site.publish()

    assert sorted([len(first.taken), len(second.taken)]) == [0, 10]


def test_the_memory_contains_no_secret(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("canary\n")
    password.chmod(0o600)

    with FakeBroker(refuses_login="no") as broker:
        url = broker.url.replace("//", "//somebody@")
        Site(tmp_path, url, password_file=password).publish()

    text = (tmp_path / "state" / FILE).read_text()
    assert "canary" not in text
    assert "somebody" not in text


def test_an_unreachable_broker_uses_its_share_of_the_deadline_and_is_then_paused(
    tmp_path: Path,
) -> None:
    with FakeBroker(mute=True) as mute, FakeBroker() as broker:
        site = Site(tmp_path, mute.url, broker.url, timeout_s=1.0)
        started = time.monotonic()
        site.publish()
        first_s = time.monotonic() - started
        later = site.publish()
        later_s = time.monotonic() - started - first_s

    assert 0.4 < first_s < 1.2
    assert later_s < 0.4
    assert later.failures == ()


def test_a_broker_that_was_not_tried_is_reported_and_not_paused(tmp_path: Path) -> None:
    with FakeBroker() as broker:
        site = Site(tmp_path, broker.url)
        late = site.publish(timeout_s=1e-9)
        in_time = site.publish()

    assert [failure.reason for failure in late.failures] == ["not tried: no time left"]
    assert broker.connections == 1
    assert len(in_time.receipts) == 1


def test_a_broker_behind_a_proxy_is_looked_up_once_there_is_no_proxy(
    tmp_path: Path, looked_up: list[str]
) -> None:
    with FakeBroker() as broker:
        site = Site(tmp_path, named(broker.url))
        site.publish()
        file = tmp_path / "state" / FILE
        file.write_text(file.read_text().replace(" 127.0.0.1", " "))  # as after a proxy

        site.publish()

    assert looked_up == ["msg.invalid", "msg.invalid"]
    assert len(broker.taken) == 2
