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
DAYS = timedelta(days=30)


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


def test_the_sender_of_a_signed_message_is_its_key(tmp_path: Path, nagios: Signer) -> None:
    message = check(tmp_path, nagios).checked(signed(nagios), inbox := Inbox(1))

    assert identity_of(message) == key_identity("nagios1")
    assert refusal_of(message) is None
    assert not inbox.take_refusals()


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (DAYS, ""),
        (DAYS + timedelta(seconds=1), "signature-expired"),
        (-DAYS - timedelta(seconds=1), "signature-expired"),
    ],
)
def test_a_signature_expires_to_the_second(
    tmp_path: Path, nagios: Signer, age: timedelta, reason: str
) -> None:
    message = check(tmp_path, nagios).checked(signed(nagios, NOW - age), inbox := Inbox(1))

    refusal = refusal_of(message)
    assert (refusal.reason if refusal else "") == reason
    assert dict(inbox.take_refusals()) == ({("nagios-cern", reason): 1} if reason else {})


def test_a_changed_message_is_marked_and_keeps_the_sender_that_the_source_knows(
    tmp_path: Path, nagios: Signer
) -> None:
    message = signed(nagios)
    changed = Message(message.headers, message.body.replace(b"OK", b"CRITICAL"))

    marked = check(tmp_path, nagios).checked(changed, inbox := Inbox(1))

    refusal = refusal_of(marked)
    assert refusal
    assert refusal.reason == "bad-signature"
    assert identity_of(marked) == SENDER
    assert inbox.take_refusals() == {("nagios-cern", "bad-signature"): 1}
    assert not inbox.take_refusals()


def test_a_policy_that_observes_counts_a_refused_signature_and_lets_the_message_pass(
    tmp_path: Path, nagios: Signer
) -> None:
    message = signed(nagios)
    changed = Message(message.headers, b"other")

    assert check(tmp_path, nagios, "observe").checked(changed, inbox := Inbox(1)) == changed
    assert inbox.take_refusals() == {("nagios-cern", "bad-signature"): 1}


def test_the_signature_of_an_unknown_key_counts_as_none(tmp_path: Path, nagios: Signer) -> None:
    unknown = signed(new_signer(tmp_path / "stranger.pem"))

    assert check(tmp_path, nagios).checked(unknown, Inbox(1)) == unknown
    assert SignatureCheck().checked(unknown, Inbox(1)) == unknown  # without a policy


def test_the_rest_of_a_message_that_was_too_large_is_not_verified(
    tmp_path: Path, nagios: Signer
) -> None:
    message = signed(nagios)
    cut = mark_refused(Message(message.headers, message.body[:10]), TOO_LARGE, "cut")

    assert check(tmp_path, nagios).checked(cut, Inbox(1)) == cut


def test_messages_that_arrive_together_keep_their_order(tmp_path: Path, nagios: Signer) -> None:
    messages = [signed(nagios) for _ in range(101)]
    messages[50] = Message(messages[50].headers, b"other")

    checked = [*check(tmp_path, nagios).all_checked(messages, inbox := Inbox(1))]

    assert [message.message_id for message in checked] == [item.message_id for item in messages]
    assert [at for at, message in enumerate(checked) if refusal_of(message)] == [50]
    assert inbox.take_refusals().total() == 1
