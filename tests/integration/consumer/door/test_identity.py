"""Who sends over HTTPS: tokens, certificates, the policy, and what a reload changes."""

from __future__ import annotations

import signal
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from sam_pipeline.consumer.commands.run import CONTINUING
from sam_pipeline.schema.identity.identity import operator_identity, with_identity
from sam_pipeline.schema.identity.tokens import make_token
from sam_pipeline.schema.spool.element import serialise
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import Daemon, site_of
from tests.support.consumer.door import PATH, Door, listening, new_door
from tests.support.consumer.site import Site
from tests.support.http_client import LINES, NO_ANSWER, TEXT, HttpAnswer, HttpClient
from tests.support.raw_http import RawConnection
from tests.support.waiting import eventually

RULE = '[[publisher]]\nname = "{}"\nis = ["{}"]\nclasses = ["metricOutput"]\nhosts = ["*"]\n'
POLICY = 'mode = "enforce"\n' + "".join(
    RULE.format(*of) + 'sites = ["*"]\n'
    for of in (("by-token", "token:listed"), ("by-certificate", "cert:CN=probe,*"))
)


class Secured(NamedTuple):
    site: Site
    daemon: Daemon
    files: TlsFiles
    door: Door

    @property
    def tokens(self) -> Path:
        return self.site.config.with_name("tokens")

    def client(self, certificate: trustme.LeafCert | None = None) -> HttpClient:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.files.ca.configure_trust(context)
        if certificate:
            certificate.configure_cert(context)
        return HttpClient(self.door.port, context)

    def post(
        self,
        metric: str,
        token: str = "",
        certificate: trustme.LeafCert | None = None,
        message_class: str = "metricOutput",
    ) -> HttpAnswer:
        headers = {"Authorization": token if " " in token else f"Bearer {token}"} if token else {}
        body = metric_message(metric_result(metricName=metric)).body
        with self.client(certificate) as client:
            return client.post(f"{PATH}/{message_class}", body, TEXT, **headers)

    def reload(self) -> None:
        """Send SIGHUP, and wait until the daemon listens again."""
        times = len(self.daemon.lines("starting with")) + 1
        self.daemon.process.send_signal(signal.SIGHUP)
        self.daemon.wait_for("starting with", times=times)

    def senders(self) -> dict[str, str]:
        """The identity of the sender of each metric."""
        names = self.site.column("SELECT metricName FROM metricOutput ORDER BY 1")
        identities = self.site.column("SELECT publisher FROM metricOutput ORDER BY metricName")
        return dict(zip(names, identities, strict=True))


