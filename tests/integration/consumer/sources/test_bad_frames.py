"""Malformed frames, sent to real brokers and by a fake one: every confirmed message becomes a row
or a dead letter, and the next one is loaded."""

from __future__ import annotations

import socket
import uuid
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from tests.services.activemq5 import ActiveMQ5Server
from tests.services.broker import StompServer
from tests.support.brokers.fake_broker import FakeBroker, Frame
from tests.support.conservation import numbered
from tests.support.consumer.daemon import LOST, Subscription, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import eventually, fill_spool, subscribe

SILENT_S = 1.0

[A_MESSAGE] = numbered("wrong", [0])
BODY = A_MESSAGE.body
WRONG_LENGTHS = {
    "too short": "20",
    "too long": "2000",
    "negative": "-5",
    "no number": "many",
}


def test_a_frame_with_a_wrong_length_is_never_a_row_and_never_lost_once_confirmed(
    tmp_path: Path, broker: StompServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    subscribe(broker, site.name, destination)

    frames = {
        name: send_frame(destination, name, f"content-length:{length}")
        for name, length in WRONG_LENGTHS.items()
    }
    frames["a NUL and no length"] = send_frame(destination, "a NUL and no length").replace(
        b"ops", b"o\0s"
    )
    confirmed = {name for name, frame in frames.items() if is_confirmed(broker, frame)}
    publish(broker.host, broker.port, destination, numbered("after", [0]))
    site.drain()

    letters = set(site.column("SELECT message_id FROM dead_letter"))
    assert confirmed <= letters <= frames.keys()
    assert site.column("SELECT summaryData FROM metricOutput") == ["after-0"]


def test_the_first_of_repeated_headers_counts(tmp_path: Path, broker: StompServer) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    subscribe(broker, site.name, destination)

    frame = send_frame(destination, "first", "samMessageId:second", "messageClass:siteGroup")
    assert is_confirmed(broker, frame, silent_s=20)
    drained = site.drain()

    assert drained.code == 0
    assert site.column("SELECT messageId FROM metricOutput") == ["first"]


def test_frames_that_cannot_be_told_from_the_next_are_dead_letters_after_some_attempts(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        by_length = {
            name: stack.enter_context(broker_with_headers(name, {"content-length": length}))
            for name, length in WRONG_LENGTHS.items()
        }
        repeating = stack.enter_context(
            broker_with_headers(
                "repeating", {"messageClass": "metricOutput\nmessageClass:siteGroup"}
            )
        )
        spool = tmp_path / "spool"
        urls = [broker.url for broker in (*by_length.values(), repeating)]
        site = site_of(tmp_path, [*urls, f"spool://{spool}"], Subscription("/topic/x"))
        with running(site) as daemon:
            daemon.wait_for(by_length["too short"].url, "does not end after its 20 bytes", LOST)
            daemon.wait_for(by_length["negative"].url, "content-length '-5'", LOST)
            daemon.wait_for(by_length["no number"].url, "content-length 'many'", LOST)
            daemon.wait_until_subscribed(by_length["too long"].url)
            fill_spool(spool, numbered("after", range(10)))
            site.wait_for_rows(11)
            framed = by_length.keys() - {"too long"}
            eventually(lambda: not any(by_length[name].queue for name in framed))  # all acked
            assert daemon.stop().code == 0

    assert set(site.column("SELECT message_id FROM dead_letter")) == framed
    assert set(site.column("SELECT reason FROM dead_letter")) == {"bad-frame"}
    assert set(site.column("SELECT body FROM dead_letter")) == {BODY}
    assert "wrong-0" in site.column("SELECT summaryData FROM metricOutput")


@pytest.mark.parametrize("length", ["many", "1000"])
def test_a_length_that_a_publisher_faked_over_http_stops_and_swallows_nothing(
    tmp_path: Path, activemq5: ActiveMQ5Server, length: str
) -> None:
    name = f"grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [activemq5.url], Subscription(f"/topic/{name}"))
    subscribe(activemq5, site.name, f"/topic/{name}")

    publish(activemq5.host, activemq5.port, f"/topic/{name}", numbered("before", range(3)))
    post(activemq5, name, {"content-length": length, "samMessageId": "faked"})
    publish(activemq5.host, activemq5.port, f"/topic/{name}", numbered("after", range(9)))
    site.drain()

    assert site.column("SELECT reason FROM dead_letter") == ["bad-frame"]
    assert site.column("SELECT body FROM dead_letter") == [BODY]
    assert site.rows() == 12
    assert site.drain().summary["messages"] == 0


def test_a_header_name_with_line_ends_stops_nothing(
    tmp_path: Path, activemq5: ActiveMQ5Server
) -> None:
    name = f"grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [activemq5.url], Subscription(f"/topic/{name}"))
    subscribe(activemq5, site.name, f"/topic/{name}")

    for number, header in enumerate(["a\nb", "a\n\nb", "\n\nb", "c\nsubscription:9\nd"]):
        post(activemq5, name, {header: "x", "samMessageId": f"odd-{number}"})
    publish(activemq5.host, activemq5.port, f"/topic/{name}", numbered("after", range(3)))
    site.drain()

    assert len(site.column("SELECT reason FROM dead_letter")) >= 3
    assert set(site.column("SELECT summaryData FROM metricOutput")) >= {"after-0", "after-2"}
    assert site.drain().summary["messages"] == 0


def post(broker: ActiveMQ5Server, topic: str, properties: Mapping[str, str]) -> None:
    """Publish a metric result over HTTP; its properties become headers."""
    query = urlencode({"type": "topic", "messageClass": "metricOutput", **properties})
    login = b64encode(f"{broker.user}:{broker.password}".encode()).decode()
    request = Request(
        f"http://{broker.host}:{broker.rest_port}/api/message/{topic}?{query}",
        BODY,
        {"Authorization": f"Basic {login}", "Content-Type": "text/plain"},
    )
    urlopen(request, timeout=20).close()


def broker_with_headers(message_id: str, headers: Mapping[str, str]) -> FakeBroker:
    """A fake broker that delivers one message with these headers until it is acked."""
    headers = {**A_MESSAGE.headers, **headers, "samMessageId": message_id}
    message = Frame("SEND", headers, BODY)
    return FakeBroker(server="ActiveMQ/6.3.1", queue=[message])


def send_frame(destination: str, message_id: str, *more: str) -> bytes:
    lines = (
        *("SEND", f"destination:{destination}", "messageClass:metricOutput", "persistent:true"),
        *(f"samMessageId:{message_id}", *more, "receipt:done"),
    )
    return "\n".join([*lines, "", ""]).encode() + BODY + b"\0"


def is_confirmed(broker: StompServer, frame: bytes, silent_s: float = SILENT_S) -> bool:
    """Whether the broker sends a receipt rather than closing the connection or waiting for more."""
    received = b""
    with (
        socket.create_connection((broker.host, broker.port), 10) as connection,
        suppress(TimeoutError, ConnectionError),
    ):
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0" + frame)
        connection.settimeout(silent_s)
        while b"RECEIPT" not in received and (data := connection.recv(65536)):
            received += data
    assert received.startswith(b"CONNECTED")
    return b"RECEIPT" in received
