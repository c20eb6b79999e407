"""What a load test measures, the bounds that are printed before, and which broker it may burden."""

from __future__ import annotations

import io
import socket

import pytest

from sam_pipeline.publisher.errors import BrokerUnavailable, PublishUsage
from sam_pipeline.publisher.load_test.conduct import processor_times
from sam_pipeline.publisher.load_test.plan import (
    MATRIX,
    QUEUE,
    SCENARIOS,
    TOPIC,
    WARM_UP,
    LoadCell,
    LoadSelection,
    bounds_text,
    plan,
)
from sam_pipeline.publisher.load_test.target import leads_to_loopback, target_of
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.deadline import Deadline


def test_the_matrix_is_the_published_one_for_each_kind_and_mode() -> None:
    warm_up, *cells = plan(LoadSelection())

    assert warm_up.scenario == WARM_UP
    assert {cell.producers for cell in cells} == {1, 2, 3, 5, 10, 40}
    assert {cell.consumers for cell in cells} == {1, 2, 3, 5, 10, 80}
    assert {cell.size_bytes for cell in cells} == {0, 100, 1000, 10_000}
    assert len(cells) == 6 * 6 * 4
    assert {(cell.kind, cell.persistent) for cell in cells} == {(TOPIC, True)}
    _, *cells = plan(LoadSelection(kinds=[TOPIC, QUEUE], persistence=[True, False]))
    assert len(cells) == 4 * 6 * 6 * 4
    assert len({(cell.kind, cell.persistent) for cell in cells}) == 4


def test_the_bounds_apply_to_every_cell_and_are_printed_for_all_of_them() -> None:
    for name in (MATRIX, *SCENARIOS):
        cells = plan(LoadSelection(scenarios=[name], messages=7, seconds=0.5))
        assert {(cell.messages, cell.seconds) for cell in cells} == {(7, 0.5)}
    both = [LoadCell(MATRIX, kind, True, 1, 80, 10_000, 1000, 5.0) for kind in (TOPIC, QUEUE)]

    text = bounds_text(both)

    for part in ("2 cells", "2 000 messages sent, 81 000 received", "810 MB", "10 s of sending"):
        assert part in text


def test_the_producers_share_the_messages() -> None:
    cell = LoadCell(MATRIX, TOPIC, True, 3, 1, 0, 10, 1.0)

    assert [cell.share(number) for number in range(3)] == [4, 3, 3]


def test_all_kinds_of_work_of_the_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "cpu  1 2 3 4 5 6 7 8 9 10\n"
    monkeypatch.setattr("builtins.open", lambda *_: io.StringIO(text))

    assert processor_times() == (1 + 2 + 3 + 6 + 7 + 8, 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8)


LOOPBACK, OTHER = "127.0.0.1", "192.0.2.7"
NAME = "msg.example.org"


def target(*brokers: str, confirmed: str | None = None, **settings: str) -> str:
    config = PublisherConfig(brokers=brokers, **settings)
    return target_of(config, confirmed, Deadline.after(30)).ip


@pytest.mark.parametrize("ip", ["127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_allowed(ip: str) -> None:
    assert leads_to_loopback(ip)


@pytest.mark.parametrize("ip", [OTHER, "0.0.0.0", "::", "::ffff:192.0.2.7", "fe80::1"])
def test_no_other_address_is_loopback(ip: str) -> None:
    assert not leads_to_loopback(ip)


def test_a_broker_beyond_loopback_is_refused_unless_it_is_named() -> None:
    url = f"stomp://{OTHER}:61613"

    with pytest.raises(PublishUsage, match=f"nothing was sent.* --yes-this-broker {OTHER}"):
        target(url)
    assert target(url, confirmed=OTHER) == OTHER
    assert target(url, confirmed=f"{OTHER}:61613") == OTHER


@pytest.mark.parametrize("other", [OTHER, "2001:db8::1"])
def test_every_address_of_a_name_counts(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    found = [LOOPBACK, other]
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _, *more: [info for ip in found for info in real(ip, *more)]
    )

    with pytest.raises(PublishUsage, match=f"{other} is not on loopback"):
        target(f"stomp://{NAME}")
    for confirmed in ("example.org", f"{NAME}:61614"):
        with pytest.raises(PublishUsage, match=f"but the broker is {NAME}:61613"):
            target(f"stomp://{NAME}", confirmed=confirmed)
    found[1] = "127.0.0.2"
    assert target(f"stomp://{NAME}") == LOOPBACK


@pytest.mark.parametrize(
    ("brokers", "proxy", "stem"),
    [
        (["activemq-rest+http://localhost:8161"], None, "which needs STOMP"),
        (["spool:///tmp/spool"], None, "which needs STOMP"),
        ([], None, "no broker to test"),
        (["stomp://a", "stomp://b"], None, "choose one of stomp://a:61613, stomp://b:61613"),
        (["stomp://127.0.0.1"], "http://proxy:3128", "does not go through a proxy"),
        (["stomp://no-such-host.invalid"], None, "name resolution failed"),
    ],
)
def test_what_can_not_be_tested_is_named(brokers: list[str], proxy: str | None, stem: str) -> None:
    with pytest.raises((PublishUsage, BrokerUnavailable), match=stem):
        target(*brokers, **({"proxy": proxy} if proxy else {}))
