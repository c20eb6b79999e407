"""HTTP: kept connections, unusual answers and deadlines, and the publisher's way through a door."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sam_pipeline.publisher import publish
from sam_pipeline.publisher.brokers.door import MAX_BATCH, MAX_BATCH_BYTES, Door
from sam_pipeline.publisher.brokers.http import (
    HttpRequest,
    HttpSession,
    HttpTransport,
    preview,
)
from sam_pipeline.publisher.brokers.tokens import door_token
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import Target, parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.secret_file import Secret
from tests.support.brokers.door_stand_in import (
    TOKEN,
    DoorStandIn,
    Outcome,
    problem,
    problem_reply,
    stored,
)
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply, reply
from tests.support.brokers.stand_in import HOST
from tests.support.publishing import TOPIC, config_for, ids, messages, secret, sent_to, sized

ASK = HttpRequest("POST", "/path?x=1", {"Content-Type": "text/plain"}, b"body")
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BEHIND_A_PROXY = parse_broker("activemq-rest+http://broker.example.org/api/message")


def soon() -> Deadline:
    return Deadline.after(30)


def always(answer: bytes) -> Callable[[Asked], bytes]:
    return lambda request: answer


@contextmanager
def session_with(server: HttpStandIn, user: str = "") -> Iterator[HttpSession]:
    login = f"{user}@" if user else ""
    broker = parse_broker(f"activemq-rest+http://{login}{HOST}:{server.port}/api/message")
    target = Target(broker, HOST, user=broker.user)
    with closing(HttpSession(target, soon(), HttpTransport.secrets(target))) as session:
        yield session


def session_through(proxy: str, password: Path | None = None) -> closing[HttpSession]:
    return closing(HttpSession(behind(proxy, password), soon(), {}))


def behind(proxy: str, password: Path | None = None) -> Target:
    return Target(BEHIND_A_PROXY, proxy=proxy, proxy_password=Secret(password))


def refused(server: HttpStandIn, user: str = "") -> BrokerUnavailable:
    with server, session_with(server, user) as session, pytest.raises(BrokerUnavailable) as caught:
        session.request(ASK, soon())
    return caught.value


@pytest.mark.parametrize(
    ("faults", "answer", "connections"),
    [
        ({}, reply(200, b"yes"), 1),
        ({"closes_when_idle": True}, reply(200, b"yes"), 3),
        ({}, reply(200, b"yes", Connection="close"), 3),
        ({}, CHUNKED + b"1\r\ny\r\n2\r\nes\r\n0\r\n\r\n", 1),
    ],
    ids=["kept", "closed while idle", "announced", "chunked"],
)
def test_a_connection_is_used_again_unless_it_was_closed(
    faults: dict[str, bool], answer: bytes, connections: int
) -> None:
    server = HttpStandIn(always(answer), **faults)  # type: ignore[arg-type]
    with server, session_with(server) as session:
        for _ in range(3):
            assert session.request(ASK, soon()).body == b"yes"
            if faults:
                assert server.closed.wait(30)
                server.closed.clear()

    assert (server.connections, len(server.asked)) == (connections, 3)


def test_a_request_in_progress_is_never_sent_twice_and_the_session_works_again() -> None:
    answers = iter([b"", reply(200, b"yes")])
    with HttpStandIn(lambda request: next(answers)) as server, session_with(server) as session:
        with pytest.raises(BrokerUnavailable, match="closed the connection before it answered"):
            session.request(ASK, soon())
        assert len(server.asked) == 1

        assert session.request(ASK, soon()).body == b"yes"


NOT_HTTP = "not HTTP, or truncated: "
ENDLESS = f"{NOT_HTTP}longer than 1048576 bytes"


@pytest.mark.parametrize(
    ("answer", "stem"),
    [
        (b"hello\r\n\r\n", NOT_HTTP),
        (reply(200, b"Message sent")[:-4], NOT_HTTP),
        (CHUNKED + b"zz\r\n", NOT_HTTP),
        (OK + b"A: " + b"b" * 100_000 + b"\r\n\r\n", NOT_HTTP),
        (reply(200, b"x" * 1_100_000), ENDLESS),
        (OK + b"\r\n" + b"x" * 1_100_000, ENDLESS),
        (CHUNKED + b"10000\r\n%b\r\n" % (b"x" * 65536) * 20, ENDLESS),
        (reply(401), "401 Reason (it requires a login: keys user"),
        (reply(302, Location="https://other/"), "302 Reason (it redirects to https://other/)"),
        (reply(503, b"down for repair"), "503 Reason: down for repair"),
        (json_reply(503, {"error": "x", "reason": "no\n space"}), "503 Reason: no space"),
        (json_reply(503, {"error": {"message": "Backend Error"}}), "503 Reason: Backend Error"),
        (reply(502, b"<html><title>Error 502 Bad</title><p>many words"), "502 Reason: Bad"),
        (reply(503, b"\x1b[31mred\0" + b"x" * 10_000), "503 Reason: "),
    ],
)
def test_a_bad_answer_makes_the_broker_unavailable(answer: bytes, stem: str) -> None:
    reason = refused(HttpStandIn(always(answer), closes_when_idle=True)).reason

    assert reason.startswith(stem)
    assert reason.isprintable() and len(reason) < 350


def test_an_answer_before_the_end_of_the_request_is_read() -> None:
    server = HttpStandIn(always(reply(413, b"too much")), hears_no_body=True)
    with server, session_with(server) as session:
        answer = session.request(ASK._replace(body=b"x" * 50_000_000), soon())

        assert str(answer) == "413 Reason: too much"
        assert not session.is_open


def test_plain_http_goes_to_the_proxy_with_whole_uris_and_its_login() -> None:
    password = secret(Path("password"), "proxy-secret")
    with HttpStandIn(always(reply(200, b"by proxy"))) as proxy:
        url = f"http://me@{HOST}:{proxy.port}"
        with session_through(url, password) as session:
            answer = session.request(ASK, soon())

    (request,) = proxy.asked
    login = base64.b64encode(b"me:proxy-secret").decode()
    assert answer.body == b"by proxy"
    assert request.target == "http://broker.example.org:8161/path?x=1"
    assert request.headers["host"] == "broker.example.org:8161"
    assert request.headers["proxy-authorization"] == f"Basic {login}"
    shown = preview(ASK, behind(url, password), ["Authorization"]).decode()
    assert shown.startswith("POST http://broker.example.org:8161/path?x=1 HTTP/1.1\r\n")
    assert "\r\nProxy-Authorization: ***\r\n" in shown
    assert "\r\nAuthorization: ***\r\n" in shown
    assert login not in shown


@pytest.mark.parametrize(("announced", "connections"), [({}, 3), ({"Connection": "keep-alive"}, 1)])
def test_a_proxy_must_announce_what_it_keeps(announced: dict[str, str], connections: int) -> None:
    """Tinyproxy closes after each answer without announcing it."""
    with (
        HttpStandIn(always(reply(200, b"yes", **announced))) as proxy,
        session_through(f"http://{HOST}:{proxy.port}") as session,
    ):
        for _ in range(3):
            session.request(ASK, soon())

    assert proxy.connections == connections


def to_topic(count: int, **headers: str) -> list[Message]:
    return messages(count, destination=TOPIC, **headers)


def url_of(server: HttpStandIn) -> str:
    return f"sam+http://{HOST}:{server.port}"


def failure_of(url: str, config: PublisherConfig | None = None) -> str:
    with pytest.raises(BrokerUnavailable) as caught:
        sent_to(url, to_topic(1), config)
    return caught.value.reason


def with_token(text: str = TOKEN) -> PublisherConfig:
    return PublisherConfig(token_file=secret(Path("token"), text))


def test_messages_arrive_whole_with_all_their_headers() -> None:
    text, binary = to_topic(2, nagios_host="n:1", note="äöü\n")
    binary = Message(binary.headers, b"\0\xff\xfe")

    with DoorStandIn() as door:
        assert sent_to(door.url, [text, binary]) == {0: None, 1: None}

    assert door.stored == [text, binary]
    (request,) = door.asked
    assert (request.method, request.target) == ("POST", "/v1/messages")
    assert request.headers["content-type"] == "application/x-ndjson"


def test_requests_are_limited_in_messages_and_bytes_and_share_a_connection() -> None:
    many, large = to_topic(2 * MAX_BATCH + 1), [sized(MAX_BATCH_BYTES // 2 - 500)] * 3

    with DoorStandIn() as door:
        assert sent_to(door.url, many) == dict.fromkeys(range(len(many)))
        assert door.connections == 1
        sent_to(door.url, large)

    assert [len(request) for request in door.requests] == [MAX_BATCH, MAX_BATCH, 1, 2, 1]


def test_a_long_request_is_compressed_and_a_short_one_is_not() -> None:
    with DoorStandIn() as door:
        sent_to(door.url, to_topic(1))
        sent_to(door.url, to_topic(100))

    short, long = door.asked
    assert "content-encoding" not in short.headers
    assert long.headers["content-encoding"] == "gzip"
    assert len(long.body) < len(short.body) * 100 / 3
    assert len(door.stored) == 101


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_message_is_rejected_and_the_others_are_stored(status: int) -> None:
    sent = to_topic(5)
    bad = {sent[1].message_id, sent[4].message_id}

    def outcome_of(message: Message) -> Outcome:
        return problem(status, "no") if message.message_id in bad else stored(message)

    with DoorStandIn(outcome_of=outcome_of) as door:
        outcome = sent_to(door.url, sent)

    rejected = f"{status} Title: no"
    assert outcome == {0: None, 1: rejected, 2: None, 3: None, 4: rejected}
    assert len(door.requests) == 1, "no message was sent twice"


@pytest.mark.parametrize("status", [401, 408, 500, 503])
def test_a_message_that_could_not_be_taken_now_makes_the_door_unavailable(status: int) -> None:
    sent = to_topic(3)
    outcomes = dict(
        zip(ids(sent), (None, problem(status, "full"), problem(422, "bad")), strict=True)
    )

    with DoorStandIn(outcome_of=lambda m: outcomes[m.message_id] or stored(m)) as door:
        publication = publish(sent, config_for(door.url))

    (rejection,), (failure,) = publication.rejections, publication.failures
    assert (rejection.message, rejection.reason) == (sent[2], "422 Title: bad")
    assert failure.reason == f"{status} Title: full"
    assert publication.spooled == (sent[1], sent[2])
    assert len(door.requests) == 1, "the full door is not asked again"


@pytest.mark.parametrize(
    ("answer", "stem"),
    [
        (reply(200, b""), "answered for 0 of 1 message"),
        (reply(200, b"yes\n"), "its answer is not a JSON object"),
        (reply(200, b'{"status": "200"}\n'), "200"),
        (reply(200, b'{"status": 200, "messageId": "another"}\n'), "answered for another message"),
        (reply(204), "204"),
        (problem_reply(401, "a token is required"), "401 Reason: a token is required"),
        (problem_reply(503, "no database", Retry_After="5"), "503 Reason: no database (again in 5"),
        (problem_reply(404, "no such path"), "404 Reason: no such path (no HTTP door"),
        (reply(415, b"no gzip"), "415 Reason: no gzip"),
        (reply(500), "500 Reason"),
    ],
)
def test_only_a_confirmation_of_this_message_counts(answer: bytes, stem: str) -> None:
    with HttpStandIn(lambda asked: answer) as server:
        assert failure_of(url_of(server)).startswith(stem)


@pytest.mark.parametrize(
    ("limit", "requests"),
    [({"max_answers": 3}, [10, 7, 4, 1]), ({"room": 3}, [10, 7, 4, 1]), ({"max_lines": 3}, None)],
    ids=["no answer", "no room", "request too large"],
)
def test_what_is_left_over_is_sent_again(limit: dict[str, int], requests: list[int] | None) -> None:
    sent = to_topic(10)

    with DoorStandIn(**limit) as door:  # type: ignore[arg-type]
        assert sent_to(door.url, sent) == dict.fromkeys(range(10))

    assert sorted(ids(door.stored)) == sorted(ids(sent))
    assert requests in (None, [len(request) for request in door.requests])


@pytest.mark.parametrize(
    ("closes", "reason"), [(True, "not HTTP, or truncated"), (False, "no answer in time")]
)
def test_the_lines_of_an_answer_that_was_cut_count(closes: bool, reason: str) -> None:
    """A door that is slower than the deadline, or crashes, makes progress all the same."""
    sent = to_topic(50)
    lines = [json.dumps(stored(message)) for message in sent[:40]]
    cut = reply(200, "\n".join(lines).encode()).replace(b"Length: ", b"Length: 9")
    confirmed: list[int] = []

    with HttpStandIn(lambda asked: cut, closes_when_idle=closes) as server:
        transport = Door(Target(parse_broker(url_of(server)), HOST), Deadline.after(30))
        with closing(transport), pytest.raises(BrokerUnavailable, match=reason):
            confirmed.extend(transport.send(sent, Deadline.after(1.0)))

    assert confirmed == [*range(len(confirmed))]
    assert 20 < len(confirmed) < 40


def test_a_request_that_is_refused_as_a_whole_rejects_its_messages() -> None:
    with HttpStandIn(lambda asked: problem_reply(403, "no publisher")) as server:
        outcome = sent_to(url_of(server), to_topic(5))

    assert outcome == dict.fromkeys(range(5), "403 Reason: no publisher")
    assert len(server.asked) == 1


def test_only_our_token_is_sent_and_no_error_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARER_TOKEN", "for-a-storage-element")
    with DoorStandIn(token=TOKEN) as door:
        assert sent_to(door.url, to_topic(1), with_token()) == {0: None}
        assert failure_of(door.url) == "401 Reason: a token is required"
        reason = failure_of(door.url, with_token("canary"))

    assert "authorization" not in door.asked[1].headers
    assert door.asked[-1].headers["authorization"] == "Bearer canary"
    assert "canary" not in reason


def test_a_token_is_never_sent_in_plain_text_to_another_machine() -> None:
    url, config = "sam+http://door.example.org", with_token()

    assert "the token would be sent in plain text: use sam+https://" in failure_of(url, config)
    assert door_token(config.replace(insecure=True).target_of(parse_broker(url))) == TOKEN


def test_through_a_proxy_the_problem_of_a_door_is_not_taken_for_the_proxys() -> None:
    with HttpStandIn(lambda asked: problem_reply(503, "no database")) as proxy:
        config = PublisherConfig(proxy=f"http://{HOST}:{proxy.port}")
        reason = failure_of("sam+http://door.example.org", config)

    assert reason == "503 Reason: no database"
    assert proxy.asked[0].target == "http://door.example.org:8080/v1/messages"
