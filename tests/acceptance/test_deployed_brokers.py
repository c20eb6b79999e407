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
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.channel import connect
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_session import SessionLost, StompSession
from sam_pipeline.schema.net.subject import subject_of
from sam_pipeline.schema.net.tls import TlsFiles as ClientFiles
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


@dataclass(frozen=True)
class Deployed:
    """A broker, and the certificates of the hosts in its configuration; `revoked` was nagios1."""

    kind: str
    server: StompServer
    files: TlsFiles

    @property
    def url(self) -> str:
        return self.server.tls_url

    def login_url(self, user: str) -> str:
        """Where a client logs in by password: ActiveMQ knows it by certificate over TLS."""
        url = self.server.url if self.kind == "activemq" else self.url
        return url.replace("://", f"://{user}@")

    def user_of(self, host: str) -> str:
        """The name of the user with the certificate of a host."""
        if self.kind == "rabbitmq":
            return f"CN={host}.example.org,OU=computers,O=Example"
        return f"/O=Example/OU=computers/CN={host}.example.org"

    def identity_of(self, user: str) -> str:
        return broker_identity(str(parse_broker(self.url)), user)

    def tls(self, host: str | None) -> dict[str, str]:
        """The keys of a client with the certificate of a host, or without one."""
        authorities = self.files.directory / "certificates"
        keys = {"ca_file": authorities, "crl_file": authorities}
        if host:
            keys["certificate_file"] = self.files.directory / f"{host}.pem"
        return {name: str(path) for name, path in keys.items()}


@pytest.fixture(scope="module", params=KINDS)
def deployed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    files = TlsFiles(tmp_path_factory.mktemp("grid"))
    names = {host: f"{host.replace('revoked', 'nagios1')}.example.org" for host in HOSTS}
    certificates = {
        host: files.ca.issue_cert(
            name,
            common_name=name,
            organization_name="Example",
            organization_unit_name="computers",
        )
        for host, name in names.items()
    }
    for host, certificate in certificates.items():
        files.file(f"{host}.pem", certificate.private_key_and_cert_chain_pem.bytes())
    grid = files.directory
    authorities = files.ca_directory()
    files.revocation_list(certificates["revoked"], name="certificates/grid-ca.crl")
    subprocess.run(["openssl", "rehash", str(authorities)], check=True, timeout=30)
    host = files.host()
    files.certificate_file(host, "hostcert.pem")
    files.key_file(host, name="hostkey.pem")

    def add_secrets(kind: str, directory: Path) -> None:
        commands = PAGE.texts("sh")[[*KINDS].index(kind)]
        script = commands.replace("/etc/grid-security", str(grid))
        subprocess.run(["sh", "-eu", "-c", script], cwd=directory, check=True, timeout=60)

    with needed(running_deployed(request.param, add_secrets)) as server:
        yield Deployed(request.param, server, files)


