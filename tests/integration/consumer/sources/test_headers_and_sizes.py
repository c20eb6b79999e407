"""Messages with headers or bodies that no consumer can take whole, on each real broker.

What the brokers accept: RabbitMQ passes on header bytes that are not UTF-8, the others replace
them. All pass on heads above 64 KiB: ActiveMQ up to 1000 headers of 10 KiB each, Artemis and
RabbitMQ at least 1 MB in one header. All pass on bodies of 60 MB.
"""

from __future__ import annotations

import hashlib
import json
import socket
import uuid
from pathlib import Path

from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, subscribe

LARGE = b"x" * 60_000_000
KEPT = 65_536
WAIT_S = 60.0


def test_what_cannot_be_taken_whole_is_a_dead_letter_and_the_next_message_is_loaded(
    tmp_path: Path, broker: StompServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    subscribe(broker, site.name, destination)
    lines = {
        "latin": b"comment:caf\xe9\n",
        "one header": b"h:" + b"x" * 9000 + b"\n",
        "ten headers": b"".join(b"h%d:%s\n" % (n, b"x" * 9000) for n in range(10)),
        "many headers": b"".join(b"h%d:%s\n" % (n, b"x" * 100) for n in range(900)),
    }

    for name, line in lines.items():
        send(broker, destination, name, line, numbered(name, [0])[0].body)
    send(broker, destination, "large", b"", LARGE)
    publish(broker.host, broker.port, destination, numbered("after", [0]))
    site.drain()

    expected = {"ten headers": "bad-frame", "many headers": "bad-frame", "large": "too-large"}
    loaded = {"one header-0", "after-0"}
    if isinstance(broker, RabbitMQServer):
        expected["latin"] = "bad-frame"
    else:
        loaded.add("latin-0")
    assert reasons(site) == expected
    assert set(site.column("SELECT summaryData FROM metricOutput")) == loaded
    headers = json.loads(letter(site, "headers", "ten headers"))
    assert headers["messageClass"] == "metricOutput"
    assert len(headers["samHead"]) == KEPT
    assert b"ten headers-0" in letter(site, "body", "ten headers")
    assert LARGE[:KEPT] in site.letter_bodies()
    error = letter(site, "error", "large")
    assert str(len(LARGE)) in error
    assert hashlib.sha256(LARGE).hexdigest() in error
    assert site.drain().summary["messages"] == 0  # all were acked


def test_a_bad_frame_is_a_dead_letter_until_someone_edits_it(
    tmp_path: Path, activemq: ActiveMQServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [activemq.url], Subscription(destination))
    subscribe(activemq, site.name, destination)
    long_head = b"".join(b"h%d:%s\n" % (n, b"x" * 9000) for n in range(10))

    send(activemq, destination, "bad", long_head, numbered("bad", [0])[0].body)
    site.drain()
    site.run("dead-letter", "replay", "--reason", "bad-frame")
    still = reasons(site)
    [number] = site.column("SELECT dead_letter_id FROM dead_letter")
    edited = site.run("dead-letter", "edit", str(number), "--header", "note=loaded by hand")

    assert still == {"bad": "bad-frame"}
    assert edited.returncode == 0, edited.stderr
    site.run("dead-letter", "replay", "--reason", "bad-frame")
    assert site.column("SELECT summaryData FROM metricOutput") == ["bad-0"]


def reasons(site: Site) -> dict[str, str]:
    """The reason of each open letter, by message id."""
    ids, values = (
        site.column(f"SELECT {name} FROM dead_letter WHERE state = 'open' ORDER BY dead_letter_id")
        for name in ("message_id", "reason")
    )
    return dict(zip(ids, values, strict=True))


def letter(site: Site, column: str, message_id: str) -> bytes:
    """A column of the letter."""
    value: bytes = site.scalar(
        f"SELECT {column} FROM dead_letter WHERE message_id = '{message_id}'"
    )
    return value


def send(broker: StompServer, destination: str, message_id: str, lines: bytes, body: bytes) -> None:
    """Send a metric result with these header lines, and wait for its receipt."""
    head = (
        f"SEND\ndestination:{destination}\nmessageClass:metricOutput\npersistent:true\n"
        f"samMessageId:{message_id}\nreceipt:done\n"
    )
    received = b""
    with socket.create_connection((broker.host, broker.port), WAIT_S) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        connection.sendall(b"".join([head.encode(), lines, b"\n", body, b"\0"]))
        while b"RECEIPT" not in received:
            data = connection.recv(65536)
            assert data, received
            received += data
