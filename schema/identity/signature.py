"""Signatures: made before a message goes anywhere, verified before it is parsed.

A signature covers all that decides how a message is loaded: class, destination, id, time, the
headers by which its records are read, and the body. Sent again, the same message is a redelivery;
in another class, or at a destination of another name, its signature is bad.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error, b2a_base64
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Optional

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.identity.identity import key_identity, with_identity
from sam_pipeline.schema.identity.keys import LibrarySigner, PublicKey, Signer, key_name, read_seed
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.messages.destination import name_of_destination
from sam_pipeline.schema.messages.headers import COVERED
from sam_pipeline.schema.messages.message import (
    CLASS,
    DESTINATION,
    KEY_NAME,
    MESSAGE_ID,
    SIGNATURE,
    SIGNED_AT,
    Message,
)
from sam_pipeline.schema.messages.refused import (
    BAD_SIGNATURE,
    REFUSED,
    SIGNATURE_EXPIRED,
    mark_refused,
)
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.times import format_time, parse_time

MAX_AHEAD = Limits().future
"""How far the clock of a signer may be ahead."""

FORM = "sam-sig-1"


class SignatureRefused(MessageRefused):
    """A known key did not sign this message, or too long ago; `reason` says which."""


def load_signer(path: Path) -> Signer:
    """The signer of a key file that only its owner can read: the library, or else the program.

    Raises:
        ConfigError: the file can't be used, or there is neither library nor program.
    """
    name, seed = key_name(path), read_seed(path)
    try:
        return LibrarySigner(name, seed)
    except ImportError:
        pass
    # Processes and temporary files take 10 ms to import.
    from sam_pipeline.schema.identity.openssl import OpensslSigner

    return OpensslSigner(path)


def covered_bytes(message: Message) -> bytes:
    """The bytes that are signed: a line for each value.

    Brokers may drop an empty header and rewrite the form of the destination, so neither matters.
    """
    headers = message.headers
    values = (
        FORM,
        headers.get(CLASS, ""),
        name_of_destination(headers.get(DESTINATION, "")),
        headers.get(MESSAGE_ID, ""),
        headers.get(SIGNED_AT, ""),
        *(f"{name}:{headers.get(name, '')}" for name in COVERED),
        sha256(message.body).hexdigest(),
    )
    text = "\n".join(values)
    if "\\" in text or text.count("\n") >= len(values):
        # Escaped, no value can pass for two lines.
        lines = [value.replace("\\", "\\\\").replace("\n", "\\n") for value in values]
        text = "\n".join(lines)
    return text.encode("utf-8", "backslashreplace")


def sign(message: Message, signer: Signer, now: datetime) -> Message:
    """The message, which has its destination, with a signature; raises ConfigError."""
    headers = {**message.headers, KEY_NAME: signer.name, SIGNED_AT: format_time(now)}
    signature = signer.sign(covered_bytes(Message(headers, message.body)))
    headers[SIGNATURE] = b2a_base64(signature, newline=False).decode()
    return Message(headers, message.body)


def verify(
    message: Message,
    keys: Mapping[str, Sequence[PublicKey]],
    now: datetime,
    max_age: timedelta,
) -> Optional[str]:
    """The name of the key that signed the message; None if it is unsigned, or the key unknown.

    Raises:
        SignatureRefused: the signature is bad, older than max_age, or from the future.
        ImportError: PyNaCl is not installed.
    """
    headers = message.headers
    name = headers.get(KEY_NAME)
    known = keys.get(name) if name else None
    if not name or not known:
        return None
    signed = f"the signature with key {name}"
    try:
        signature = b64decode(headers.get(SIGNATURE, "").encode("ascii"), validate=True)
        signed_at = parse_time(headers.get(SIGNED_AT, "").strip())
    except (Error, UnicodeEncodeError, ValueError) as error:
        raise SignatureRefused(BAD_SIGNATURE, f"{signed} is malformed: {error}") from None
    covered = covered_bytes(message)
    if not any(key.verifies(signature, covered) for key in known):
        text = f"{signed} was made for another message, or with another key"
        raise SignatureRefused(BAD_SIGNATURE, text)
    if not -max_age <= signed_at - now <= MAX_AHEAD:
        made_at = format_time(signed_at)
        text = f"{signed} was made at {made_at}, which is not within {max_age.days} days"
        raise SignatureRefused(SIGNATURE_EXPIRED, text)
    return name


class Arrival(NamedTuple):
    """A message with its identity, and the reason if its signature is refused."""

    message: Message
    refusal: Optional[SignatureRefused] = None


def arrived(message: Message, policy: Policy, now: datetime, max_age: timedelta) -> Arrival:
    """A signed message with the identity of its key; with a refused signature, marked as refused.

    If the policy only observes, a refused signature counts as none: the message keeps its identity.
    A message that was marked before differs from the signed one, and is not loaded.
    """
    if REFUSED in message.headers:
        return Arrival(message)
    try:
        name = verify(message, policy.keys, now, max_age)
    except SignatureRefused as refusal:
        if policy.enforces:
            message = mark_refused(message, refusal.reason, refusal.text)
        return Arrival(message, refusal)
    return Arrival(with_identity(message, key_identity(name)) if name else message)
