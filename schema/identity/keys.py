"""Ed25519 keys: private ones in files, public ones as texts, and the two ways to sign.

The library PyNaCl (extra `sign`) signs and verifies. Where it is missing, the program
`openssl` signs; nothing else verifies.
"""

from __future__ import annotations

import os
import re
from binascii import Error, a2b_base64, b2a_base64
from pathlib import Path
from typing import NamedTuple, Optional, Protocol

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.secret_file import read_private

SUFFIX = ".pem"
"""The name of a key is the name of its file without this."""
SCHEME = "ed25519:"

# The DER of a key of RFC 8410 up to its 32 bytes; no other algorithm begins like this.
PUBLIC_HEAD = bytes.fromhex("302a300506032b6570032100")
_PRIVATE_HEAD = bytes.fromhex("302e020100300506032b657004220420")
_KEY_BYTES = 32

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_BEGIN, _END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
_PEM = rf"{_BEGIN}\s+([A-Za-z0-9+/=\s]+?)\s+{_END}"


class PublicKey(NamedTuple):
    """The 32 bytes of a public key; `str` is its form in a policy, `ed25519:BASE64-OF-SPKI`."""

    raw: bytes

    def __str__(self) -> str:
        return SCHEME + b2a_base64(PUBLIC_HEAD + self.raw, newline=False).decode()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether its private key made this signature; raises ImportError without PyNaCl."""
        from nacl import bindings, exceptions

        if len(signature) != bindings.crypto_sign_BYTES:
            return False
        try:
            bindings.crypto_sign_open(signature + data, self.raw)
        except exceptions.BadSignatureError:
            return False
        return True


def parse_public_key(text: str) -> PublicKey:
    """The key of a text such as `ed25519:MCowBQYDK2VwAyEA…`; raises ValueError for others."""
    try:
        der = a2b_base64(text[len(SCHEME) :].encode("ascii"))
    except (Error, UnicodeEncodeError):
        der = b""
    key = PublicKey(der[len(PUBLIC_HEAD) :])
    if len(key.raw) != _KEY_BYTES or str(key) != text:
        expected = f"expected {SCHEME} and the base64 of an Ed25519 key, as `sam-publish key show`"
        raise ValueError(f"{text[:80]!r} is not a public key ({expected} prints it)")
    return key


class Signer(Protocol):
    """Signs with one private key."""

    name: str
    """The name of the key, by which a policy knows it."""
    tool: str
    """What makes the signatures."""

    def public_key(self) -> PublicKey: ...

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`; raises ConfigError if the key can no longer be used."""
        ...


class LibrarySigner:
    """Signs with PyNaCl."""

    tool = "PyNaCl"

    def __init__(self, name: str, seed: bytes) -> None:
        from nacl.signing import SigningKey

        self.name = name
        self._key = SigningKey(seed)

    def public_key(self) -> PublicKey:
        return PublicKey(bytes(self._key.verify_key))

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data).signature


def key_name(path: Path) -> str:
    """The name of the key in a file; raises ConfigError if it can't be the name of a key."""
    name = path.name[: -len(SUFFIX)] if path.name.endswith(SUFFIX) else path.name
    if problem := problem_of_name(name):
        raise ConfigError([f"{path}: {problem}"])
    return name


def problem_of_name(name: str, thing: str = "key") -> Optional[str]:
    """Why a key, or another thing, can't have this name; None if it can."""
    if re.fullmatch(_NAME, name, re.ASCII):
        return None
    expected = "letters, digits and ._- only, and a letter or digit first"
    return f"{name[:100]!r} can't be the name of a {thing} (expected {expected})"


def read_seed(path: Path) -> bytes:
    """The 32 secret bytes in a key file: unencrypted PKCS#8 in PEM.

    Raises:
        ConfigError: it can't be read, other users can read it, or it has no such key.
    """
    match = re.search(_PEM, read_private(path))
    try:
        der = a2b_base64(match[1].encode()) if match else b""
    except Error:
        der = b""
    if not der.startswith(_PRIVATE_HEAD) or len(der) != len(_PRIVATE_HEAD) + _KEY_BYTES:
        expected = "expected PEM with an unencrypted Ed25519 key, as made by `sam-publish key add`"
        raise ConfigError([f"{path}: contains no key for signatures ({expected})"])
    return der[len(_PRIVATE_HEAD) :]


def make_key(path: Path) -> None:
    """Write a new key to a file of mode 0600.

    Raises:
        ConfigError: the name is not suitable for a key, the file exists, or it can't be written.
    """
    key_name(path)
    text = b2a_base64(_PRIVATE_HEAD + os.urandom(_KEY_BYTES)).decode()
    try:
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(f"{_BEGIN}\n{text}{_END}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ConfigError([f"{path}: {(error.strerror or str(error)).lower()}"]) from None
