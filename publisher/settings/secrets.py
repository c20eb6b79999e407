"""Passwords and tokens: from the environment, from files of their owner alone, from credentials.

Nothing here logs, and no error holds more of a secret than the name of its file. Files are read
at each connect, so that a rotated one is used at once.
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
    """The bearer token, if there is one: variable, file, systemd credential, then as WLCG has it.

    Source: WLCG Bearer Token Discovery 1.0: the variables BEARER_TOKEN and BEARER_TOKEN_FILE,
    the file bt_u<uid> of the runtime directory, then that of /tmp. One that is found and can't be
    used is an error: no other is tried.

    Raises:
        ConfigError: the file can't be used, or what it holds is no token.
    """
    if environ.get(TOKEN):
        return _of_one_word(environ[TOKEN], TOKEN)
    place = file or credential_file(TOKEN_CREDENTIAL, environ)
    if not place and environ.get("BEARER_TOKEN"):
        return _of_one_word(environ["BEARER_TOKEN"].strip(), "BEARER_TOKEN")
    place = place or _discovered(environ)
    return _of_one_word(read_secret(place), str(place)) if place else None


def _discovered(environ: Mapping[str, str]) -> Optional[Path]:
    if environ.get("BEARER_TOKEN_FILE"):
        return Path(environ["BEARER_TOKEN_FILE"])
    name = f"bt_u{os.geteuid()}"
    for directory in filter(None, (environ.get("XDG_RUNTIME_DIR"), "/tmp")):
        place = Path(directory, name)
        # /tmp is everybody's: a link of somebody else would have us send any file of ours.
        with suppress(OSError):
            if place.lstat().st_uid in (0, os.geteuid()):
                return place
    return None


def _of_one_word(text: str, source: str) -> str:
    """The token; one with other characters would show up in the errors of HTTP libraries."""
    if text.isascii() and text.isprintable() and " " not in text:
        return text
    raise ConfigError([f"{source}: holds characters that no token has"])