def run(
    directory: Path,
    program: str,
    section: Mapping[str, object],
    *arguments: str,
    password: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run an installed program with a configuration of its own."""
    of_subscription = ("destination", "shared")
    keys = {name: value for name, value in section.items() if name not in of_subscription}
    lines = [f"[{program}]", *(f"{name} = {json.dumps(value)}" for name, value in keys.items())]
    if program == "consumer":
        lines.append("[[consumer.subscription]]")
        chosen = [name for name in of_subscription if name in section]
        lines += [f"{name} = {json.dumps(section[name])}" for name in chosen]
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


def published(
    directory: Path, deployed: Deployed, host: str | None, user: str = "", password: str = ""
) -> subprocess.CompletedProcess[str]:
    """Publish a result with the certificate of a host, or as a user with a password."""
    url = deployed.login_url(user) if user else deployed.url
    section = {"brokers": [url], "spool": str(directory / "spool"), **deployed.tls(host)}
    arguments = [*RESULT, "--require-broker"]
    return run(directory, "publisher", section, *arguments, password=password)


def sent(deployed: Deployed, host: str, destination: str, **headers: str) -> str:
    """Send a message without our publisher, whose headers are checked; returns the refusal."""
    broker, deadline = parse_broker(deployed.url), Deadline.after(10)
    channel = connect(deployed.server.host, broker.port, deadline)
    ours = deployed.files.directory / f"{host}.pem"
    secured = secure(channel, broker, ClientFiles(deployed.files.ca_file, ours))
    message = metric_message(**headers)
    with closing(StompSession(secured)) as session:
        session.log_in({}, deadline)
        frame = {**message.headers, "destination": destination, "persistent": "true"}
        try:
            session.ask("SEND", frame, deadline, message.body)
        except SessionLost as loss:
            assert loss.by_error, loss
            return str(loss)
    return ""


def relayed(directory: Path, deployed: Deployed, shared: bool = False) -> list[Message]:
    """Those that `sam-consume run --to` gets from the topic of results, once it has subscribed."""
    section = {
        "name": "site-a",
        "brokers": [deployed.url],
        "vouches": [deployed.url],
        "destination": RESULTS,
        "shared": shared,
        **deployed.tls("consumer"),
    }
    out = directory / "out"
    done = run(directory, "consumer", section, "run", "--drain", "--to", f"spool://{out}")
    assert done.returncode == 0, done.stderr
    queue = DirectoryQueue(out)
    return [queue.read(name) for name in queue.names()]


@dataclass(frozen=True)
class Sending:
    """Results that were sent in different ways, and the identities that arrived."""

    by_certificate: int
    by_login: int
    """Exit codes of `sam-publish`."""
    refusals: Mapping[str, str]
    """Of messages that claim to be of root, by their `user-id`."""
    identities: list[str]


@pytest.fixture(scope="module")
def sending(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Sending:
    directory = tmp_path_factory.mktemp("sending")
    assert relayed(directory, deployed) == []
    by_certificate = published(directory, deployed, "nagios1")
    by_login = published(directory, deployed, None, "nagios2", PASSWORDS["nagios2"])
    refusals = {
        user: sent(deployed, "nagios1", RESULTS, **FORGED, **({"user-id": user} if user else {}))
        for user in (deployed.user_of("nagios1"), "root", "")
    }
    identities = [identity_of(message) for message in relayed(directory, deployed)]
    return Sending(by_certificate.returncode, by_login.returncode, refusals, identities)


def test_a_publisher_is_known_by_the_subject_of_its_certificate_or_by_its_login(
    deployed: Deployed, sending: Sending
) -> None:
    users = deployed.user_of("nagios1"), "nagios2"

    assert (sending.by_certificate, sending.by_login) == (0, 0)
    assert sending.identities[:2] == [*map(deployed.identity_of, users)]


def test_what_a_publisher_claims_to_be_is_overwritten_or_refused(
    deployed: Deployed, sending: Sending
) -> None:
    known = deployed.identity_of(deployed.user_of("nagios1"))

    if deployed.kind == "rabbitmq":  # it verifies a name, but adds none
        assert "but authenticated user was" in sending.refusals.pop("root")
        assert sending.identities[2:] == [known, ANONYMOUS]
    else:
        assert sending.identities[2:] == [known] * 3
    assert not any(sending.refusals.values())


@pytest.mark.parametrize("deployed", ["artemis"], indirect=True)
def test_an_empty_shared_subscription_that_nobody_reads_stays(
    deployed: Deployed, tmp_path: Path
) -> None:
    relayed(tmp_path, deployed, shared=True)
    time.sleep(3 * SCAN_MS / 1000)  # by default, Artemis removes it meanwhile

    assert published(tmp_path, deployed, "nagios1").returncode == 0
    assert len(relayed(tmp_path, deployed, shared=True)) == 1


@pytest.mark.parametrize(
    ("host", "user", "password"),
    [
        (None, "", ""),
        (None, "nagios2", "guessed"),
        (None, "guest", "guest"),
        ("stranger", "", ""),
        ("revoked", "", ""),
    ],
    ids=["anonymous", "wrong password", "unknown user", "unknown certificate", "revoked"],
)
def test_a_client_that_is_not_known_cannot_publish(
    deployed: Deployed, tmp_path: Path, host: str | None, user: str, password: str
) -> None:
    done = published(tmp_path, deployed, host, user, password)

    assert done.returncode != 0
    assert DirectoryQueue(tmp_path / "spool").count() == 1  # not published
    assert str(parse_broker(deployed.login_url(user) if user else deployed.url)) in done.stderr


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
    assert sent(deployed, host, destination) != ""


@pytest.mark.parametrize("deployed", ["rabbitmq"], indirect=True)
def test_rabbitmq_writes_a_subject_as_the_publisher_does(
    deployed: Deployed, tmp_path: Path
) -> None:
    odd = deployed.files.ca.issue_cert(
        "odd.example.org",
        common_name='#1 odd"host<x>;~ ',
        organization_name=" Grid, École + \\ Ltd",
        organization_unit_name="computers=日本",
    )
    path = deployed.files.file("odd.pem", odd.private_key_and_cert_chain_pem.bytes())

    done = published(tmp_path, deployed, "odd")

    subject = subject_of(path)
    assert subject is not None
    assert f"'{subject}'" in done.stderr


@pytest.mark.parametrize("program", ["publisher", "consumer"])
def test_check_finds_no_problem_and_nothing_that_anybody_may_do(
    deployed: Deployed, tmp_path: Path, program: str
) -> None:
    if program == "publisher":
        section, arguments = documented(deployed, "nagios1"), []
    else:
        section = documented(deployed, "consumer") | {"name": "site-a", "destination": RESULTS}
        arguments = ["--to", f"spool://{tmp_path}/out"]

    done = run(tmp_path, program, section, "check", "--connect", "--json", *arguments)

    (trip,) = json.loads(done.stdout)["brokers"]
    assert done.returncode == 0, done.stderr
    assert trip["proven"].startswith(("confirmed", "subscribed"))
    assert not trip["anybody_may_publish"]


def test_a_consumer_may_delete_its_own_subscription(deployed: Deployed, tmp_path: Path) -> None:
    section = {"name": "site-a", "brokers": [deployed.url], "destination": RESULTS}
    relayed(tmp_path, deployed)  # subscribes

    section |= deployed.tls("consumer")
    deleted = run(tmp_path, "consumer", section, "unsubscribe", deployed.url, RESULTS, "--yes")

    assert deleted.returncode == 0, deleted.stderr
    assert "deleted site-a." in deleted.stdout


def documented(deployed: Deployed, host: str) -> dict[str, object]:
    """The configuration of the page, for this broker and the certificate of a host."""
    (text,) = PAGE.texts("toml", "The other ends")
    text = text.replace("stomp+ssl://msg1.example.org:61614", deployed.url)
    text = text.replace("/etc/grid-security", str(deployed.files.directory))
    keys: dict[str, object] = tomllib.loads(re.sub("host(cert|key)", host, text))["publisher"]
    return keys


def test_each_publisher_sends_to_its_own_topics(deployed: Deployed) -> None:
    assert sent(deployed, "nagios1", RESULTS) == ""
    assert sent(deployed, "topology", ENDPOINTS) == ""


def test_a_publisher_reads_nothing(deployed: Deployed) -> None:
    broker, deadline = parse_broker(deployed.url), Deadline.after(10)
    channel = connect(deployed.server.host, broker.port, deadline)
    ours = ClientFiles(deployed.files.ca_file, deployed.files.directory / "nagios1.pem")
    with closing(StompSession(secure(channel, broker, ours))) as session:
        session.log_in({}, deadline)
        with suppress(TimeoutError), pytest.raises(SessionLost) as refused:
            session.ask("SUBSCRIBE", {"id": "1", "destination": RESULTS}, deadline)

    assert refused.value.by_error
