"""What a load test measures, its figures and their page, and which broker it may burden."""

from __future__ import annotations

import io
import itertools
import math
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.errors import BrokerUnavailable, PublishUsage
from sam_pipeline.publisher.load_test.conduct import (
    LIMIT,
    QUIET,
    processor_times,
)
from sam_pipeline.publisher.load_test.counting import (
    MAX_LISTED,
    Durations,
    Sent,
    balance,
    bucket,
    count,
    gaps,
    middle,
)
from sam_pipeline.publisher.load_test.plan import (
    MATRIX,
    QUEUE,
    SCENARIOS,
    TOPIC,
    WARM_UP,
    LoadCell,
    LoadSelection,
    bounds_text,
    leads_to_loopback,
    plan,
    target_of,
)
from sam_pipeline.publisher.load_test.wire import ArrivalReader, LoadArrival
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.frame import Frame, encode
from tests.support.load_test import arrivals, figures

SENT_US = 1_700_000_000_123_456


def message(number: int, run: str = "ab12", body: bytes = b"xxx", **headers: str) -> bytes:
    ours = {"samLoadTest": f"{run}.7.2.{number}.{SENT_US}", "ack": f"ID\\c{number}"}
    return encode("MESSAGE", {**headers, **ours}, body).replace(b"\\\\c", b"\\c")


def read(*pieces: bytes) -> tuple[ArrivalReader, list[LoadArrival], list[Frame]]:
    arrivals: list[LoadArrival] = []
    reader = ArrivalReader("ab12", arrivals.append)
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    return reader, arrivals, frames


@given(st.lists(st.integers(0, 400), max_size=8))
def test_pieces_of_any_size_give_the_same_messages(cuts: list[int]) -> None:
    hostile = b"\nsamLoadTest:ab12.7.2.9.1\ntimestamp:5\n"
    error = encode("ERROR", {"message": "no such queue"}, b"more")
    data = message(0) + b"\n" + message(0, run="ffff") + message(1, body=hostile) + error
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    reader, arrivals, frames = read(*(data[a:b] for a, b in itertools.pairwise(edges)))

    assert [arrival[:4] for arrival in arrivals] == [(7, 2, 0, SENT_US), (7, 2, 1, SENT_US)]
    assert frames == [Frame("ERROR", {"message": "no such queue"}, b"more")]
    assert (reader.bytes, reader.foreign) == (len(data), 1)
    assert reader.ack == b"ID\\c1"  # as the broker wrote it


@pytest.mark.parametrize(
    ("headers", "broker_us"),
    [
        ({}, 0),
        ({"timestamp": "1700000000125"}, 1_700_000_000_125_000),  # ActiveMQ and Artemis
        ({"timestamp": "1700000000"}, 1_700_000_000_000_000),  # RabbitMQ
        ({"timestamp_in_ms": "1700000000125"}, 1_700_000_000_125_000),  # its plugin
    ],
)
def test_the_time_of_the_broker_may_be_in_any_unit(headers: dict[str, str], broker_us: int) -> None:
    _, (arrival,), _ = read(message(0, **headers).replace(b"\n", b"\r\n", 5))

    assert arrival.broker_us == broker_us


def test_each_consumer_of_a_topic_misses_its_own_messages_and_some_of_many_are_listed() -> None:
    first = arrivals([20], *((0, number) for number in range(20) if number not in (3, 4, 5, 19)))
    second = arrivals([20], *((0, number) for number in range(20)))

    account = balance([Sent(20, 20)], [first, second], shared=False)

    assert (account.expected, account.delivered, account.missing) == (40, 36, 4)
    assert account.missing_ids == [
        "producer 0 message 3 to 5 at consumer 0",
        "producer 0 message 19 at consumer 0",
    ]
    half = arrivals([1000], *((0, number) for number in range(0, 1000, 2)))
    account = balance([Sent(1000, 1000)], [half], shared=False)
    assert (account.missing, len(account.missing_ids)) == (500, MAX_LISTED)


def test_a_message_of_a_queue_may_be_at_any_consumer_and_at_one_alone() -> None:
    first, second = arrivals([5], (0, 0), (0, 0), (0, 1)), arrivals([5], (0, 1), (0, 2), (0, 3))

    account = balance([Sent(5, 5)], [first, second], shared=True)

    assert (account.expected, account.delivered, account.missing) == (5, 4, 1)
    assert (account.missing_ids, account.duplicates) == (["producer 0 message 4"], 2)
    assert account.duplicate_ids == [
        "producer 0 message 0 at consumer 0",
        "producer 0 message 1 at two consumers",
    ]


