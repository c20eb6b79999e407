"""Messages that a source could not take whole, and the names of destinations."""

from __future__ import annotations

import hashlib

import pytest

from sam_pipeline.schema.messages.destination import name_of_destination, problem_of_destination
from sam_pipeline.schema.messages.message import CLASS, MESSAGE_ID, Message
from sam_pipeline.schema.messages.refused import (
    KEPT_BYTES,
    TOO_LARGE,
    LimitedBody,
    refusal_of,
)

HEADERS = {CLASS: "metricOutput"}


def message_of(*pieces: bytes, limit: int, **headers: str) -> Message:
    body = LimitedBody(limit)
    for piece in pieces:
        body.add(piece)
    return body.message({**HEADERS, **headers})


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"ab", b"", b"cd"], [b"a" * KEPT_BYTES]])
def test_a_body_within_the_limit_or_that_can_be_kept_is_whole(pieces: list[bytes]) -> None:
    message = message_of(*pieces, limit=4)
    assert message == Message(HEADERS, b"".join(pieces))
    assert refusal_of(message) is None


def test_of_a_larger_body_the_beginning_the_length_and_the_digest_are_kept() -> None:
    pieces = [b"a" * KEPT_BYTES, b"b" * KEPT_BYTES, b"c"]

    message = message_of(*pieces, limit=2 * KEPT_BYTES, **{MESSAGE_ID: "m-1"})

    refusal = refusal_of(message)
    assert refusal and refusal.reason == TOO_LARGE
    assert f"{2 * KEPT_BYTES + 1} bytes" in refusal.text
    assert hashlib.sha256(b"".join(pieces)).hexdigest() in refusal.text
    assert message.body == pieces[0]
    assert (message.message_id, message.message_class) == ("m-1", "metricOutput")
    # Two without an id that begin alike are two messages.
    first, other = (message_of(bytes(KEPT_BYTES), end, limit=KEPT_BYTES) for end in (b"1", b"2"))
    assert first.body == other.body
    assert first.message_id != other.message_id


GOOD = (
    *("/topic/grid.probe.metricOutput", "/queue/Consumer.site-a.VirtualTopic.x", "/topic/a#b"),
    *("/topic/x::site-a", "/topic/site/probes", "/queue/m\u00e9trique", "/amq/queue/own"),
    "/exchange/grid/key",
)


def test_a_topic_a_queue_and_the_forms_of_rabbitmq_are_destinations() -> None:
    assert [problem_of_destination(text) for text in GOOD] == [None] * len(GOOD)
    for name in ("", "/", "a b", " ", "a\nb", "a\0", "a\u00a0b", "a\u202eb"):
        assert problem_of_destination(f"/topic/{name}")
        assert problem_of_destination(f"/topic/{name}", wildcards=True)
    # A wildcard can only be subscribed to.
    for text in ("/topic/*", "/topic/a.*.b", "/queue/a.>", "/topic/a.#"):
        assert "wildcard" in str(problem_of_destination(text))
        assert problem_of_destination(text, wildcards=True) is None


DELIVERED = {
    "/topic/grid.probe.x": "grid.probe.x",
    "/amq/queue/x": "x",
    "/exchange/amq.topic/x.y": "x.y",
    "x": "x",
    "/queue/Consumer.site-a.VirtualTopic.x.y": "VirtualTopic.x.y",
    "/queue/Consumer.a.b.VirtualTopic.x": "Consumer.a.b.VirtualTopic.x",
    "/queue/Consumer.VirtualTopic.x": "Consumer.VirtualTopic.x",
}


def test_a_destination_has_the_same_name_however_a_broker_delivers() -> None:
    assert {text: name_of_destination(text) for text in DELIVERED} == DELIVERED
