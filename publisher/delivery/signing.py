"""Signs messages with the configured key, which is read once per process."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

from sam_pipeline.schema.identity.keys import Signer
from sam_pipeline.schema.identity.signature import load_signer, sign
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
