"""The publisher's way through an HTTP door: requests, and the outcome of each message."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path

import pytest

from sam_pipeline.publisher import publish
from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.rest.door import MAX_BATCH, MAX_BATCH_BYTES, Door
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.door_stand_in import (
    TOKEN,
    DoorStandIn,
    Outcome,
    problem,
    problem_reply,
    stored,
)
from tests.support.brokers.http_stand_in import HttpStandIn, reply
from tests.support.brokers.sending import rejection_of, sent_to
from tests.support.brokers.stand_in import HOST
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message

TOPIC = "/topic/grid.probe.metricOutput"
SOON_S = 5.0


@pytest.fixture(autouse=True)
def no_secrets_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAM_PUBLISHER_TOKEN", "BEARER_TOKEN", "BEARER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def messages_of(number: int, **headers: str) -> list[Message]:
    return [metric_message(destination=TOPIC, **headers) for _ in range(number)]


def url_of(server: HttpStandIn) -> str:
    return f"sam+http://{HOST}:{server.port}"


def failure_of(url: str, config: PublisherConfig | None = None, number: int = 1) -> str:
    """The reason of the BrokerUnavailable."""
    with pytest.raises(BrokerUnavailable) as caught:
        sent_to(url, messages_of(number), config)
    return caught.value.reason


def with_token(tmp_path: Path, text: str = TOKEN) -> PublisherConfig:
    path = tmp_path / "token"
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return PublisherConfig(token_file=path)


def test_messages_arrive_whole_with_all_their_headers() -> None:
    text, binary = messages_of(2, nagios_host="n:1", note="äöü\n")
    binary = Message(binary.headers, b"\0\xff\xfe")

    with DoorStandIn() as door:
        assert sent_to(door.url, [text, binary]) == {0: None, 1: None}

    assert door.stored == [text, binary]
    (request,) = door.asked
    assert (request.method, request.target) == ("POST", "/v1/messages")
    assert request.headers["content-type"] == "application/x-ndjson"


def test_many_messages_share_a_request_and_a_connection() -> None:
    messages = messages_of(2 * MAX_BATCH + 1)

    with DoorStandIn() as door:
        outcome = sent_to(door.url, messages)

    assert outcome == dict.fromkeys(range(len(messages)))
    assert [len(request) for request in door.requests] == [MAX_BATCH, MAX_BATCH, 1]
    assert door.connections == 1


def test_large_messages_get_smaller_requests() -> None:
    messages = [
        Message(message.headers, b"x" * (MAX_BATCH_BYTES // 2 - 500)) for message in messages_of(3)
    ]

    with DoorStandIn() as door:
        sent_to(door.url, messages)

    assert [len(request) for request in door.requests] == [2, 1]


def test_a_long_request_is_compressed_and_a_short_one_is_not() -> None:
    with DoorStandIn() as door:
        sent_to(door.url, messages_of(1))
        sent_to(door.url, messages_of(100))

    short, long = door.asked
    assert "content-encoding" not in short.headers
    assert long.headers["content-encoding"] == "gzip"
    assert len(long.body) < len(short.body) * 100 / 3
    assert len(door.stored) == 101


@pytest.mark.parametrize("status", [400, 403, 413, 415, 422])
def test_a_refused_message_is_rejected_with_its_reason_and_the_others_are_stored(
    status: int,
) -> None:
    messages = messages_of(5)
    bad = {messages[1].message_id, messages[4].message_id}

    def outcome_of(message: Message) -> Outcome:
        is_bad = message.message_id in bad
        return problem(status, "not a record") if is_bad else stored(message)

    with DoorStandIn(outcome_of=outcome_of) as door:
        outcome = sent_to(door.url, messages)

    rejected = f"{status} Title: not a record"
    assert outcome == {0: None, 1: rejected, 2: None, 3: None, 4: rejected}
    assert len(door.requests) == 1, "no message was sent twice"


@pytest.mark.parametrize("status", [401, 408, 429, 500, 503, 504])
def test_a_message_that_could_not_be_taken_now_makes_the_door_unavailable(status: int) -> None:
    messages = messages_of(3)
    confirmed = []

    def outcome_of(message: Message) -> Outcome:
        is_first = message.message_id == messages[0].message_id
        return stored(message) if is_first else problem(status, "full")

    with DoorStandIn(outcome_of=outcome_of) as door:
        address = BrokerAddress(parse_broker(door.url), HOST)
        with (
            closing(Door(address, PublisherConfig(), Deadline.after(SOON_S))) as transport,
            pytest.raises(BrokerUnavailable, match=f"{status} Title: full"),
        ):
            confirmed.extend(transport.send(messages, Deadline.after(SOON_S)))

    assert confirmed == [0]


def test_a_rejection_is_reported_before_the_door_counts_as_unavailable(tmp_path: Path) -> None:
    messages = messages_of(2)

    def outcome_of(message: Message) -> Outcome:
        is_first = message.message_id == messages[0].message_id
        return problem(503, "full") if is_first else problem(422, "bad")

    with DoorStandIn(outcome_of=outcome_of) as door:
        publication = publish(messages, PublisherConfig(brokers=(door.url,), spool=tmp_path))

    (rejection,), (failure,) = publication.rejections, publication.failures
    assert (rejection.message, rejection.reason) == (messages[1], "422 Title: bad")
    assert failure.reason == "503 Title: full"
    assert len(publication.spooled) == 2
    assert len(door.requests) == 1, "the full door is not asked again"


@pytest.mark.parametrize(
    ("answer", "stem"),
    [
        (reply(200, b""), "answered for 0 of 1 message"),
        (reply(200, b"yes\n"), "its answer is not a JSON object"),
        (reply(200, b"[200]\n"), "its answer is not a JSON object"),
        (reply(200, b'{"status": "200"}\n'), "200"),
        (reply(200, b'{"status": 200, "messageId": "another"}\n'), "answered for another message"),
        (reply(200, b'{"status": 200}\n'), "answered for another message"),
        (reply(204), "204"),
        (problem_reply(401, "a token is required"), "401 Reason: a token is required"),
        (problem_reply(503, "no database", Retry_After="5"), "503 Reason: no database (again in 5"),
        (problem_reply(429, "full", Retry_After="1"), "429 Reason: full (again in 1 s)"),
        (problem_reply(404, "no such path"), "404 Reason: no such path (no HTTP door"),
        (reply(415, b"no gzip"), "415 Reason: no gzip"),
        (reply(500), "500 Reason"),
    ],
)
def test_only_a_confirmation_of_this_message_counts(answer: bytes, stem: str) -> None:
    with HttpStandIn(lambda asked: answer) as server:
        assert failure_of(url_of(server)).startswith(stem)


def test_messages_without_an_answer_are_sent_again_if_others_have_one() -> None:
    messages = messages_of(7)

    with DoorStandIn(max_answers=3) as door:
        assert sent_to(door.url, messages) == dict.fromkeys(range(7))

    assert [len(request) for request in door.requests] == [7, 4, 1]


@pytest.mark.parametrize(
    ("closes", "reason"), [(True, "not HTTP, or truncated"), (False, "no answer in time")]
)
def test_the_lines_of_an_answer_that_was_cut_count(closes: bool, reason: str) -> None:
    """A door that is slower than the deadline, or crashes, makes progress all the same."""
    messages = messages_of(50)
    lines = [json.dumps(stored(message)) for message in messages[:40]]
    cut = reply(200, "\n".join(lines).encode()).replace(b"Length: ", b"Length: 9")
    confirmed = []

    with HttpStandIn(lambda asked: cut, closes_when_idle=closes) as server:
        address = BrokerAddress(parse_broker(url_of(server)), HOST)
        with (
            closing(Door(address, PublisherConfig(), Deadline.after(SOON_S))) as transport,
            pytest.raises(BrokerUnavailable, match=reason),
        ):
            confirmed.extend(transport.send(messages, Deadline.after(0.5)))

    assert confirmed == list(range(len(confirmed)))
    assert 20 < len(confirmed) < 40


def test_messages_for_which_there_was_no_room_are_sent_again_while_others_are_stored() -> None:
    messages = messages_of(10)

    with DoorStandIn(room=3) as door:
        assert sent_to(door.url, messages) == dict.fromkeys(range(10))

    assert [len(request) for request in door.requests] == [10, 7, 4, 1]


def test_a_request_that_is_too_large_is_halved_until_it_fits() -> None:
    messages = messages_of(10)

    with DoorStandIn(max_lines=3) as door:
        assert sent_to(door.url, messages) == dict.fromkeys(range(10))

    assert sorted(message.message_id for message in door.stored) == sorted(
        message.message_id for message in messages
    )


def test_a_message_whose_request_is_refused_is_rejected() -> None:
    with HttpStandIn(lambda asked: problem_reply(413, "at most 4 MiB")) as server:
        assert rejection_of(url_of(server), messages_of(1)[0]) == "413 Reason: at most 4 MiB"


def test_a_sender_that_may_not_send_gets_each_message_rejected_by_one_request() -> None:
    with HttpStandIn(lambda asked: problem_reply(403, "no publisher")) as server:
        outcome = sent_to(url_of(server), messages_of(5))

    assert outcome == dict.fromkeys(range(5), "403 Reason: no publisher")
    assert len(server.asked) == 1


def test_dead_letters_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    letters = [
        {"number": 2, "reason": "bad-value", "text": "metricStatus: 'FINE'"},
        {"number": 3, "reason": "bad-value", "text": "…"},
    ]
    (message,) = messages_of(1)

    with DoorStandIn(outcome_of=lambda sent: stored(sent, deadLetters=letters)) as door:
        assert sent_to(door.url, [message]) == {0: None}

    (record,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert record.getMessage() == (
        f"message {message.message_id}: 2 dead letters, the first because of"
        " bad-value: metricStatus: 'FINE'"
    )


# Credentials


def test_a_token_goes_with_every_request(tmp_path: Path) -> None:
    with DoorStandIn(token=TOKEN) as door:
        assert sent_to(door.url, messages_of(1), with_token(tmp_path)) == {0: None}
        without = failure_of(door.url)

    assert without == "401 Reason: a token is required"


def test_a_wrong_token_is_in_no_error(tmp_path: Path) -> None:
    with DoorStandIn(token=TOKEN) as door:
        reason = failure_of(door.url, with_token(tmp_path, "canary"))

    assert door.asked[0].headers["authorization"] == "Bearer canary"
    assert "canary" not in reason


def test_a_token_is_never_sent_in_plain_text_to_another_machine(tmp_path: Path) -> None:
    config = with_token(tmp_path)

    reason = failure_of("sam+http://door.example.org", config)

    assert "the token would be sent in plain text: use sam+https://" in reason
    broker = parse_broker("sam+http://door.example.org")
    assert config._replace(insecure=True).door_token(broker) == TOKEN


def test_a_token_for_other_services_is_not_sent_to_a_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARER_TOKEN", "for-a-storage-element")

    with DoorStandIn() as door:
        sent_to(door.url, messages_of(1))

    assert "authorization" not in door.asked[0].headers


def test_a_door_over_tls_may_require_our_certificate(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    trusting = PublisherConfig(ca_file=files.ca_file)
    ours = files.client()

    with DoorStandIn(context=files.server(wants_ours=True)) as door:
        without = failure_of(door.url, trusting)
        known = trusting._replace(
            certificate_file=files.certificate_file(ours), key_file=files.key_file(ours)
        )
        assert sent_to(door.url, messages_of(1), known) == {0: None}

    assert "it requires a client certificate" in without


def test_through_a_proxy_the_problem_of_a_door_is_not_taken_for_the_proxys() -> None:
    with HttpStandIn(lambda asked: problem_reply(503, "no database")) as proxy:
        config = PublisherConfig(proxy=f"http://{HOST}:{proxy.port}")
        reason = failure_of("sam+http://door.example.org", config)

    assert reason == "503 Reason: no database"
    assert proxy.asked[0].target == "http://door.example.org:8080/v1/messages"


def test_a_preview_is_the_request_without_its_secret(tmp_path: Path) -> None:
    (message,) = messages_of(1)
    broker = parse_broker("sam+https://door.example.org")

    shown = kind_of(broker).preview(broker, with_token(tmp_path), message).decode()

    assert shown.startswith("POST /v1/messages HTTP/1.1\r\nHost: door.example.org:8443\r\n")
    assert "\r\nAuthorization: ***\r\n" in shown
    assert message.message_id in shown
    assert TOKEN not in shown