@contextmanager
def secured(
    directory: Path,
    files: TlsFiles,
    revoked: tuple[trustme.LeafCert, ...] = (),
    proxy_depth: int = 0,
) -> Iterator[Secured]:
    """A running consumer with all kinds of credentials."""
    door, host = new_door(tls=True), files.host()
    (directory / "publishers.toml").write_text(POLICY)
    site = site_of(directory, [door.listen_url], name="door", policy_file="publishers.toml")
    keys = {
        "certificate_file": files.certificate_file(host, "host.pem"),
        "key_file": files.key_file(host, name="host-key.pem"),
        "client_ca_file": files.ca_file,
        "crl_file": files.revocation_list(*revoked),
        "tokens_file": directory / "tokens",
    }
    make_token(directory / "tokens", "nobody")
    lines = [f'{key} = "{path}"' for key, path in keys.items()]
    lines.append(f"proxy_depth = {proxy_depth}")
    with site.config.open("a") as config:
        config.write("\n".join(["[consumer.door]", *lines, "require_identity = true", ""]))
    with listening(site, door) as daemon:
        yield Secured(site, daemon, files, door)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def test_rows_have_the_identity_of_their_sender(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    login = f"Basic {b64encode(f'listed:{token}'.encode()).decode()}"
    revoked, good = files.client(), files.client()
    claims = with_identity(
        metric_message(metric_result(metricName="forged")), operator_identity("root")
    )
    with secured(tmp_path, files, revoked=(revoked,)) as door:
        assert door.post("token", token).status == 200
        assert door.post("login", login).status == 200
        assert door.post("certificate", certificate=good).status == 200
        assert door.post("both", token, good).status == 200
        with door.client() as client:
            bearer = {"Authorization": f"Bearer {token}"}
            forged = client.post(PATH, serialise(claims) + b"\n", LINES, **bearer)
        assert forged.lines[0]["status"] == 200

        nobody = door.post("none")
        assert nobody.status == 401
        assert "Bearer" in nobody.headers["www-authenticate"]
        assert nobody.headers["content-type"] == "application/problem+json"
        assert door.post("wrong", "x", good).status == 401
        other = door.post("class", token, message_class="downtime")
        assert (other.status, "downtime" in other.document["detail"]) == (403, True)
        refusals = {"by-token": {"not-authorised": 1}}
        eventually(lambda: door.site.status().get("refusals") == refusals)
        for certificate in (revoked, files.foreign_client()):
            with pytest.raises(NO_ANSWER):
                door.post("refused", certificate=certificate)

        senders = door.senders()
        assert senders.pop("certificate").startswith("cert:CN=probe,")
        assert senders == dict.fromkeys(("token", "login", "both", "forged"), "token:listed")
        assert door.site.letters() == 0


def test_a_proxy_is_its_user_and_limited_in_depth(tmp_path: Path, files: TlsFiles) -> None:
    user, revoked = files.client(), files.client()
    job = files.proxy_of(user)
    delegated = files.proxy_of(job, 2)
    with secured(tmp_path, files, revoked=(revoked,), proxy_depth=1) as door:
        assert door.post("user", certificate=user).status == 200
        assert door.post("job", certificate=job).status == 200
        too_deep = door.post("delegated", certificate=delegated)
        for refused in (files.proxy_of(files.foreign_client()), files.proxy_of(revoked)):
            with pytest.raises(NO_ANSWER):
                door.post("refused", certificate=refused)

        assert (too_deep.status, "proxy_depth" in too_deep.document["detail"]) == (401, True)
        senders = door.senders()
        assert senders["job"] == senders["user"]
        assert sorted(senders) == ["job", "user"]


UNACCEPTABLE = {
    "a proxy": ("proxy", lambda files: files.proxy_of(files.client())),
    "out of date": ("has expired", lambda files: files.expired_client()),
    "of another authority": ("untrusted CA", lambda files: files.foreign_client()),
}


@pytest.mark.parametrize("kind", UNACCEPTABLE)
def test_a_refused_handshake_is_explained_on_both_sides(
    tmp_path: Path, files: TlsFiles, kind: str
) -> None:
    reason, make = UNACCEPTABLE[kind]
    with secured(tmp_path, files) as door:
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            door.post("refused", certificate=make(files))
        with suppress(*NO_ANSWER), RawConnection(door.door.port, 20) as plain:
            plain.send(b"GET / HTTP/1.1\r\n\r\n")
            plain.answer()

        door.daemon.wait_for("handshake failed", times=2)
        by_certificate, by_protocol = door.daemon.lines("handshake failed")
        assert "127.0.0.1" in by_certificate and reason in by_certificate
        assert "TLS" in by_protocol


def test_a_reload_takes_good_files_and_keeps_the_old_ones(tmp_path: Path, files: TlsFiles) -> None:
    with secured(tmp_path, files) as door:
        first = make_token(door.tokens, "listed")
        assert door.post("too early", first).status == 401
        door.reload()
        assert door.post("first", first).status == 200

        door.tokens.write_text("")
        second = make_token(door.tokens, "listed")
        host = files.host()
        files.certificate_file(host, "host.pem")
        files.key_file(host, name="host-key.pem")
        door.reload()
        with door.client() as client:
            assert client.certificate == host.cert_chain_pems[0].bytes().decode()
        assert door.post("second", second).status == 200
        assert door.post("removed", first).status == 401

        door.tokens.write_text("not a line of this file\n")
        files.key_file(files.client(), name="host-key.pem")
        door.daemon.process.send_signal(signal.SIGHUP)
        door.daemon.wait_for(CONTINUING)
        assert door.post("kept", second).status == 200
        assert set(door.senders()) == {"first", "second", "kept"}


def test_senders_lose_nothing_while_a_door_reloads(tmp_path: Path, files: TlsFiles) -> None:
    token = make_token(tmp_path / "tokens", "listed")
    stop = threading.Event()
    stored: list[str] = []
    refused: list[OSError] = []

    def send(sender: int) -> None:
        number = 0
        while not stop.is_set():
            metric = f"m{sender}.{number}"
            try:
                status = door.post(metric, token).status
            except ConnectionRefusedError as error:
                refused.append(error)
            except NO_ANSWER:
                continue  # closed before an answer: sent again
            else:
                assert status in (200, 503)
                if status == 200:
                    stored.append(metric)
                    number += 1

    with secured(tmp_path, files) as door:
        senders = [threading.Thread(target=send, args=[sender]) for sender in range(2)]
        for sender in senders:
            sender.start()
        for _ in range(3):
            before = len(stored)
            eventually(lambda before=before: len(stored) > before + 1)  # type: ignore[misc]
            door.reload()
        eventually(lambda: len(stored) > before + 5)
        stop.set()
        for sender in senders:
            sender.join(30)

        assert refused == []
        assert set(door.senders()) == set(stored)
        assert (door.site.letters(), "Traceback" in door.daemon.log) == (0, False)
