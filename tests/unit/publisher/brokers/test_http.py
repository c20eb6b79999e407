"""HTTP over a channel: kept connections, unusual answers, texts of refusals, and the deadline."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
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
from tests.support.publishing import secret

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
    config = PublisherConfig()
    headers = login_headers(broker, config)
    with closing(HttpSession(BrokerAddress(broker, HOST), config, soon(), headers)) as session:
        yield session


def session_through(proxy: str, **more: Any) -> closing[HttpSession]:
    config = PublisherConfig(proxy=proxy, **more)
    return closing(HttpSession(BrokerAddress(BEHIND_A_PROXY), config, soon(), {}))


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
        (reply(407), "407 Reason"),
        (reply(302, Location="https://other/"), "302 Reason (it redirects to https://other/)"),
        (reply(503, b"down for repair"), "503 Reason: down for repair"),
        (json_reply(503, {"error": "x", "reason": "no\n space"}), "503 Reason: no space"),
        (json_reply(503, {"error": {"message": "Backend Error"}}), "503 Reason: Backend Error"),
        (reply(502, b"<html><title>Error 502 Bad</title><p>many words"), "502 Reason: Bad"),
        (reply(503, b"\x1b[31mred\0" + b"x" * 10_000), "503 Reason: "),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_answer_makes_the_broker_unavailable(answer: bytes, stem: str) -> None:
    reason = refused(HttpStandIn(always(answer), closes_when_idle=True)).reason

    assert reason.startswith(stem)
    assert reason.isprintable() and len(reason) < 350


def test_a_dripping_answer_ends_at_the_deadline() -> None:
    server = HttpStandIn(always(reply(200, b"x" * 1000)), drips=True)  # for 100 s
    with server, session_with(server) as session:
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="no answer in time"):
            session.request(ASK, Deadline.after(0.4))

        assert time.monotonic() - started < 30
        assert not session.is_open


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
        config = PublisherConfig(proxy=url, proxy_password_file=password)
        with session_through(url, proxy_password_file=password) as session:
            answer = session.request(ASK, soon())

    (request,) = proxy.asked
    login = base64.b64encode(b"me:proxy-secret").decode()
    assert answer.body == b"by proxy"
    assert request.target == "http://broker.example.org:8161/path?x=1"
    assert request.headers["host"] == "broker.example.org:8161"
    assert request.headers["proxy-authorization"] == f"Basic {login}"
    shown = preview(ASK, BEHIND_A_PROXY, config, {"Authorization": "x"}).decode()
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
