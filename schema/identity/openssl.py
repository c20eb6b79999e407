"""Signatures by the program `openssl`, where PyNaCl is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which
from tempfile import NamedTemporaryFile

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.keys import PUBLIC_HEAD, PublicKey, key_name

OPENSSL_TIMEOUT_S = 10.0


class OpensslSigner:
    """Signs with the program `openssl`, version 3 or newer: a process for each signature."""

    tool = "openssl"

    def __init__(self, path: Path) -> None:
        """Raises ConfigError: the program is missing, or the key can't have its name."""
        self.name = key_name(path)
        self._path = path
        self._program = which("openssl") or ""
        if not self._program:
            missing = "neither PyNaCl nor the program openssl is installed"
            raise ConfigError([f"{path}: can't sign: {missing}"])

    def public_key(self) -> PublicKey:
        der = self._run("pkey", "-in", str(self._path), "-pubout", "-outform", "DER")
        return PublicKey(der[len(PUBLIC_HEAD) :])

    def sign(self, data: bytes) -> bytes:
        # For Ed25519 it needs the size of its input, so that can't be a pipe.
        try:
            with NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                key = ("-inkey", str(self._path))
                return self._run("pkeyutl", "-sign", "-rawin", *key, "-in", file.name)
        except OSError as error:
            raise ConfigError([f"{self._path}: can't sign: no temporary file: {error}"]) from None

    def _run(self, *arguments: str) -> bytes:
        try:
            run = subprocess.run(
                [self._program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=OPENSSL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError([f"{self._path}: {self._program}: {error}"]) from None
        if run.returncode:
            lines = run.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"exit code {run.returncode}"
            advice = "sam-publish needs OpenSSL 3, or pip install PyNaCl"
            raise ConfigError([f"{self._path}: {self._program}: {reason} ({advice})"])
        return run.stdout
