"""`sam-consume run` over TLS: with a certificate of its own, and never without protection."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

import pytest
import trustme

from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.subscriber import subscribed
from tests.support.brokers.tls_files import TlsBroker, TlsFiles
from tests.support.builders import metric_message
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import LOST, Subscription, row_keys, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def known_as(files: TlsFiles, ours: trustme.LeafCert) -> dict[str, Path]:
    """The configuration keys of a consumer that trusts our authority and has this certificate."""
    return {
        "ca_file": files.ca_file,
        "certificate_file": files.certificate_file(ours),
        "key_file": files.key_file(ours),
    }


def refusal(site: Site, broker: str) -> str:
    """The log line about a broker that was not used."""
    with running(site) as daemon:
        (line, *_) = daemon.wait_for(LOST, broker)
    return line


def test_a_consumer_with_a_certificate_loads_messages_over_tls(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    messages = numbered("tls", range(1500))
    site = site_of(
        tmp_path, [server.tls_url], Subscription(destination), **known_as(files, files.client())
    )
    with running(site) as daemon:
        daemon.wait_until_subscribed(server.tls_url)
        publish(server.host, server.port, destination, messages)
        site.wait_for_rows(1500)
        stopped = daemon.stop()

    consumed([key_of(message.body) for message in messages], row_keys(site))
    assert (stopped.code, stopped.messages) == (0, 1500)


def test_a_tap_uses_the_certificate_that_is_configured(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    ours = known_as(files, files.client())
    site = site_of(tmp_path, [server.tls_url], Subscription(destination), **ours)
    log = tmp_path / "tap.log"

    with log.open("w") as stderr:
        command = site.command("tap", "--broker", server.tls_url, "--count", "1", "--json")
        tap = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    eventually(lambda: "subscribed as" in log.read_text())
    publish(server.host, server.port, destination, [metric_message()])
    output, _ = tap.communicate(timeout=60)

    assert json.loads(output)["broker"] == server.tls_url


def test_a_subscription_is_deleted_over_tls_through_a_proxy_with_the_certificate_that_made_it(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    ours = known_as(files, files.client())
    with ProxyServer() as proxy:
        brokers = [server.tls_url]
        site = site_of(tmp_path, brokers, Subscription(destination), proxy=proxy.url, **ours)
        assert site.drain().code == 0
        publish(server.host, server.port, destination, [metric_message()])

        deleted = site.run("unsubscribe", server.tls_url, destination, "--yes")

        assert deleted.returncode == 0, deleted.stderr
        assert "1 message " in deleted.stdout
        drained = site.drain()
    assert (drained.code, drained.summary["messages"]) == (0, 0)
    assert {*proxy.asked} == {f"CONNECT {server.host}:{server.tls_port}"}


def test_a_relay_sends_over_tls_with_a_certificate_of_its_own(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    ours = known_as(files, files.client())
    spool = f"spool://{tmp_path}/in"
    site = site_of(tmp_path, [spool], Subscription(spool), ca_file=ours.pop("ca_file"))
    keys = [f"{key} = {json.dumps(str(path))}" for key, path in ours.items()]
    table = ["[[consumer.broker]]", f"url = {json.dumps(server.tls_url)}", *keys]
    site.config.write_text("\n".join([site.config.read_text(), *table]))
    message = metric_message(destination=destination)
    fill_spool(tmp_path / "in", [message])

    with subscribed(server, destination) as frames:
        moved = site.run("run", "--drain", "--to", server.tls_url)
        assert moved.returncode == 0, moved.stderr
        arrived = next(frames)

    assert arrived.headers["samMessageId"] == message.message_id


def test_a_missing_client_certificate_is_reported_with_the_key_to_set(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    site = site_of(tmp_path, [server.tls_url], Subscription(destination), ca_file=files.ca_file)

    logged = refusal(site, server.tls_url)

    assert "client certificate (certificate_file): " in logged


def test_a_client_certificate_from_another_authority_is_reported_as_refused(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    keys = known_as(files, files.foreign_client())
    site = site_of(tmp_path, [server.tls_url], Subscription(destination), **keys)

    logged = refusal(site, server.tls_url)

    assert f"certificate {keys['certificate_file']}: " in logged


def test_a_broker_with_an_untrusted_certificate_is_not_used(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    other = files.file("other-ca.pem", files.other.cert_pem.bytes())
    site = site_of(tmp_path, [server.tls_url], Subscription(destination), ca_file=other)

    logged = refusal(site, server.tls_url)

    assert "untrusted CA (ca_file): " in logged


def test_a_broker_whose_certificate_is_for_another_host_is_not_used(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    url = f"stomp+ssl://localhost:{server.tls_port}"
    site = site_of(tmp_path, [url], Subscription(destination), **known_as(files, files.client()))

    logged = refusal(site, url)

    assert "not for localhost: " in logged


def test_a_broker_with_an_expired_certificate_is_not_used(
    tmp_path: Path, files: TlsFiles, destination: str
) -> None:
    with FakeBroker(tls=files.server(files.expired_host())) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination), ca_file=files.ca_file)

        logged = refusal(site, broker.url)

    assert "its certificate has expired" in logged
    assert broker.logins == []


def test_a_revoked_client_certificate_is_reported(
    tmp_path: Path, files: TlsFiles, destination: str
) -> None:
    ours = files.client()
    with FakeBroker(tls=files.server(revoked=ours)) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination), **known_as(files, ours))

        logged = refusal(site, broker.url)

    assert "it is revoked" in logged
    assert broker.logins == []


def test_a_broker_with_a_revoked_certificate_is_not_used(
    tmp_path: Path, files: TlsFiles, destination: str
) -> None:
    host = files.host()
    keys = {"ca_file": files.ca_file, "crl_file": files.revocation_list(host)}
    with FakeBroker(tls=files.server(host)) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination), **keys)

        logged = refusal(site, broker.url)

    assert "its certificate is revoked" in logged
    assert broker.logins == []


def test_nothing_is_sent_in_plain_text_to_a_broker_without_tls(
    tmp_path: Path, files: TlsFiles, destination: str
) -> None:
    with FakeBroker() as broker:
        url = broker.url.replace("stomp://", "stomp+ssl://")
        site = site_of(tmp_path, [url], Subscription(destination), ca_file=files.ca_file)

        refusal(site, url)

    assert broker.logins == broker.taken == []


def test_a_renewed_certificate_is_used_at_the_next_connection(
    tmp_path: Path, tls_broker: TlsBroker, destination: str
) -> None:
    server, files = tls_broker
    keys = known_as(files, files.foreign_client())
    site = site_of(tmp_path, [server.tls_url], Subscription(destination), **keys)
    with running(site) as daemon:
        daemon.wait_for(LOST, server.tls_url)
        known_as(files, files.client())  # into the same files
        daemon.wait_until_subscribed(server.tls_url)
