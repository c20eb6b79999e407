"""Signs messages with the configured key, which is read once per process."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

from sam_pipeline.schema.identity.keys import Signer, key_name
from sam_pipeline.schema.identity.signature import KEY_NAME, SIGNED_AT, load_signer, sign
from sam_pipeline.schema.messages.message import SIGNATURE, Message


@lru_cache(maxsize=10)
def signer_of(path: Path) -> Signer:
    """The signer of a key file.

    Raises:
        ConfigError: the file can't be used, or nothing can sign on this host.
    """
    return load_signer(path)


def signed(message: Message, path: Path) -> Message:
    """The message with a signature, unless it has one: it may come from another publisher.

    Raises:
        ConfigError: the key can't be used.
    """
    if message.headers.get(SIGNATURE):
        return message
    return sign(message, signer_of(path), datetime.now(timezone.utc))


def with_longest_signature(message: Message, path: Path) -> Message:
    """The message with headers as long as those of any signature, for limits on its size.

    No character of base64 takes more space than `+`, however a broker's interface encodes it.
    """
    signature = {KEY_NAME: key_name(path), SIGNED_AT: "2026-01-01T00:00:00Z", SIGNATURE: "+" * 88}
    return Message({**message.headers, **signature}, message.body)
