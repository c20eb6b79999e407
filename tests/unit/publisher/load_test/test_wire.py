"""Reading the messages of a load test from the bytes of a broker."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.load_test.wire import ArrivalReader, LoadArrival
from sam_pipeline.schema.net.stomp_frame import Frame, encode

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
    data = message(0) + b"\n" + message(1, body=b"") + encode("RECEIPT", {"receipt-id": "r"})
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    reader, arrivals, frames = read(*(data[a:b] for a, b in itertools.pairwise(edges)))

    assert [arrival[:4] for arrival in arrivals] == [(7, 2, 0, SENT_US), (7, 2, 1, SENT_US)]
    assert frames == [Frame("RECEIPT", {"receipt-id": "r"})]
    assert reader.bytes == len(data)
    assert reader.ack == b"ID\\c1"  # as the broker wrote it


def test_crlf_and_a_body_that_looks_like_headers_are_read() -> None:
    hostile = b"\nsamLoadTest:ab12.7.2.9.1\ntimestamp:5\n"
    head, _, body = message(3, body=hostile).partition(b"\n\n")
    crlf = head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body

    _, arrivals, _ = read(message(3, body=hostile), crlf)

    assert [(arrival.number, arrival.broker_us) for arrival in arrivals] == [(3, 0), (3, 0)]


@pytest.mark.parametrize(
    ("headers", "broker_us"),
    [
        ({}, 0),
        ({"timestamp": "1700000000125"}, 1_700_000_000_125_000),  # ActiveMQ and Artemis
        ({"timestamp": "1700000000"}, 1_700_000_000_000_000),  # RabbitMQ
        ({"timestamp_in_ms": "1700000000125"}, 1_700_000_000_125_000),  # its plugin
    ],
)
def test_the_time_of_the_broker_is_read_in_every_unit(
    headers: dict[str, str], broker_us: int
) -> None:
    _, (arrival,), _ = read(message(0, **headers))

    assert arrival.broker_us == broker_us


def test_messages_of_others_are_counted_and_acked_but_are_not_ours() -> None:
    reader, arrivals, _ = read(message(0, run="ffff"), encode("MESSAGE", {"ack": "1"}, b"else"))

    assert arrivals == []
    assert reader.foreign == 2
    assert reader.ack == b"1"


def test_an_error_of_the_broker_is_a_frame_with_its_text() -> None:
    _, _, frames = read(encode("ERROR", {"message": "no such queue"}, b"more"))

    assert frames == [Frame("ERROR", {"message": "no such queue"}, b"more")]
