"""Who may send: identities of requests at a door, signatures, and the check of a door."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from sam_pipeline.consumer.commands.check import door_notes
from sam_pipeline.consumer.commands.files import problems_of_files
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import DoorConfig
from sam_pipeline.consumer.sources.door.access import Access, Credentials
from sam_pipeline.consumer.sources.door.answers import UNAUTHORIZED, HttpProblem
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    identity_of,
    key_identity,
    uid_identity,
    with_identity,
)
from sam_pipeline.schema.identity.keys import Signer, make_key
from sam_pipeline.schema.identity.policy import ENFORCE, OBSERVE, Policy, PublisherRule, load_policy
from sam_pipeline.schema.identity.signature import load_signer, sign
from sam_pipeline.schema.identity.tokens import StoredToken, Tokens, make_token
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.records.classes import CHECK_CLASS
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message

TOKEN = "5ec4e7" * 10
TOKENS = Tokens([StoredToken("nagios1", sha256(TOKEN.encode()).digest(), 1)])


def access(
    *, anonymous: bool = False, tokens: Tokens | None = TOKENS, policy: Policy | None = None
) -> Access:
    return Access(Credentials(tokens=tokens, asks_for_certificates=True), policy, anonymous)


def basic(login: str) -> str:
    return f"Basic {b64encode(login.encode('latin-1')).decode()}"


@pytest.fixture
def certificate(tmp_path: Path) -> bytes:
    files = TlsFiles(tmp_path)
    return ssl.PEM_cert_to_DER_cert(files.certificate_file(files.client()).read_text())


@pytest.mark.parametrize(
    "authorization", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(f"nagios1:{TOKEN}")]
)
def test_tokens_and_certificates_are_identities(authorization: str, certificate: bytes) -> None:
    assert access().identity(authorization, None) == "token:nagios1"
    assert access().identity(authorization, certificate) == "token:nagios1"
    assert access().identity("", certificate).startswith("cert:CN=probe,")


@pytest.mark.parametrize(
    "authorization",
    [
        *(f"Bearer {TOKEN[:-1]}", "Bearer", "Bearer \udcff", basic(f"nagios2:{TOKEN}")),
        *(basic(TOKEN), "Basic %%%", basic("nagios1:\xff"), f"Digest {TOKEN}", TOKEN),
    ],
)
def test_a_wrong_token_is_always_refused(authorization: str, certificate: bytes) -> None:
    for client in (None, certificate):
        with pytest.raises(HttpProblem) as caught:
            access(anonymous=True).identity(authorization, client)
        assert caught.value.status == UNAUTHORIZED
        assert caught.value.headers["WWW-Authenticate"].startswith("Bearer ")


@pytest.mark.parametrize("client", [None, b"odd"])  # a certificate without a readable subject
def test_an_anonymous_sender_needs_permission(client: bytes | None) -> None:
    assert access(anonymous=True).identity("", client) == ANONYMOUS
    with pytest.raises(HttpProblem) as caught:
        access().identity("", client)
    assert caught.value.status == UNAUTHORIZED


def test_without_a_file_of_tokens_logins_are_ignored(certificate: bytes) -> None:
    door = access(tokens=None, anonymous=True)

    assert door.identity("Basic of-a-proxy", None) == ANONYMOUS
    assert door.identity("Bearer any", certificate).startswith("cert:")
    with pytest.raises(HttpProblem):
        access(tokens=None).identity(f"Bearer {TOKEN}", None)


@pytest.mark.parametrize(
    ("mode", "identity", "message_class", "refused"),
    [
        (ENFORCE, "token:nagios1", "METRICOUTPUT", False),
        (ENFORCE, "token:nagios2", "metricOutput", True),
        (ENFORCE, "cert:nagios1", "metricOutput", True),
        (ENFORCE, ANONYMOUS, "metricOutput", True),
        (ENFORCE, "token:nagios1", "downtime", True),
        (ENFORCE, "token:nagios1", CHECK_CLASS, False),  # needs a known sender only
        (ENFORCE, "token:nagios2", CHECK_CLASS, True),
        (OBSERVE, ANONYMOUS, "downtime", False),
        (None, ANONYMOUS, "metricOutput", False),
    ],
)
def test_an_enforced_policy_refuses_whom_and_what_it_does_not_list(
    mode: str | None, identity: str, message_class: str, refused: bool
) -> None:
    rule = PublisherRule(name="one", identities=("token:nagios1",), classes=("metricOutput",))
    door = access(policy=Policy(mode=mode, publishers=(rule,)) if mode else None)
    message = with_identity(new_message(message_class, "x: y\n"), identity)
    inbox = Inbox(1)

    with pytest.raises(HttpProblem, match=identity) if refused else nullcontext():
        door.require_permission(message, inbox)

    assert list(inbox.take_counts().refusals.values()) == [1] * refused


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SENDER = uid_identity(1000)
DAYS, SECOND = timedelta(days=30), timedelta(seconds=1)


@pytest.fixture
def nagios(tmp_path: Path) -> Signer:
    make_key(tmp_path / "nagios1.pem")
    return load_signer(tmp_path / "nagios1.pem")


def check(directory: Path, signer: Signer, mode: str = "enforce") -> SignatureCheck:
    """What a consumer does whose policy knows the key of the signer."""
    policy = directory / "publishers.toml"
    policy.write_text(
        f'mode = "{mode}"\n[[publisher]]\nname = "nagios-cern"\nis = ["key:{signer.name}"]\n'
        f'keys = ["{signer.public_key()}"]\nclasses = ["metricOutput"]\nsites = ["*"]\n'
    )
    return SignatureCheck(load_policy(policy), DAYS, lambda: NOW)


def signed(signer: Signer, at: datetime = NOW) -> Message:
    """A signed message, as its source identifies the sender by other means."""
    message = metric_message(destination="/topic/grid.probe.metricOutput")
    return with_identity(sign(message, signer, at), SENDER)


@pytest.mark.parametrize(
    ("age", "reason"),
    [(DAYS, ""), (DAYS + SECOND, "signature-expired"), (-DAYS - SECOND, "signature-expired")],
)
def test_a_signature_expires(tmp_path: Path, nagios: Signer, age: timedelta, reason: str) -> None:
    message = check(tmp_path, nagios).checked(signed(nagios, NOW - age), inbox := Inbox(1))

    refusal = refusal_of(message)
    assert (refusal.reason if refusal else "") == reason
    assert identity_of(message) == (SENDER if reason else key_identity("nagios1"))
    assert dict(inbox.take_counts().refusals) == ({("nagios-cern", reason): 1} if reason else {})


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_changed_message_is_counted_and_marked(tmp_path: Path, nagios: Signer, mode: str) -> None:
    message = signed(nagios)
    changed = Message(message.headers, message.body.replace(b"OK", b"CRITICAL"))

    checked = check(tmp_path, nagios, mode).checked(changed, inbox := Inbox(1))

    refusal = refusal_of(checked)
    assert refusal.reason == "bad-signature" if refusal else checked == changed
    assert bool(refusal) == (mode == "enforce")
    assert identity_of(checked) == SENDER  # as its source knows it
    assert inbox.take_counts().refusals == {("nagios-cern", "bad-signature"): 1}
    assert not inbox.take_counts().refusals


def test_messages_that_arrive_together_keep_their_order(tmp_path: Path, nagios: Signer) -> None:
    messages = [signed(nagios) for _ in range(101)]
    messages[50] = Message(messages[50].headers, b"other")

    checked = [*check(tmp_path, nagios).all_checked(messages, inbox := Inbox(1))]

    assert [message.message_id for message in checked] == [item.message_id for item in messages]
    assert [at for at, message in enumerate(checked) if refusal_of(message)] == [50]
    assert inbox.take_counts().refusals.total() == 1


SECURE = f"listen+https://{HOST}:8443"
OPEN = "listen+http://0.0.0.0:8080"


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


def config_of(files: TlsFiles, url: str = SECURE, **door: bool) -> ConsumerConfig:
    """A door with a certificate and a token."""
    host, tokens = files.host(), files.directory / "tokens"
    make_token(tokens, "listed")
    keys = DoorConfig(
        certificate_file=files.certificate_file(host, "host.pem"),
        key_file=files.key_file(host, name="host-key.pem"),
        tokens_file=tokens,
        **{"require_identity": True, **door},
    )
    return ConsumerConfig(broker_urls=(url,), door=keys)


def about(lines: Sequence[str], *texts: str) -> list[str]:
    return [line for line in lines if all(text in line for text in texts)]


def door_problems(config: ConsumerConfig) -> list[str]:
    return [text for text in problems_of_files(config) if text.startswith("[consumer.door]")]


def test_all_bad_files_are_problems_at_once(files: TlsFiles) -> None:
    config = config_of(files)
    assert [*door_problems(config), *door_notes(config)] == []
    (files.directory / "tokens").chmod(0o644)
    files.certificate_file(files.expired_host(), "host.pem")
    problems = [*door_problems(config)]

    assert len(problems) == 3
    assert about(problems, "/tokens: ", "chmod")
    assert about(problems, "host.pem", "key")
    assert about(problems, "host.pem", "expired")


def test_who_may_send_without_identity_is_a_note(files: TlsFiles) -> None:
    notes = [*door_notes(config_of(files, OPEN, require_identity=False, insecure=True))]

    assert len(notes) == 2
    assert about(notes, OPEN, "anybody") and about(notes, OPEN, "plain text")
    (local,) = door_notes(config_of(files, "listen+http://localhost:8080", require_identity=False))
    assert "every account of this host" in local
