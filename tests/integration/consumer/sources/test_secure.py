"""Brokers behind TLS and proxies: each problem is named, and nothing is sent without protection."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core import drain
from sam_pipeline.consumer.sources.stomp import link
from tests.services.broker import StompServer
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import FakeBroker, black_hole, closed_port
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message
from tests.support.consumer.daemon import Subscription, checked, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import fill_spool, results

ACTIVEMQ = "ActiveMQ/6.3.1"
METRICS = Subscription("/topic/grid.probe.metricOutput")


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def keys_of(files: TlsFiles, certificate: Any = None) -> dict[str, Path]:
    """The configuration keys of a consumer that trusts our authority and has a certificate."""
    ours = certificate or files.client()
    return {
        "ca_file": files.ca_file,
        "certificate_file": files.certificate_file(ours),
        "key_file": files.key_file(ours),
    }


def test_the_certificate_that_is_configured_is_shown_over_tls_also_through_a_proxy(
    tmp_path: Path, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "SILENCE_S", 0.1)
    logins: list[int] = []
    with FakeBroker(server=ACTIVEMQ, tls=files.server(wants_ours=True)) as broker:
        with ProxyServer() as proxy:
            site = site_of(tmp_path, [broker.url], METRICS, proxy=proxy.url, **keys_of(files))
            assert site.drain().code == 0
            code, document = checked(site)
            logins.append(len(broker.logins))
            site.run("tap", "--for", "0.3")
            logins.append(len(broker.logins))
            site.run("unsubscribe", broker.url, METRICS.destination, "--yes")
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
        ("no certificate", "(certificate_file): "),
        ("a foreign certificate", "certificate.pem: "),
        ("a foreign authority", "untrusted CA (ca_file): "),
        ("another host", "not for 127.0.0.1"),
        ("an expired host", "its certificate has expired"),
        ("a revoked client", "it is revoked"),
        ("a revoked host", "its certificate is revoked"),
    ],
)
def test_a_problem_of_tls_is_named_and_nothing_is_sent(
    tmp_path: Path, files: TlsFiles, fault: str, problem: str
) -> None:
    host = files.host("msg.example.org" if fault == "another host" else HOST)
    host = files.expired_host() if fault == "an expired host" else host
    client = files.foreign_client() if fault == "a foreign certificate" else files.client()
    keys = keys_of(files, client)
    if fault == "no certificate":
        keys = {"ca_file": files.ca_file}
    if fault == "a foreign authority":
        keys["ca_file"] = files.file("other.pem", files.other.cert_pem.bytes())
    if fault == "a revoked host":
        keys["crl_file"] = files.revocation_list(host)
    revoked = client if fault == "a revoked client" else None
    context = files.server(host, wants_ours=True, revoked=revoked)
    with FakeBroker(server=ACTIVEMQ, tls=context) as broker:
        code, document = checked(site_of(tmp_path, [broker.url], METRICS, **keys))

    assert (code, broker.logins) == (78, [])
    assert problem in document["problems"][0]


@on_brokers("rabbitmq")
def test_messages_arrive_through_a_proxy_with_a_login(tmp_path: Path, broker: StompServer) -> None:
    destination = f"/topic/grid.{uuid.uuid4().hex}"
    password = tmp_path / "proxy-password"
    password.write_text("proxy-secret")
    password.chmod(0o600)
    with ProxyServer(user="site-a", password="proxy-secret") as proxy:
        keys = {"proxy": proxy.url_with("site-a"), "proxy_password_file": password}
        site = site_of(tmp_path, [broker.url], Subscription(destination), **keys)
        assert site.drain().code == 0
        publish(broker.host, broker.port, destination, results(3))
        loaded = site.drain()
        with site.config.open("a") as config:
            config.write(f'[[consumer.broker]]\nurl = "{broker.url}"\nproxy = "none"\n')
        before = len(proxy.asked)
        assert site.drain().code == 0

    assert (loaded.code, loaded.summary["messages"]) == (0, 3), loaded.log
    assert {*proxy.asked} == {f"CONNECT {broker.host}:{broker.port}"}
    assert len(proxy.asked) == before, "the proxy of a table is for its broker alone"
    assert "proxy-secret" not in loaded.log


def test_a_proxy_that_is_in_the_way_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "SILENCE_S", 0.1)
    monkeypatch.setattr(link, "CONNECT_S", 0.5)

    def log_of(url: str) -> str:
        site = site_of(tmp_path, ["stomp://msg.example.org"], METRICS, proxy=url)
        drained = site.drain(timeout_s=0.1)
        assert (drained.code, f"proxy {url}" in drained.log) == (69, True)
        return drained.log

    with ProxyServer(user="site-a", password="x") as proxy:
        assert "login" in log_of(proxy.url)
    with ProxyServer(refuses=403) as proxy:
        forbidden = log_of(proxy.url)
        assert " ERROR " in f" {forbidden}" and 'proxy = "none"' in forbidden
    assert " WARNING " in f" {log_of(f'http://127.0.0.1:{closed_port()}')}"
    with black_hole() as hole:
        log_of(hole.replace("stomp", "http"))
