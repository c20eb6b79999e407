"""Tokens from the environment, from files that only their owner can read, and by discovery.

Nothing here is logged, and an error names the file, never its contents. Files are read at each
connect, so that a rotated secret is used at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Target, problem_of_secret_to
from sam_pipeline.schema.secret_file import Secret, read_secret


def token_for(target: Target) -> Optional[str]:
    """The bearer token for a broker that needs one: configured, or else by discovery.

    Raises:
        ConfigError: the file can't be used, or does not contain a token.
    """
    if (token := configured_token(target.token)) or not target.token.variable:
        return token
    return discovered_token(os.environ)


def door_token(target: Target) -> Optional[str]:
    """The token for an HTTP door, if one is configured; those of other services stay secret.

    Raises:
        ConfigError: the file can't be used, or the token would be sent in plain text.
    """
    token = configured_token(target.token)
    if token and (problem := problem_of_secret_to(target.broker, "the token", target.insecure)):
        raise ConfigError([problem])
    return token


def configured_token(secret: Secret) -> Optional[str]:
    """The token that was given to us for brokers.

    Raises:
        ConfigError: the file can't be used, or does not contain a token.
    """
    text = secret.read()
    is_variable = os.environ.get(secret.variable) if secret.variable else None
    source = secret.variable if is_variable else str(secret.file or secret.credential)
    return text and _valid_token(text, source)


def discovered_token(environ: Mapping[str, str]) -> Optional[str]:
    """The token of this account, if there is one.

    Source: WLCG Bearer Token Discovery 1.0: the variables BEARER_TOKEN and BEARER_TOKEN_FILE, the
    file bt_u<uid> in the runtime directory, then in /tmp. The first that exists must be usable: no
    other is tried.

    Raises:
        ConfigError: the file can't be used, or does not contain a token.
    """
    if environ.get("BEARER_TOKEN"):
        return _valid_token(environ["BEARER_TOKEN"].strip(), "BEARER_TOKEN")
    path = discovered_token_file(environ)
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
