"""Signed messages as they arrive: who sent them, and what becomes of a refused signature."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.identity.identity import (
    identity_of,
    key_identity,
    uid_identity,
    with_identity,
)
from sam_pipeline.schema.identity.keys import Signer, load_signer, make_key
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import TOO_LARGE, mark_refused, refusal_of
from tests.support.builders import metric_message

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SENDER = uid_identity(1000)
DAYS, SECOND = timedelta(days=30), timedelta(seconds=1)


@pytest.fixture
def nagios(tmp_path: Path) -> Signer:
    return new_signer(tmp_path / "nagios1.pem")


def new_signer(path: Path) -> Signer:
    make_key(path)
    return load_signer(path)


def check(directory: Path, signer: Signer, mode: str = "enforce") -> SignatureCheck:
    """What a consumer does whose policy knows the key of the signer."""
    policy = directory / "publishers.toml"
    policy.write_text(
        f'mode = "{mode}"\n[[publisher]]\nname = "nagios-cern"\nis = ["key:{signer.name}"]\n'
        f'keys = ["{signer.public_key()}"]\nclasses = ["metricOutput"]\nsites = ["*"]\n'
    )
    return SignatureCheck(PolicyHolder(policy), DAYS, lambda: NOW)


def signed(signer: Signer, at: datetime = NOW) -> Message:
    """A signed message, as its source identifies the sender by other means."""
    message = metric_message(destination="/topic/grid.probe.metricOutput")
    return with_identity(sign(message, signer, at), SENDER)


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (timedelta(), ""),
        *((DAYS, ""), (DAYS + SECOND, "signature-expired")),
        (-DAYS - SECOND, "signature-expired"),
    ],
)
def test_a_signature_expires(tmp_path: Path, nagios: Signer, age: timedelta, reason: str) -> None:
    message = check(tmp_path, nagios).checked(signed(nagios, NOW - age), inbox := Inbox(1))

    refusal = refusal_of(message)
    assert (refusal.reason if refusal else "") == reason
    assert identity_of(message) == (SENDER if reason else key_identity("nagios1"))
    assert dict(inbox.take_refusals()) == ({("nagios-cern", reason): 1} if reason else {})


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_changed_message_is_counted_and_marked(tmp_path: Path, nagios: Signer, mode: str) -> None:
    message = signed(nagios)
    changed = Message(message.headers, message.body.replace(b"OK", b"CRITICAL"))

    checked = check(tmp_path, nagios, mode).checked(changed, inbox := Inbox(1))

    refusal = refusal_of(checked)
    assert refusal.reason == "bad-signature" if refusal else checked == changed
    assert bool(refusal) == (mode == "enforce")
    assert identity_of(checked) == SENDER  # as its source knows it
    assert inbox.take_refusals() == {("nagios-cern", "bad-signature"): 1}
    assert not inbox.take_refusals()


def test_what_cannot_be_verified_is_not_signed(tmp_path: Path, nagios: Signer) -> None:
    unknown, message = signed(new_signer(tmp_path / "stranger.pem")), signed(nagios)
    cut = mark_refused(Message(message.headers, message.body[:10]), TOO_LARGE, "cut")

    assert check(tmp_path, nagios).checked(unknown, Inbox(1)) == unknown
    assert SignatureCheck().checked(unknown, Inbox(1)) == unknown  # without a policy
    assert check(tmp_path, nagios).checked(cut, Inbox(1)) == cut


def test_messages_that_arrive_together_keep_their_order(tmp_path: Path, nagios: Signer) -> None:
    messages = [signed(nagios) for _ in range(101)]
    messages[50] = Message(messages[50].headers, b"other")

    checked = [*check(tmp_path, nagios).all_checked(messages, inbox := Inbox(1))]

    assert [message.message_id for message in checked] == [item.message_id for item in messages]
    assert [at for at, message in enumerate(checked) if refusal_of(message)] == [50]
    assert inbox.take_refusals().total() == 1
