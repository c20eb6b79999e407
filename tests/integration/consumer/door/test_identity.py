"""Who sends over HTTPS: tokens, certificates, the policy, and what a reload changes."""

from __future__ import annotations

import json
import re
import signal
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from sam_pipeline.schema.identity.identity import operator_identity, with_identity
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.spool.element import serialise
from tests.services.process import HOST, free_ports, port_is_open
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import Daemon, running
from tests.support.consumer.site import Site, eventually, make_site

POLICY = """\
mode = "enforce"
[[publisher]]
name = "by-token"
is = ["token:listed"]
classes = ["metricOutput"]
hosts = ["*"]
sites = ["*"]
[[publisher]]
name = "by-certificate"
is = ["cert:CN=probe,*"]
classes = ["metricOutput"]
hosts = ["*"]
sites = ["*"]
"""
READ_AGAIN = "reading the configuration again"
KEPT = "continuing with the previous configuration"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    document: Mapping[str, object]


class Door(NamedTuple):
    site: Site
    daemon: Daemon
    files: TlsFiles
    port: int

    @property
    def tokens(self) -> Path:
        return self.site.config.with_name("tokens")

    def connection(self, certificate: trustme.LeafCert | None = None) -> HTTPSConnection:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.files.ca.configure_trust(context)
        if certificate:
            certificate.configure_cert(context)
        return HTTPSConnection(HOST, self.port, timeout=30, context=context)

    def post(
        self,
        metric: str,
        *,
        certificate: trustme.LeafCert | None = None,
        message_class: str = "metricOutput",
        **headers: str,
    ) -> Answer:
        with closing(self.connection(certificate)) as connection:
            return post(connection, metric, message_class, headers)

    def post_forged(self, metric: str, **headers: str) -> object:
        """The status of a message that names its sender itself."""
        message = with_identity(
            metric_message(metric_result(metricName=metric)), operator_identity("root")
        )
        with closing(self.connection()) as connection:
            connection.request("POST", "/v1/messages", serialise(message) + b"\n", headers)
            return json.loads(connection.getresponse().readline())["status"]

    def reload(self) -> None:
        """Send SIGHUP, and wait until the daemon listens again."""
        times = len(self.daemon.lines("starting with")) + 1
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.wait_for("starting with", times=times)

    def refusals(self) -> object:
        return json.loads(self.site.run("status", "--json").stdout)["refusals"]

    def senders(self) -> dict[str, str]:
        """The identity of the sender of each metric."""
        names = self.site.column("SELECT metricName FROM metricOutput ORDER BY 1")
        identities = self.site.column("SELECT publisher FROM metricOutput ORDER BY metricName")
        return dict(zip(names, identities, strict=True))


def post(
    connection: HTTPSConnection, metric: str, message_class: str, headers: Mapping[str, str]
) -> Answer:
    body = metric_message(metric_result(metricName=metric)).body
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", f"/v1/messages/{message_class}", body, names)
    response = connection.getresponse()
    return Answer(response.status, dict(response.getheaders()), json.loads(response.read()))


