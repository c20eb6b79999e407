"""Malformed frames through real brokers: every confirmed message is a row or a dead letter.

What the brokers accept: RabbitMQ passes on header bytes that are not UTF-8, the others replace
them. All pass on heads above 64 KiB: ActiveMQ up to 1000 headers of 10 KiB each, Artemis and
RabbitMQ at least 1 MB in one header. All pass on bodies of 60 MB.
"""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from sam_pipeline.schema.secret_file import basic_login
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, subscribe

BODY = numbered("wrong", [0])[0].body
LARGE = b"x" * 12_000_000
KEPT = 65_536
LETTER = "SELECT {} FROM dead_letter WHERE message_id = '{}'"


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


def subscribed_site(directory: Path, broker: StompServer, destination: str) -> Site:
    site = site_of(directory, [broker.url], Subscription(destination))
    subscribe(broker, site.name, destination)
    return site


def is_confirmed(broker: StompServer, frame: bytes, silent_s: float = 60.0) -> bool:
    """Whether the broker sends a receipt rather than closing the connection or waiting for more."""
    received = b""
    with (
        socket.create_connection((broker.host, broker.port), 60) as connection,
        suppress(TimeoutError, ConnectionError),
    ):
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0" + frame)
        connection.settimeout(silent_s)
        while b"RECEIPT" not in received and (data := connection.recv(65536)):
            received += data
    assert received.startswith(b"CONNECTED")
    return b"RECEIPT" in received


def send_frame(destination: str, message_id: str, lines: bytes = b"", body: bytes = BODY) -> bytes:
    head = (
        f"SEND\ndestination:{destination}\nmessageClass:metricOutput\npersistent:true\n"
        f"samMessageId:{message_id}\nreceipt:done\n"
    )
    return b"".join([head.encode(), lines, b"\n", body, b"\0"])


def test_a_wrong_length_is_a_dead_letter(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = subscribed_site(tmp_path, broker, destination)
    frames = {
        length.decode(): send_frame(destination, length.decode(), b"content-length:%b\n" % length)
        for length in (b"20", b"2000", b"-5", b"many")
    }
    frames["NUL"] = send_frame(destination, "NUL").replace(b"ops", b"o\0s")
    confirmed = {name for name, frame in frames.items() if is_confirmed(broker, frame, 1.0)}
    first = send_frame(destination, "first", b"samMessageId:second\nmessageClass:siteGroup\n")
    assert is_confirmed(broker, first)
    publish(broker.host, broker.port, destination, numbered("after", [0]))
    site.drain()

    letters = set(site.column("SELECT message_id FROM dead_letter"))
    assert confirmed <= letters <= frames.keys()
    assert site.column("SELECT summaryData FROM metricOutput ORDER BY 1") == ["after-0", "wrong-0"]
    assert "first" in site.column("SELECT messageId FROM metricOutput"), "of repeated headers"


def test_a_large_part_is_a_dead_letter(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = subscribed_site(tmp_path, broker, destination)
    lines = {
        "latin": b"comment:caf\xe9\n",
        "one header": b"h:" + b"x" * 9000 + b"\n",
        "ten headers": b"".join(b"h%d:%s\n" % (n, b"x" * 9000) for n in range(10)),
        "many headers": b"".join(b"h%d:%s\n" % (n, b"x" * 100) for n in range(900)),
    }

    for name, line in lines.items():
        assert is_confirmed(
            broker, send_frame(destination, name, line, numbered(name, [0])[0].body)
        )
    assert is_confirmed(broker, send_frame(destination, "large", b"", LARGE))
    publish(broker.host, broker.port, destination, numbered("after", [0]))
    site.drain()

    ids, reasons = (
        site.column(f"SELECT {name} FROM dead_letter ORDER BY dead_letter_id")
        for name in ("message_id", "reason")
    )
    expected = {"ten headers": "bad-frame", "many headers": "bad-frame", "large": "too-large"}
    passes_on = isinstance(broker, RabbitMQServer)
    latin = {"latin": "bad-frame"} if passes_on else {}
    assert dict(zip(ids, reasons, strict=True)) == {**expected, **latin}
    loaded = {"one header-0", "after-0", *(() if passes_on else ("latin-0",))}
    assert set(site.column("SELECT summaryData FROM metricOutput")) == loaded
    headers = json.loads(site.scalar(LETTER.format("headers", "ten headers")))
    assert (headers["messageClass"], len(headers["samHead"])) == ("metricOutput", KEPT)
    assert b"ten headers-0" in site.scalar(LETTER.format("body", "ten headers"))
    assert LARGE[:KEPT] in site.letter_bodies()
    error = site.scalar(LETTER.format("error", "large"))
    assert str(len(LARGE)) in error
    assert hashlib.sha256(LARGE).hexdigest() in error
    assert site.drain().summary["messages"] == 0  # all were acked


LENGTHS = [{"content-length": "many"}, {"content-length": "1000"}]
LINE_ENDS = [{name: "x"} for name in ("a\nb", "a\n\nb", "\n\nb", "c\nsubscription:9\nd")]


@pytest.mark.parametrize("forged", [LENGTHS, LINE_ENDS], ids=["lengths", "line ends"])
def test_headers_that_a_publisher_forged_over_http_stop_and_swallow_nothing(
    tmp_path: Path, activemq5: ActiveMQ5Server, forged: list[Mapping[str, str]]
) -> None:
    name = f"grid.probe.{uuid.uuid4().hex}"
    site = subscribed_site(tmp_path, activemq5, f"/topic/{name}")

    for number, properties in enumerate(forged):
        query = {"type": "topic", "messageClass": "metricOutput", "samMessageId": f"odd-{number}"}
        url = f"http://{activemq5.host}:{activemq5.rest_port}/api/message/{name}"
        login = basic_login(activemq5.user, activemq5.password)
        headers = {"Authorization": login, "Content-Type": "text/plain"}
        urlopen(Request(f"{url}?{urlencode(query | properties)}", BODY, headers)).close()
    publish(activemq5.host, activemq5.port, f"/topic/{name}", numbered("after", range(9)))
    site.drain()

    reasons = site.column("SELECT reason FROM dead_letter")
    rows = set(site.column("SELECT summaryData FROM metricOutput"))
    assert rows - {"wrong-0"} == {f"after-{number}" for number in range(9)}
    assert len(reasons) >= len(forged) - (forged == LINE_ENDS)
    if forged == LENGTHS:
        assert {*reasons} == {"bad-frame"}
        assert site.column("SELECT body FROM dead_letter") == [BODY, BODY]
    assert site.drain().summary["messages"] == 0
