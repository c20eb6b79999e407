"""Verifies what a publisher signed, as a consumer would that knows its key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sam_pipeline.schema.identity.keys import load_signer
from sam_pipeline.schema.identity.signature import verify
from sam_pipeline.schema.messages.message import Message


def signer_of(key: Path, message: Message) -> str | None:
    """The name of the key in this file if it signed the message; None if it is unsigned.

    Raises:
        SignatureRefused: the signature is bad.
    """
    signer = load_signer(key)
    keys = {signer.name: [signer.public_key()]}
    return verify(message, keys, datetime.now(UTC), timedelta(days=1))
