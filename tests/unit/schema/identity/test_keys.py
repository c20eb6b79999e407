"""Keys: their files, their texts, and what is said about files that are no such keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.keys import load_signer, make_key, parse_public_key, read_seed


def stored(path: Path, pem: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(pem)
    return path


def test_a_new_key_is_pkcs8_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "nagios1.pem"
    make_key(path)

    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    assert path.stat().st_mode & 0o777 == 0o600
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signer = load_signer(path)
    assert signer.name == "nagios1"
    assert str(signer.public_key()).startswith("ed25519:MCowBQYDK2VwAyEA")
    assert parse_public_key(str(signer.public_key())) == (spki[-32:],)
    before = path.read_bytes()
    with pytest.raises(ConfigError):
        make_key(path)
    assert path.read_bytes() == before  # never overwritten
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="0644"):
        load_signer(path)


def pkcs8(key: Ed25519PrivateKey | RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_a_key_of_other_tools_with_text_around_it_is_read(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    text = b"of nagios1\r\n" + pkcs8(key).replace(b"\n", b"\r\n")
    assert read_seed(stored(tmp_path / "nagios1.pem", text)) == key.private_bytes_raw()


def test_a_file_without_a_key_for_signatures_is_refused(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    pem = pkcs8(key)
    files = {
        "rsa": pkcs8(generate_private_key(65537, 2048)),
        "public": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "short": pem.replace(pem.split(b"\n")[1][8:32], b""),
        "text": b"-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----\n",
    }
    for name, content in files.items():
        path = stored(tmp_path / f"{name}.pem", content)
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            load_signer(path)


def test_the_name_of_a_key_is_plain_and_its_text_a_public_key(tmp_path: Path) -> None:
    for name in (".pem", "a b.pem", "ключ.pem", "*.pem", "-x.pem"):
        with pytest.raises(ConfigError):
            make_key(tmp_path / name)
    assert not list(tmp_path.iterdir())
    for text in NO_KEYS:
        with pytest.raises(ValueError, match="not a public key"):
            parse_public_key(text)


VALID = "MCowBQYDK2VwAyEAmw+xFCvOwDyKakHlCJraDEznZIGmQvgiynG5fvi+NTA="
NO_KEYS = (
    *("", "ed25519:", "ed25519:\u00fc", VALID, f"rsa:{VALID}", f"ed25519:{VALID[:-2]}"),
    f"ed25519:{VALID.replace('K2Vw', 'K2Vu')}",
)
