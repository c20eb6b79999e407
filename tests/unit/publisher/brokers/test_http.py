"""HTTP over a channel: kept connections, unusual answers, texts of refusals, and the deadline."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.address import addresses_of
from sam_pipeline.publisher.brokers.rest.http import (
    HttpRequest,
    HttpSession,
    login_headers,
    preview,
)
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply, reply
from tests.support.brokers.stand_in import HOST

ASK = HttpRequest("POST", "/path?x=1", {"Content-Type": "text/plain"}, b"body")
SOON_S = 5.0


@contextmanager
def session_with(
    server: HttpStandIn, config: PublisherConfig | None = None, user: str = ""
) -> Iterator[HttpSession]:
    login = f"{user}@" if user else ""
    broker = parse_broker(f"activemq-rest+http://{login}{HOST}:{server.port}/api/message")
    deadline = Deadline.after(SOON_S)
    (address,) = addresses_of(broker, deadline)
    config = config or PublisherConfig()
    session = HttpSession(address, config, deadline, login_headers(broker, config))
    try:
        yield session
    finally:
        session.close()


def soon() -> Deadline:
    return Deadline.after(SOON_S)


def always(answer: bytes) -> Callable[[Asked], bytes]:
    return lambda request: answer


def failure_of(answer: bytes, user: str = "") -> str:
    """The text of the BrokerUnavailable that an answer causes."""
    return refused(HttpStandIn(always(answer)), user).reason


def refused(server: HttpStandIn, user: str = "") -> BrokerUnavailable:
    with (
        server,
        session_with(server, user=user) as session,
        pytest.raises(BrokerUnavailable) as caught,
    ):
        session.request(ASK, soon())
    return caught.value


def test_a_request_is_sent_unchanged_and_its_answer_returned() -> None:
    response = reply(200, b"yes", X_Note="n")
    with HttpStandIn(always(response)) as server, session_with(server) as session:
        answer = session.request(ASK, soon())

    (request,) = server.asked
    assert (request.method, request.target, request.body) == ("POST", "/path?x=1", b"body")
    assert request.headers == {
        "host": f"{HOST}:{server.port}",
        "content-type": "text/plain",
        "content-length": "4",
    }
    assert (answer.status, answer.reason, answer.body) == (200, "Reason", b"yes")
    assert answer.headers["x-note"] == "n"


def test_a_request_without_a_body_still_has_a_length() -> None:
    with HttpStandIn() as server, session_with(server) as session:
        session.request(HttpRequest("GET", "/"), soon())

    assert server.asked[0].headers["content-length"] == "0"


def test_one_connection_serves_many_requests() -> None:
    with HttpStandIn() as server, session_with(server) as session:
        for _ in range(20):
            session.request(ASK, soon())

    assert server.connections == 1
    assert len(server.asked) == 20


def test_a_connection_closed_while_idle_is_opened_again() -> None:
    with HttpStandIn(closes_when_idle=True) as server, session_with(server) as session:
        session.request(ASK, soon())
        assert server.closed.wait(SOON_S)
        session.request(ASK, soon())

    assert server.connections == 2
    assert len(server.asked) == 2


def test_an_answer_that_announces_the_end_of_the_connection_is_obeyed() -> None:
    answer = reply(200, b"yes", Connection="close")
    with HttpStandIn(always(answer)) as server, session_with(server) as session:
        session.request(ASK, soon())
        assert not session.is_open
        session.request(ASK, soon())

    assert server.connections == 2


def test_a_request_in_progress_is_never_sent_twice() -> None:
    server = HttpStandIn(always(b""))

    assert "closed the connection before it answered" in refused(server).reason
    assert len(server.asked) == 1


def test_a_session_works_again_after_a_failure() -> None:
    answers = iter([b"", reply(200, b"yes")])
    with HttpStandIn(lambda request: next(answers)) as server, session_with(server) as session:
        with pytest.raises(BrokerUnavailable):
            session.request(ASK, soon())

        assert session.request(ASK, soon()).body == b"yes"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"hello\r\n\r\n", id="no HTTP"),
        pytest.param(b"HTTP/9.9 200 OK\r\n\r\n", id="another version"),
        pytest.param(reply(200, b"Message sent")[:-4] + b"", id="cut"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="bad chunk"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", id="200 headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", id="long header"),
    ],
)
def test_an_incomplete_http_answer_makes_the_broker_unavailable(answer: bytes) -> None:
    server = HttpStandIn(always(answer), closes_when_idle=True)

    assert refused(server).reason.startswith("not HTTP, or truncated: ")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(200, b"x" * 1_100_000), id="with its length"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_100_000, id="without"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"10000\r\n%b\r\n" % (b"x" * 65536) * 20,
            id="in chunks",
        ),
    ],
)
def test_an_endless_answer_is_not_read_to_its_end(answer: bytes) -> None:
    assert failure_of(answer) == "not HTTP, or truncated: longer than 1048576 bytes"


def test_a_chunked_answer_is_decoded() -> None:
    chunks = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n2\r\n!!\r\n0\r\n\r\n"
    )
    with HttpStandIn(always(chunks)) as server, session_with(server) as session:
        first = session.request(ASK, soon())
        second = session.request(ASK, soon())

    assert first.body == second.body == b"yes!!"
    assert server.connections == 1


def test_a_dripping_answer_ends_at_the_deadline() -> None:
    server = HttpStandIn(always(reply(200, b"x" * 1000)), drips=True)
    with server, session_with(server) as session:
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="no answer in time"):
            session.request(ASK, Deadline.after(0.4))

        assert 0.3 < time.monotonic() - started < 2
        assert not session.is_open


@pytest.mark.parametrize(
    ("answer", "stem"),
    [
        (reply(401), "401 Reason (it requires a login: keys user"),
        (reply(407), "407 Reason"),
        (reply(429), "429 Reason"),
        (reply(302, Location="https://other/"), "302 Reason (it redirects to https://other/)"),
        (reply(503, b"down for repair"), "503 Reason: down for repair"),
        (json_reply(503, {"error": "x", "reason": "no\n space"}), "503 Reason: no space"),
        (json_reply(503, {"error": {"message": "Backend Error"}}), "503 Reason: Backend Error"),
        (
            reply(502, b"<html><title>Error 502 Bad</title><p>many words"),
            "502 Reason: Bad",
        ),
    ],
)
def test_an_answer_that_concerns_every_request_makes_the_broker_unavailable(
    answer: bytes, stem: str
) -> None:
    assert failure_of(answer).startswith(stem)


def test_the_error_text_of_a_broker_is_short_and_printable() -> None:
    reason = failure_of(reply(503, b"\x1b[31mred\0" + b"x" * 10_000))

    assert reason.isprintable()
    assert len(reason) < 350


def test_a_login_goes_with_every_request_and_is_in_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "canary-ß")
    server = HttpStandIn(always(reply(401)))

    failure = refused(server, user="sam")

    secret = base64.b64encode("sam:canary-ß".encode()).decode()
    assert server.asked[0].headers["authorization"] == f"Basic {secret}"
    assert failure.reason == "401 Reason (it rejected this login)"
    assert "canary" not in repr(failure)
    assert secret not in repr(failure)


def test_an_answer_before_the_end_of_the_request_is_read() -> None:
    big = ASK._replace(body=b"x" * 50_000_000)

    server = HttpStandIn(always(reply(413, b"too much")), hears_no_body=True)
    with server, session_with(server) as session:
        answer = session.request(big, soon())

        assert str(answer) == "413 Reason: too much"
        assert not session.is_open


def test_plain_http_goes_to_the_proxy_with_whole_uris_and_its_login(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("proxy-secret")
    password.chmod(0o600)
    with HttpStandIn(always(reply(200, b"by proxy"))) as proxy:
        config = PublisherConfig(
            proxy=f"http://me@{HOST}:{proxy.port}", proxy_password_file=password
        )
        broker = parse_broker("activemq-rest+http://broker.example.org/api/message")
        (address,) = addresses_of(broker, soon(), via_proxy=True)
        session = HttpSession(address, config, soon(), {})
        answer = session.request(ASK, soon())
        session.close()

    (request,) = proxy.asked
    secret = base64.b64encode(b"me:proxy-secret").decode()
    assert answer.body == b"by proxy"
    assert request.target == "http://broker.example.org:8161/path?x=1"
    assert request.headers["host"] == "broker.example.org:8161"
    assert request.headers["proxy-authorization"] == f"Basic {secret}"
    shown = preview(ASK, broker, config, {"Authorization": "x"}).decode()
    assert shown.startswith("POST http://broker.example.org:8161/path?x=1 HTTP/1.1\r\n")
    assert "\r\nProxy-Authorization: ***\r\n" in shown
    assert "\r\nAuthorization: ***\r\n" in shown
    assert secret not in shown


@pytest.mark.parametrize(("announced", "connections"), [({}, 3), ({"Connection": "keep-alive"}, 1)])
def test_a_proxy_keeps_the_connection_only_if_it_says_so(
    announced: dict[str, str], connections: int
) -> None:
    """Tinyproxy closes after each answer without announcing it."""
    with HttpStandIn(always(reply(200, b"yes", **announced))) as proxy:
        config = PublisherConfig(proxy=f"http://{HOST}:{proxy.port}")
        broker = parse_broker("activemq-rest+http://broker.example.org/api/message")
        (address,) = addresses_of(broker, soon(), via_proxy=True)
        session = HttpSession(address, config, soon(), {})
        for _ in range(3):
            session.request(ASK, soon())
        session.close()

    assert proxy.connections == connections


@pytest.mark.parametrize("status", [407, 503])
def test_a_refusal_of_the_proxy_names_the_proxy(status: int) -> None:
    with HttpStandIn(always(reply(status))) as proxy:
        config = PublisherConfig(proxy=f"http://{HOST}:{proxy.port}")
        broker = parse_broker("activemq-rest+http://broker.example.org/api/message")
        (address,) = addresses_of(broker, soon(), via_proxy=True)
        session = HttpSession(address, config, soon(), {})
        with pytest.raises(BrokerUnavailable, match=f"proxy http://{HOST}:{proxy.port}.*{status}"):
            session.request(ASK, soon())
        session.close()
