"""Malformed frames through real brokers: every confirmed message is a row or a dead letter.

What the brokers accept: RabbitMQ passes on header bytes that are not UTF-8, the others replace
them. All pass on heads above 64 KiB: ActiveMQ up to 1000 headers of 10 KiB each, Artemis and
RabbitMQ at least 1 MB in one header. All pass on bodies of 60 MB. Behind TLS and proxies each
problem is named, and nothing is sent without protection.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from sam_pipeline.consumer.core import loop
from sam_pipeline.consumer.sources.stomp import session
from sam_pipeline.schema.secret_file import basic_login
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, checked, row_keys, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, fill_spool, subscribe

BODY = numbered("wrong", [0])[0].body
LARGE = b"x" * 12_000_000
KEPT = 65_536


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


class Dawdling(FaultProxy):
    """Within each message it pauses, sends a line end by itself, and pauses again."""

    def _answered(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in chunks:
            while b"MESSAGE\n" in data:
                end = data.find(LINE, data.find(b"MESSAGE\n"))
                for piece in (data[:end], b"\n"):
                    yield piece
                    time.sleep(0.3)
                data = data[end + 1 :]
            yield data


LINE = b"\nsummaryData"


def test_a_line_end_that_arrives_by_itself_cuts_no_message(
    tmp_path: Path, broker: StompServer, destination: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the broker says how long the body is, or not."""
    monkeypatch.setattr(session, "PAUSE_S", 0.1)
    bodies = [message.body for message in numbered("dawdled", range(2))]
    with Dawdling(broker.port) as proxy:
        site = subscribed_site(tmp_path, broker, destination)
        site.edit(broker.url, proxy.url)
        for number, (body, length) in enumerate(
            zip(bodies, (b"", b"content-length:%d\n" % len(bodies[1])), strict=True)
        ):
            frame = send_frame(destination, f"m{number}", length, body)
            assert is_confirmed(broker, frame)
        drained = site.drain()

    assert (drained.code, site.letters()) == (0, 0), drained.log
    assert sorted(row_keys(site)) == ["dawdled-0", "dawdled-1"]


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
        body = numbered(name, [0])[0].body
        assert is_confirmed(broker, send_frame(destination, name, line, body))
    assert is_confirmed(broker, send_frame(destination, "large", b"", LARGE))
    publish(broker.host, broker.port, destination, numbered("after", [0]))
    site.drain()

    letters = site.column("SELECT message_id || ': ' || reason FROM dead_letter")
    passes_on = isinstance(broker, RabbitMQServer)
    expected = {"ten headers: bad-frame", "many headers: bad-frame", "large: too-large"}
    assert {*letters} == expected | ({"latin: bad-frame"} if passes_on else set())
    loaded = {"one header-0", "after-0", *(() if passes_on else ("latin-0",))}
    assert set(site.column("SELECT summaryData FROM metricOutput")) == loaded
    letter = "SELECT {} FROM dead_letter WHERE message_id = '{}'"
    headers = json.loads(site.scalar(letter.format("headers", "ten headers")))
    assert (headers["messageClass"], len(headers["samHead"])) == ("metricOutput", KEPT)
    assert b"ten headers-0" in site.scalar(letter.format("body", "ten headers"))
    assert LARGE[:KEPT] in site.letter_bodies()
    assert hashlib.sha256(LARGE).hexdigest() in site.scalar(letter.format("error", "large"))
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


ACTIVEMQ = "ActiveMQ/6.3.1"
METRICS = Subscription("/topic/grid.probe.metricOutput")


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def keys_of(files: TlsFiles) -> dict[str, Path]:
    ours = files.client()
    return {
        "ca_file": files.ca_file,
        "certificate_file": files.certificate_file(ours),
        "key_file": files.key_file(ours),
    }


def test_the_certificate_that_is_configured_is_shown_over_tls_also_through_a_proxy(
    tmp_path: Path, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SILENCE_S", 0.1)
    logins: list[int] = []
    with FakeBroker(server=ACTIVEMQ, tls=files.server(wants_ours=True)) as broker:
        with ProxyServer() as proxy:
            site = site_of(tmp_path, [broker.url], METRICS, proxy=proxy.url, **keys_of(files))
            assert site.drain().code == 0
            code, document = checked(site)
            logins.append(len(broker.logins))
            site.run("tap", "--for", "0.3")
            logins.append(len(broker.logins))
            site.run("subscription", "delete", broker.url, METRICS.destination, "--yes")
            logins.append(len(broker.logins))
        relay = site_of(tmp_path, [f"spool://{tmp_path}/in"], ca_file=files.ca_file)
        table = {"url": broker.url, **keys_of(files)}
        with relay.config.open("a") as config:
            config.write("[[consumer.broker]]\n")
            config.writelines(f"{key} = {json.dumps(str(table[key]))}\n" for key in table)
        fill_spool(tmp_path / "in", [metric_message()])
        moved = relay.run("run", "--drain", "--to", broker.url)

    assert (code, document["brokers"][0]["proven"]) == (0, "round trip")
    assert f"proxy {proxy.url}" in document["brokers"][0]["address"]
    assert {*proxy.asked} == {f"CONNECT 127.0.0.1:{broker.port}"}
    assert logins == sorted({*logins}), "check, tap and unsubscribe have each logged in"
    assert (moved.returncode, len(broker.taken)) == (0, 2), moved.stderr


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("certificate_file", "(certificate_file): "),
        ("ca_file", "untrusted CA (ca_file): "),
        ("host", "not for 127.0.0.1"),
        ("crl_file", "its certificate is revoked"),
    ],
)
def test_a_problem_of_tls_is_named_and_nothing_is_sent(
    tmp_path: Path, files: TlsFiles, fault: str, problem: str
) -> None:
    host = files.host("msg.example.org" if fault == "host" else HOST)
    keys = {"ca_file": files.ca_file} if fault == "certificate_file" else keys_of(files)
    if fault == "ca_file":
        keys["ca_file"] = files.file("other.pem", files.other.cert_pem.bytes())
    if fault == "crl_file":
        keys["crl_file"] = files.revocation_list(host)
    with FakeBroker(server=ACTIVEMQ, tls=files.server(host, wants_ours=True)) as broker:
        code, document = checked(site_of(tmp_path, [broker.url], METRICS, **keys))

    assert (code, broker.logins) == (78, [])
    assert problem in document["problems"][0]
