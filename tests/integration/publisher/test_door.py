"""Publishing through a real HTTP door: what it confirms is in the database, and once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from trustme import LeafCert

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.messages.message import Message, pack
from sam_pipeline.schema.records.text import Record, write_wlcg
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS
from tests.support.consumer.door import listening
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.publishing import ids, secret
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    """A door without TLS in front of SQLite."""
    with door_site(tmp_path_factory.mktemp("door")) as site:
        yield site


class Secured(NamedTuple):
    """A door over TLS that wants a token or a certificate."""

    site: DoorSite
    files: TlsFiles
    host: LeafCert
    token: Path
    """A file with a token that it knows."""

    @property
    def trusting(self) -> PublisherConfig:
        """The configuration of a sender without credentials."""
        return PublisherConfig(brokers=(self.site.door.url,), ca_file=self.files.ca_file)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    files = TlsFiles(directory)
    host = files.host()
    token = files.file("token", make_token(directory / "tokens", "nagios1").encode())
    with door_site(
        directory,
        tls=True,
        certificate_file=str(files.certificate_file(host, "host.pem")),
        key_file=str(files.key_file(host, name="host-key.pem")),
        client_ca_file=str(files.ca_file),
        tokens_file=str(directory / "tokens"),
        require_identity=True,
    ) as site:
        yield Secured(site, files, host, token)


def results(count: int, metric: str) -> list[Record]:
    return [metric_result(hostName=f"ce{at}.example.org", metricName=metric) for at in range(count)]


def messages(count: int, metric: str) -> list[Message]:
    """One record each."""
    return [metric_message(result) for result in results(count, metric)]


def config_for(door: DoorSite, **more: Any) -> PublisherConfig:
    return PublisherConfig(brokers=(door.door.url,))._replace(**more)


def test_what_the_door_confirms_is_in_the_database_once(door: DoorSite) -> None:
    single = messages(1200, "single")
    packed = list(pack(results(250, "packed"), "metricOutput"))

    first = publish([*single, *packed], config_for(door))
    again = publish(single, config_for(door))

    assert (len(first.receipts), len(again.receipts)) == (1203, 1200)
    assert (door.rows("single"), door.rows("packed")) == (1200, 250)


def test_http_goes_through_a_proxy_and_https_through_a_tunnel(
    door: DoorSite, secured: Secured
) -> None:
    with ProxyServer() as proxy:
        publish(messages(1001, "proxy"), config_for(door, proxy=proxy.url))
        config = secured.trusting._replace(token_file=secured.token, proxy=proxy.url)
        publish(messages(1001, "tunnel"), config)
        servlet = f"activemq-rest+https://nagios1@{HOST}:{secured.site.door.port}"
        config = config._replace(brokers=(servlet,), password_file=secured.token, timeout_s=60)
        publish(messages(20, "servlet-tunnel"), config)

    assert (door.rows("proxy"), secured.site.rows("%tunnel")) == (1001, 1021)
    plain = f"POST http://{HOST}:{door.door.port}/v1/messages"
    tunnel = f"CONNECT {HOST}:{secured.site.door.port}"
    assert proxy.asked == [plain, plain, tunnel, tunnel]


def test_a_sender_needs_credentials_and_a_valid_door(secured: Secured, tmp_path: Path) -> None:
    files, trusting = secured.files, secured.trusting
    unknown = secret(tmp_path / "token", "a-token-of-another-door")
    revoked = files.revocation_list(secured.host)
    for config, stem in (
        (trusting, "401 Unauthorized: "),
        (trusting._replace(token_file=unknown), "401 Unauthorized: "),
        (trusting._replace(token_file=secured.token, crl_file=revoked), "revoked"),
    ):
        with pytest.raises(NoBrokerTookIt) as refusal:
            publish(messages(1, "refused"), config)
        (failure,) = refusal.value.publication.failures
        assert stem in failure.reason
    assert secured.site.rows("refused") == 0

    config = trusting._replace(certificate_file=files.x509_proxy(files.client()))
    assert len(publish(messages(5, "certificate"), config).receipts) == 5


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
        publication = publish(sent, direct._replace(brokers=(url,), timeout_s=timeout_s))
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