@contextmanager
def open_door(
    directory: Path,
    *revoked: trustme.LeafCert,
    files: TlsFiles,
    policy: str = POLICY,
    target: str = "",
) -> Iterator[Door]:
    """A running consumer with all kinds of credentials, in front of a database or a `target`."""
    (port,) = free_ports(1)
    site = make_site(
        directory, f"sqlite:///{directory / 'sam.db'}", [f"listen+https://{HOST}:{port}"]
    )
    host = files.host()
    keys = {
        "certificate_file": files.certificate_file(host, "host.pem"),
        "key_file": files.key_file(host, name="host-key.pem"),
        "client_ca_file": files.ca_file,
        "crl_file": files.revocation_list(*revoked),
        "tokens_file": directory / "tokens",
    }
    make_token(directory / "tokens", "nobody")
    lines = [f'{key} = "{path}"' for key, path in keys.items()]
    (directory / "publishers.toml").write_text(policy)
    text = site.config.read_text().replace(
        "[consumer]\n", '[consumer]\npublishers = "publishers.toml"\n'
    )
    site.config.write_text(
        "\n".join([text, "[consumer.door]", *lines, "require_identity = true", ""])
    )
    with running(site, *(["--to", target] if target else [])) as daemon:
        eventually(lambda: port_is_open(port) or not daemon.alive)
        yield Door(site, daemon, files, port)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_rows_have_the_identity_of_their_sender(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    login = f"Basic {b64encode(f'listed:{token}'.encode()).decode()}"
    revoked, good = files.client(), files.client()
    with open_door(tmp_path, revoked, files=files) as door:
        assert door.post("token", Authorization=bearer(token)).status == 200
        assert door.post("login", Authorization=login).status == 200
        assert door.post("certificate", certificate=good).status == 200
        both = door.post("both", certificate=good, Authorization=bearer(token))
        assert both.status == 200

        assert door.post_forged("forged", Authorization=bearer(token)) == 200

        nobody = door.post("none")
        assert nobody.status == 401
        assert "Bearer" in nobody.headers["WWW-Authenticate"]
        assert nobody.headers["Content-Type"] == "application/problem+json"
        wrong = door.post("wrong", certificate=good, Authorization=bearer("x"))
        assert wrong.status == 401
        other = door.post("class", message_class="downtime", Authorization=bearer(token))
        assert other.status == 403
        assert "downtime" in str(other.document["detail"])
        eventually(lambda: door.refusals() == {"by-token": {"not-authorised": 1}})
        with pytest.raises((OSError, HTTPException)):
            door.post("revoked", certificate=revoked)
        with pytest.raises((OSError, HTTPException)):
            door.post("foreign", certificate=files.foreign_client())

        senders = door.senders()
        assert senders.pop("certificate").startswith("cert:CN=probe,")
        assert senders == dict.fromkeys(("token", "login", "both", "forged"), "token:listed")
        assert door.site.scalar("SELECT count(*) FROM dead_letter") == 0


def test_the_identity_goes_along_through_a_spool(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    spool = f"spool://{tmp_path}/relayed"
    with open_door(tmp_path, files=files, target=spool) as door:
        assert door.post("relayed", Authorization=bearer(token)).status == 202
        assert door.post("refused", message_class="x", Authorization=bearer(token)).status == 403
    text = door.site.config.read_text()
    door.site.config.write_text(re.sub(r"brokers = .*", f'brokers = ["{spool}"]', text))

    assert door.site.drain().code == 0
    assert door.senders() == {"relayed": "token:listed"}


def test_a_publisher_above_its_rate_waits_alone(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    policy = POLICY.replace("[[publisher]]\n", "[[publisher]]\nrecords_per_minute = 2\n", 1)
    with open_door(tmp_path, files=files, policy=policy) as door:
        stored = [door.post(f"m{n}", Authorization=bearer(token)).status for n in range(3)]
        refused = door.post("m3", Authorization=bearer(token))

        assert (stored, refused.status) == ([200] * 3, 429)
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        assert door.post("other", certificate=files.client()).status == 200
        assert set(door.senders()) == {"m0", "m1", "m2", "other"}


def test_a_reload_reads_tokens_and_certificate_again(tmp_path: Path, files: TlsFiles) -> None:
    with open_door(tmp_path, files=files) as door:
        first = make_token(door.tokens, "listed")
        assert door.post("too early", Authorization=bearer(first)).status == 401
        door.reload()
        assert door.post("first", Authorization=bearer(first)).status == 200

        door.tokens.write_text("")
        second = make_token(door.tokens, "listed")
        host = files.host()
        files.certificate_file(host, "host.pem")
        files.key_file(host, name="host-key.pem")
        door.reload()
        with closing(door.connection()) as connection:
            connection.connect()
            served = connection.sock.getpeercert(binary_form=True)
            assert ssl.DER_cert_to_PEM_cert(served) == host.cert_chain_pems[0].bytes().decode()
            headers = {"Authorization": bearer(second)}
            assert post(connection, "second", "metricOutput", headers).status == 200
        assert door.post("removed", Authorization=bearer(first)).status == 401
        assert set(door.senders()) == {"first", "second"}


def test_a_reload_with_bad_files_changes_nothing(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    with open_door(tmp_path, files=files) as door:
        door.tokens.write_text("not a line of this file\n")
        files.key_file(files.client(), name="host-key.pem")
        door.reload()

        assert len(door.daemon.lines(KEPT)) == 1
        assert door.post("kept", Authorization=bearer(token)).status == 200


def test_no_connection_is_refused_during_reloads(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    stop = threading.Event()
    stored: list[str] = []
    refused: list[OSError] = []

    def send() -> None:
        number = 0
        while not stop.is_set():
            metric = f"m{number}"
            try:
                status = door.post(metric, Authorization=bearer(token)).status
            except ConnectionRefusedError as error:
                refused.append(error)
            except (OSError, HTTPException):
                continue  # closed before an answer: sent again
            else:
                assert status in (200, 503)
                if status == 200:
                    stored.append(metric)
                    number += 1

    with open_door(tmp_path, files=files) as door:
        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(3):
            before = len(stored)
            eventually(lambda before=before: len(stored) > before + 1)  # type: ignore[misc]
            door.reload()
        eventually(lambda: len(stored) > before + 5)
        stop.set()
        sender.join(30)

        assert refused == []
        assert set(door.senders()) == set(stored)
