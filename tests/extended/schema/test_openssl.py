"""The program `openssl` as a signer, for hosts without the library."""

from __future__ import annotations

import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.keys import LibrarySigner, make_key, read_seed
from sam_pipeline.schema.identity.openssl import OpensslSigner
from sam_pipeline.schema.identity.signature import load_signer, sign
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
    openssl = OpensslSigner(path)

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