def test_a_message_that_was_never_confirmed_is_not_lost() -> None:
    account = balance([Sent(10, 4)], [arrivals([10], (0, 0), (0, 1), (0, 2))], shared=False)

    assert (account.missing, account.unconfirmed) == (1, 6)


@pytest.mark.parametrize("message", [(0, 16), (2, 0), (0, 10**12)])
def test_a_message_that_nobody_sends_needs_no_memory(message: tuple[int, int]) -> None:
    with pytest.raises(IndexError):
        arrivals([10, 10], message)


@given(st.lists(st.integers(0, 99)), st.integers(0, 100))
def test_the_bitmaps_agree_with_sets(numbers: list[int], limit: int) -> None:
    found = arrivals([100], *((0, number) for number in numbers))
    expected = {number for number in numbers if number < limit}

    (bitmap,) = found.bitmaps()

    missing = [n for first, last in gaps(bitmap, limit) for n in range(first, last + 1)]

    assert found.count == count(bitmap) == len(set(numbers))
    assert found.duplicates == len(numbers) - len(set(numbers))
    assert count(bitmap & ((1 << limit) - 1)) == len(expected)
    assert missing == sorted(set(range(limit)) - expected)


durations = st.integers(0, 365 * 86400 * 1_000_000)


@given(durations, durations)
def test_a_bucket_is_at_most_1_percent_away_and_buckets_are_ordered(one: int, other: int) -> None:
    assert abs(middle(bucket(one)) - one) <= one * 0.01
    assert (bucket(one) < bucket(other)) <= (one < other)
    assert (one <= other) <= (bucket(one) <= bucket(other))


@given(st.lists(durations, min_size=1))
def test_the_quantiles_are_those_of_the_sorted_values(values: list[int]) -> None:
    durations = Durations()
    for value in values:
        durations.add(value)

    found = durations.quantiles()

    assert found is not None
    for name, share in (("median", 0.5), ("p99", 0.99)):
        expected = sorted(values)[math.ceil(len(values) * share) - 1] / 1000
        assert abs(found[name] - expected) <= expected * 0.01 + 0.001
    assert found["maximum"] == round(max(values) / 1000, 3)


def test_rates_are_those_until_the_last_receipt_and_the_last_arrival() -> None:
    found = figures()

    assert (found["sent_per_s"], found["received_per_s"]) == (100.0, 50.0)
    assert (found["payload_kb_per_s"], found["wire_kb_per_s"]) == (50.0, 150.0)
    assert found["series"]["sent_per_s"] == [120.0, 80.0]
    assert found["series"]["received_per_s"] == [200.0, 0.0]
    assert found["lag_ms"]["maximum"] == 1.5
    assert found["series"]["lag_median_ms"][1] is None
    assert found["to_broker_ms"] is None


@pytest.mark.parametrize(
    ("ended_by", "lost", "late", "listed"), [(QUIET, 10, 0, 1), (LIMIT, 0, 10, 0)]
)
def test_what_was_still_arriving_is_late(ended_by: str, lost: int, late: int, listed: int) -> None:
    found = figures(arrived=90, ended_by=ended_by)

    assert (found["lost"], found["late"], len(found["lost_ids"])) == (lost, late, listed)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "broker"),
        ({"busy": 0.97}, "processors"),
        ({"busy": 0.97, "processor_s": 0.95}, "tool"),
        ({"rate": 100.0, "processor_s": 0.95}, "rate"),
        ({"rate": 200.0}, "broker"),
    ],
)
def test_the_limit_of_a_cell_is_named(given: dict[str, float], expected: str) -> None:
    found = figures(**given)  # type: ignore[arg-type]

    assert found["processor"]["limited_by"] == expected


def test_the_matrix_is_the_published_one_for_each_kind_and_mode() -> None:
    warm_up, *cells = plan(LoadSelection(kinds=[TOPIC, QUEUE], persistence=[True, False]))

    assert warm_up.scenario == WARM_UP
    assert {cell.producers for cell in cells} == {1, 2, 3, 5, 10, 40}
    assert {cell.consumers for cell in cells} == {1, 2, 3, 5, 10, 80}
    assert {cell.size_bytes for cell in cells} == {0, 100, 1000, 10_000}
    assert len({cell[:6] for cell in cells}) == len(cells) == 4 * 6 * 6 * 4
    assert {(cell.kind, cell.persistent) for cell in plan(LoadSelection())} == {(TOPIC, True)}


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


def test_only_loopback_is_allowed() -> None:
    allowed = ("127.9.9.9", "::1", "::ffff:127.0.0.1")
    others = (OTHER, "0.0.0.0", "::", "::ffff:192.0.2.7", "fe80::1")

    assert [ip for ip in (*allowed, *others) if leads_to_loopback(ip)] == [*allowed]


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
