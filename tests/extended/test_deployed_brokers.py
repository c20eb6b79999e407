"""The brokers as `deploy/brokers/` sets them up: who may do what, and who is known by what name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    IDENTITY,
    broker_identity,
    identity_of,
    key_identity,
)
from sam_pipeline.schema.net.broker import TlsFiles as ClientFiles
from sam_pipeline.schema.net.broker import parse_broker
from sam_pipeline.schema.net.channel import connect
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost, StompSession
from sam_pipeline.schema.net.tls import secure
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.broker import StompServer
from tests.services.deployed import KINDS, PASSWORDS, SCAN_MS, running_deployed
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message
from tests.support.page import Page

PAGE = Page("docs/brokers.md")
RESULTS, ENDPOINTS = "/topic/grid.probe.metricOutput", "/topic/grid.probe.serviceEndpoint"
HOSTS = ("nagios1", "topology", "consumer", "stranger", "revoked")
FORGED = {
    "JMSXUserID": "root",
    IDENTITY: key_identity("root"),
    # ActiveMQ and Artemis send it before their own JMSXUserID, and of two headers the first counts.
    "correlation-id": "x\nJMSXUserID:root\nuser-id:root",
}
RESULT = ["result", "--metric", "m", "--status", "OK", "--host", "h", "--flavour", "CE"]
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Deployed:
    """A broker, and the certificates of the hosts in its configuration; `revoked` was nagios1."""

    kind: str
    server: StompServer
    files: TlsFiles

    @property
    def url(self) -> str:
        return self.server.tls_url

    def user_of(self, host: str) -> str:
        """The name of the user with the certificate of a host."""
        if self.kind == "rabbitmq":
            return f"CN={host}.example.org,OU=computers,O=Example"
        return f"/O=Example/OU=computers/CN={host}.example.org"

    def identity_of(self, user: str) -> str:
        return broker_identity(str(parse_broker(self.url)), user)

    def documented(self, host: str = "") -> dict[str, object]:
        """The configuration of the page, for the certificate of a host, or without one."""
        (text,) = PAGE.texts("toml", "The other ends")
        text = text.replace("stomp+ssl://msg1.example.org:61614", self.url)
        text = text.replace("/etc/grid-security", str(self.files.directory))
        if not host:
            text = re.sub("^(certificate|key)_file.*\n", "", text, flags=re.MULTILINE)
        keys: dict[str, object] = tomllib.loads(re.sub("host(cert|key)", host, text))["publisher"]
        return keys

    def published(
        self, directory: Path, host: str = "", user: str = "", password: str = ""
    ) -> Done:
        """Publish a result with the certificate of a host, or as a user with a password."""
        section = self.documented(host) | {"spool": str(directory / "spool")}
        if user:  # ActiveMQ knows users by their certificates over TLS
            url = self.server.url if self.kind == "activemq" else self.url
            section["brokers"] = [url.replace("://", f"://{user}@")]
        return run(directory, "publisher", section, *RESULT, "--require-broker", password=password)

    def session(self, host: str) -> StompSession:
        """Without our publisher, whose headers are checked."""
        broker = parse_broker(self.url)
        channel = connect(self.server.host, broker.port, Deadline.after(10))
        ours = ClientFiles(self.files.ca_file, self.files.directory / f"{host}.pem")
        return StompSession(secure(channel, broker, ours))

    def sent(self, host: str, destination: str, **headers: str) -> str:
        """Send a message; returns the refusal."""
        deadline, message = Deadline.after(10), metric_message(**headers)
        with closing(self.session(host)) as session:
            session.log_in({}, deadline)
            frame = {**message.headers, "destination": destination, "persistent": "true"}
            try:
                session.ask("SEND", frame, deadline, message.body)
            except SessionLost as loss:
                assert loss.by_error, loss
                return str(loss)
        return ""

    def relayed(self, directory: Path, shared: bool = False) -> list[str]:
        """The senders of what `sam-consume run --to` gets, once it has subscribed."""
        section = self.documented("consumer") | {"name": "site-a", "trusted_brokers": [self.url]}
        out = directory / "out"
        options = ("run", "--drain", "--to", f"spool://{out}")
        done = run(directory, "consumer", section, *options, shared=shared)
        assert done.returncode == 0, done.stderr
        queue = DirectoryQueue(out)
        return [identity_of(queue.read(name)) for name in queue.names()]


@pytest.fixture(scope="module", params=KINDS)
def deployed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    files = TlsFiles(tmp_path_factory.mktemp("grid"))
    names = {host: f"{host.replace('revoked', 'nagios1')}.example.org" for host in HOSTS}
    for host, name in names.items():
        certificate = files.ca.issue_cert(
            name,
            common_name=name,
            organization_name="Example",
            organization_unit_name="computers",
        )
        files.file(f"{host}.pem", certificate.private_key_and_cert_chain_pem.bytes())
    authorities = files.ca_directory()
    files.revocation_list(certificate, name="certificates/grid-ca.crl")  # of the last host
    subprocess.run(["openssl", "rehash", str(authorities)], check=True, timeout=30)
    broker = files.host()
    files.certificate_file(broker, "hostcert.pem")
    files.key_file(broker, name="hostkey.pem")

    def add_secrets(kind: str, directory: Path) -> None:
        commands = PAGE.texts("sh")[[*KINDS].index(kind)]
        script = commands.replace("/etc/grid-security", str(files.directory))
        subprocess.run(["sh", "-eu", "-c", script], cwd=directory, check=True, timeout=60)

    with needed(running_deployed(request.param, add_secrets)) as server:
        yield Deployed(request.param, server, files)


def run(
    directory: Path,
    program: str,
    section: Mapping[str, object],
    *arguments: str,
    password: str = "",
    shared: bool = False,
) -> Done:
    """Run an installed program with a configuration of its own."""
    lines = [f"[{program}]", *(f"{name} = {json.dumps(value)}" for name, value in section.items())]
    if program == "consumer":
        lines.append(f'[[consumer.subscription]]\ndestination = "{RESULTS}"')
        lines.append(f"shared = {json.dumps(shared)}")
    (directory / "sam.toml").write_text("\n".join(lines))
    environment = {"PATH": os.environ["PATH"], "STATE_DIRECTORY": str(directory / "state")}
    if password:
        environment[f"SAM_{program.upper()}_PASSWORD"] = password
    return subprocess.run(
        [sys.executable, "-m", f"sam_pipeline.{program}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=directory,
        env=environment,
        check=False,
    )


def test_a_publisher_is_known_by_its_certificate_or_login_whatever_it_claims(
    deployed: Deployed, tmp_path: Path
) -> None:
    assert deployed.relayed(tmp_path) == []
    by_certificate = deployed.published(tmp_path, "nagios1")
    by_login = deployed.published(tmp_path, user="nagios2", password=PASSWORDS["nagios2"])
    known = deployed.user_of("nagios1")
    refusals = {
        user: deployed.sent("nagios1", RESULTS, **FORGED, **({"user-id": user} if user else {}))
        for user in (known, "root", "")
    }

    identities = deployed.relayed(tmp_path)

    assert (by_certificate.returncode, by_login.returncode) == (0, 0)
    assert identities[:2] == [*map(deployed.identity_of, (known, "nagios2"))]
    if deployed.kind == "rabbitmq":  # it verifies a name, but adds none
        assert "but authenticated user was" in refusals.pop("root")
        assert identities[2:] == [deployed.identity_of(known), ANONYMOUS]
    else:
        assert identities[2:] == [deployed.identity_of(known)] * 3
    assert not any(refusals.values())


@pytest.mark.parametrize("deployed", ["artemis"], indirect=True)
def test_an_empty_shared_subscription_that_nobody_reads_stays(
    deployed: Deployed, tmp_path: Path
) -> None:
    deployed.relayed(tmp_path, shared=True)
    time.sleep(3 * SCAN_MS / 1000)  # by default, Artemis removes it meanwhile

    assert deployed.published(tmp_path, "nagios1").returncode == 0
    assert len(deployed.relayed(tmp_path, shared=True)) == 1


@pytest.mark.parametrize(
    ("host", "user", "password"),
    [
        ("", "", ""),
        ("", "nagios2", "guessed"),
        ("", "guest", "guest"),
        ("stranger", "", ""),
        ("revoked", "", ""),
    ],
    ids=["anonymous", "wrong password", "unknown user", "unknown certificate", "revoked"],
)
def test_a_client_that_is_not_known_cannot_publish(
    deployed: Deployed, tmp_path: Path, host: str, user: str, password: str
) -> None:
    done = deployed.published(tmp_path, host, user, password)

    assert done.returncode != 0
    assert DirectoryQueue(tmp_path / "spool").count() == 1  # not published


@pytest.mark.parametrize(
    ("host", "destination"),
    [
        ("nagios1", ENDPOINTS),
        ("topology", RESULTS),
        ("consumer", RESULTS),
        ("nagios1", "/topic/grid.probe.own"),
        ("nagios1", "/queue/own"),
    ],
)
def test_a_publisher_sends_to_no_topic_but_its_own(
    deployed: Deployed, host: str, destination: str
) -> None:
    assert deployed.sent(host, destination) != ""
    assert deployed.sent("nagios1", RESULTS) == ""
    assert deployed.sent("topology", ENDPOINTS) == ""


def test_a_publisher_reads_nothing(deployed: Deployed) -> None:
    deadline = Deadline.after(10)
    with closing(deployed.session("nagios1")) as session:
        session.log_in({}, deadline)
        with suppress(TimeoutError), pytest.raises(SessionLost) as refused:
            session.ask("SUBSCRIBE", {"id": "1", "destination": RESULTS}, deadline)

    assert refused.value.by_error
