"""The program `openssl` as a signer, for hosts without the library."""

from __future__ import annotations

import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity import keys
from sam_pipeline.schema.identity.keys import (
    LibrarySigner,
    OpensslSigner,
    load_signer,
    make_key,
    read_seed,
)
from sam_pipeline.schema.identity.signature import sign
from sam_pipeline.schema.messages.message import new_message
from tests.services import missing

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        missing("openssl", "install the package openssl, version 3 or newer")
    path = tmp_path / "nagios1.pem"
    make_key(path)
    return path


def test_library_and_program_make_the_same_signatures(path: Path) -> None:
    library = LibrarySigner("nagios1", read_seed(path))
    openssl = OpensslSigner("nagios1", path, "openssl")

    assert openssl.public_key() == library.public_key()
    for body in ("", "\0\u00fc\n", "text" * 50_000):
        message = new_message("metricOutput", body, headers={"destination": "/topic/x"})
        assert sign(message, openssl, NOW) == sign(message, library, NOW)


def test_without_the_library_the_program_signs(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = load_signer(path).sign(b"text")
    monkeypatch.setitem(sys.modules, "nacl.signing", None)

    signer = load_signer(path)
    assert isinstance(signer, OpensslSigner)
    assert signer.sign(b"text") == expected
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="temporary"):
        signer.sign(b"text")


@pytest.mark.parametrize("script", ["echo too old >&2; exit 1", "exit 1", "sleep 5"])
def test_a_program_that_does_not_sign_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    program = tmp_path / "openssl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(keys, "OPENSSL_TIMEOUT_S", 0.5)

    with pytest.raises(ConfigError, match="openssl"):
        OpensslSigner("nagios1", tmp_path / "nagios1.pem", str(program)).sign(b"text")
