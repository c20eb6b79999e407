"""Publishing through a real HTTP door: what it confirms is in the database, and once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.text import Record, write_wlcg
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS
from tests.support.consumer.door import DoorSite, door_site, listening
from tests.support.publishing import ids
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    """A door without TLS in front of SQLite."""
    with door_site(tmp_path_factory.mktemp("door")) as site:
        yield site


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DoorSite, TlsFiles]]:
    """A door over TLS that wants a certificate, or the token in a file beside its own."""
    directory = tmp_path_factory.mktemp("secured")
    files = TlsFiles(directory)
    host = files.host()
    files.file("token", make_token(directory / "tokens", "nagios1").encode())
    with door_site(
        directory,
        tls=True,
        certificate_file=str(files.certificate_file(host, "host.pem")),
        key_file=str(files.key_file(host, name="host-key.pem")),
        client_ca_file=str(files.ca_file),
        tokens_file=str(directory / "tokens"),
        require_identity=True,
    ) as site:
        yield site, files


def results(count: int, metric: str) -> list[Record]:
    return [metric_result(hostName=f"ce{at}.example.org", metricName=metric) for at in range(count)]


def messages(count: int, metric: str) -> list[Message]:
    """One record each."""
    return [metric_message(result) for result in results(count, metric)]


def config_for(door: DoorSite, **more: Any) -> PublisherConfig:
    return PublisherConfig(brokers=(door.door.url,), **more)


def test_requests_go_through_a_proxy(door: DoorSite, secured: tuple[DoorSite, TlsFiles]) -> None:
    site, files = secured
    token = files.directory / "token"
    with ProxyServer() as proxy:
        publish(messages(1001, "proxy"), config_for(door, proxy=proxy.url))
        config = config_for(site, ca_file=files.ca_file, token_file=token, proxy=proxy.url)
        publish(messages(1001, "tunnel"), config)
        servlet = f"activemq-rest+https://nagios1@{HOST}:{site.door.port}"
        config = config.replace(brokers=(servlet,), password_file=token, timeout_s=60)
        publish(messages(20, "servlet-tunnel"), config)
    certificate = files.x509_proxy(files.client())
    known = config_for(site, ca_file=files.ca_file, certificate_file=certificate)
    assert len(publish(messages(5, "certificate"), known).receipts) == 5
    with pytest.raises(NoBrokerTookIt):
        publish(messages(1, "refused"), config_for(site, ca_file=files.ca_file))

    assert (door.rows("proxy"), site.rows("%tunnel"), site.rows("refused")) == (1001, 1021, 0)
    plain = f"POST http://{HOST}:{door.door.port}/v1/messages"
    tunnel = f"CONNECT {HOST}:{site.door.port}"
    assert proxy.asked == [plain, plain, tunnel, tunnel]


@pytest.mark.parametrize(
    ("fault", "timeout_s", "some_are_confirmed"),
    [
        ({"mute": True}, 1.5, False),
        ({"resets_after": 3000}, 1.5, False),
        ({"drip_s": 0.0002}, 3.0, True),
    ],
    ids=["answers are lost", "the request is cut", "answers are slow"],
)
def test_over_a_faulty_connection_nothing_is_lost_and_nothing_stored_twice(
    door: DoorSite,
    tmp_path: Path,
    fault: dict[str, Any],
    timeout_s: float,
    some_are_confirmed: bool,
) -> None:
    metric = "fault-" + "-".join(fault)
    sent = messages(400, metric)
    direct = config_for(door, spool=tmp_path / "spool")

    with FaultProxy(door.door.port, **fault) as proxy:
        url = f"sam+http://{HOST}:{proxy.port}"
        publication = publish(sent, direct.replace(brokers=(url,), timeout_s=timeout_s))
    totals = drain(direct)

    confirmed = ids(receipt.message for receipt in publication.receipts)
    spooled = ids(publication.spooled)
    assert (len(publication.failures), bool(confirmed)) == (1, some_are_confirmed)
    assert sorted(confirmed + spooled) == sorted(ids(sent))
    assert totals.sent == len(spooled) > 0
    assert door.rows(metric) == 400


def test_after_a_crash_of_the_door_every_message_is_stored_once(tmp_path: Path) -> None:
    count = 1500
    (tmp_path / "results").write_text("".join(map(write_wlcg, results(count, "crash"))))
    state = {"STATE_DIRECTORY": str(tmp_path / "publisher"), "PATH": os.environ["PATH"]}

    with door_site(tmp_path) as door:
        command = [PROGRAMS / "sam-publish", "send", "--one-per-message", tmp_path / "results"]
        where = ("--broker", door.door.url, "--timeout", "3")
        with subprocess.Popen([*command, *where], env=state) as sender:
            eventually(lambda: door.rows("crash") > 0)
            door.daemon.process.kill()
            assert sender.wait(60) == 0
        stored = door.rows("crash")
        with listening(door.site, door.door):
            drain_it = [PROGRAMS / "sam-publish", "spool", "drain", "--broker", door.door.url]
            subprocess.run(drain_it, env=state, timeout=60, check=True)

    assert 0 < stored < count, "the door was killed while messages arrived"
    assert door.rows("crash") == count
