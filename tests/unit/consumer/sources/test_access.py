"""Who may send to a door: identities of requests, and what the policy says at once."""

from __future__ import annotations

import ssl
from base64 import b64encode
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.door.access import Access
from sam_pipeline.consumer.sources.door.answers import UNAUTHORIZED, HttpProblem
from sam_pipeline.consumer.sources.door.credentials import Credentials
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.identity.identity import ANONYMOUS, with_identity
from sam_pipeline.schema.identity.policy import ENFORCE, OBSERVE, Policy, PublisherRule
from sam_pipeline.schema.identity.tokens import StoredToken, Tokens
from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.records.classes import CHECK_CLASS
from tests.support.brokers.tls_files import TlsFiles

TOKEN = "5ec4e7" * 10
TOKENS = Tokens([StoredToken("nagios1", sha256(TOKEN.encode()).digest(), 1)])


def access(
    *, anonymous: bool = False, tokens: Tokens | None = TOKENS, policy: Policy | None = None
) -> Access:
    holder = PolicyHolder()
    holder.policy = policy
    return Access(Credentials(tokens=tokens, asks_for_certificates=True), holder, anonymous)


def basic(login: str) -> str:
    return f"Basic {b64encode(login.encode('latin-1')).decode()}"


@pytest.fixture
def certificate(tmp_path: Path) -> bytes:
    files = TlsFiles(tmp_path)
    return ssl.PEM_cert_to_DER_cert(files.certificate_file(files.client()).read_text())


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(f"nagios1:{TOKEN}")],
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
    rule = PublisherRule("one", ("token:nagios1",), ("metricOutput",))
    door = access(policy=Policy(mode, (rule,)) if mode else None)
    message = with_identity(new_message(message_class, "x: y\n"), identity)
    inbox = Inbox(1)

    with pytest.raises(HttpProblem, match=identity) if refused else nullcontext():
        door.require_permission(message, inbox)

    assert list(inbox.take_refusals().values()) == [1] * refused
