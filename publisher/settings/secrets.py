"""Passwords and tokens from the environment, from files that only their owner can read, and from
systemd credentials.

Nothing here is logged, and an error names the file, never its contents. Files are read at each
connect, so that a rotated secret is used at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.secret_file import (
    credential_file,
    find_secret,
    problem_of_certificate,
    problem_of_secret,
    read_secret,
)

CREDENTIALS: dict[str, dict[str, Any]] = {
    "user": {"what": "login for brokers whose URL has none"},
    "password_file": {
        "check": problem_of_secret,
        "what": "its first line is the password; mode 0600",
    },
    "token_file": {"check": problem_of_secret, "what": "bearer token, mode 0600"},
    "certificate_file": {"check": problem_of_certificate, "what": "our certificate"},
    "key_file": {
        "check": problem_of_secret,
        "what": "its key, mode 0600; may be in `certificate_file`",
    },
}
"""The keys by which a broker knows us. A table with one of them uses none of the section's."""

PASSWORD = "SAM_PUBLISHER_PASSWORD"
TOKEN = "SAM_PUBLISHER_TOKEN"
PROXY_PASSWORD = "SAM_PUBLISHER_PROXY_PASSWORD"
PASSWORD_CREDENTIAL = "sam-publisher-password"
TOKEN_CREDENTIAL = "sam-publisher-token"
PROXY_PASSWORD_CREDENTIAL = "sam-publisher-proxy-password"


def password(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The password for brokers, if there is one: from variable, file or systemd credential.

    Raises:
        ConfigError: the file can't be used.
    """
    return find_secret(file, PASSWORD, PASSWORD_CREDENTIAL, environ)


def proxy_password(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The password for the proxy of the key `proxy`, from the same sources.

    Raises:
        ConfigError: the file can't be used.
    """
    return find_secret(file, PROXY_PASSWORD, PROXY_PASSWORD_CREDENTIAL, environ)


def token(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The bearer token, if there is one: configured (see `configured_token`), or by discovery.

    Source: WLCG Bearer Token Discovery 1.0: the variables BEARER_TOKEN and BEARER_TOKEN_FILE, the
    file bt_u<uid> in the runtime directory, then in /tmp. The first that exists must be usable: no
    other is tried.

    Raises:
        ConfigError: the file can't be used, or does not contain a token.
    """
    if configured := configured_token(file, environ):
        return configured
    if environ.get("BEARER_TOKEN"):
        return _valid_token(environ["BEARER_TOKEN"].strip(), "BEARER_TOKEN")
    path = discovered_token_file(environ)
    return _valid_token(read_secret(path), str(path)) if path else None


def configured_token(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The token that was given to us for brokers: from variable, file or systemd credential.

    Raises:
        ConfigError: the file can't be used, or does not contain a token.
    """
    if environ.get(TOKEN):
        return _valid_token(environ[TOKEN], TOKEN)
    path = file or credential_file(TOKEN_CREDENTIAL, environ)
    return _valid_token(read_secret(path), str(path)) if path else None


def discovered_token_file(environ: Mapping[str, str]) -> Optional[Path]:
    """The token file of WLCG Bearer Token Discovery, if there is one."""
    if environ.get("BEARER_TOKEN_FILE"):
        return Path(environ["BEARER_TOKEN_FILE"])
    name = f"bt_u{os.geteuid()}"
    for directory in filter(None, (environ.get("XDG_RUNTIME_DIR"), "/tmp")):
        path = Path(directory, name)
        # /tmp is world-writable: another user's link could make us send any of our files.
        with suppress(OSError):
            if path.lstat().st_uid in (0, os.geteuid()):
                return path
    return None


def _valid_token(text: str, source: str) -> str:
    # HTTP libraries quote other characters in their errors.
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    raise ConfigError([f"{source}: contains characters that are not allowed in a token"])
