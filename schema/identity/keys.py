"""Keys of signatures: Ed25519, as texts in policies."""

from __future__ import annotations

import binascii
from typing import NamedTuple

ALGORITHM = "ed25519"
_SPKI_HEAD = bytes.fromhex("302a300506032b6570032100")
"""How the SubjectPublicKeyInfo (RFC 8410) of an Ed25519 key begins; its 32 bytes follow."""


class PublicKey(NamedTuple):
    """A public key of Ed25519: its 32 bytes."""

    raw: bytes

    def __str__(self) -> str:
        encoded = binascii.b2a_base64(_SPKI_HEAD + self.raw, newline=False).decode()
        return f"{ALGORITHM}:{encoded}"


def parse_public_key(text: str) -> PublicKey:
    """The key of a text `ed25519:BASE64`, as `str()` writes it.

    Raises:
        ValueError
    """
    algorithm, _, encoded = text.partition(":")
    try:
        der = binascii.a2b_base64(encoded.encode("ascii"))
    except ValueError:
        der = b""
    if algorithm != ALGORITHM or der[:-32] != _SPKI_HEAD:
        raise ValueError(f"{text[:80]!r} is not a public key: expected {ALGORITHM}:BASE64")
    return PublicKey(der[-32:])
