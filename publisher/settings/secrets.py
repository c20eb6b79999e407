"""Passwords and tokens from the environment, from files that only their owner reads, and from
systemd credentials.

Nothing here logs, and no error holds more of a secret than the name of its file. Files are read
at each connect, so that a rotated secret is used at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.secret_file import credential_file, find_secret, read_secret

PASSWORD = "SAM_PUBLISHER_PASSWORD"
TOKEN = "SAM_PUBLISHER_TOKEN"
PASSWORD_CREDENTIAL = "sam-publisher-password"
TOKEN_CREDENTIAL = "sam-publisher-token"


def password(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The password of the brokers, if there is one: variable, file, systemd credential.

    Raises:
        ConfigError: the file can't be used.
    """
    return find_secret(file, PASSWORD, PASSWORD_CREDENTIAL, environ)


def token(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The bearer token, if there is one: variable, file, systemd credential, WLCG discovery.

    Source: WLCG Bearer Token Discovery 1.0: the variables BEARER_TOKEN and BEARER_TOKEN_FILE,
    the file bt_u<uid> of the runtime directory, then that of /tmp. The first that exists must be
    usable: no other is tried.

    Raises:
        ConfigError: the file can't be used, or does not hold a token.
    """
    path = file or credential_file(TOKEN_CREDENTIAL, environ)
    if environ.get(TOKEN):
        text, source = environ[TOKEN], TOKEN
    elif not path and environ.get("BEARER_TOKEN"):
        text, source = environ["BEARER_TOKEN"].strip(), "BEARER_TOKEN"
    else:
        path = path or _discovered(environ)
        if not path:
            return None
        text, source = read_secret(path), str(path)
    # Other characters would show up in the errors of HTTP libraries.
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    raise ConfigError([f"{source}: holds characters that no token has"])


def basic_login(user: str, password: Optional[str]) -> str:
    """User and password as the value of an HTTP header."""
    from base64 import b64encode

    login = f"{user}:{password or ''}"
    return f"Basic {b64encode(login.encode()).decode()}"


def _discovered(environ: Mapping[str, str]) -> Optional[Path]:
    if environ.get("BEARER_TOKEN_FILE"):
        return Path(environ["BEARER_TOKEN_FILE"])
    name = f"bt_u{os.geteuid()}"
    for directory in filter(None, (environ.get("XDG_RUNTIME_DIR"), "/tmp")):
        path = Path(directory, name)
        # Anybody may write to /tmp: another user's link could make us send any file of ours.
        with suppress(OSError):
            if path.lstat().st_uid in (0, os.geteuid()):
                return path
    return None
