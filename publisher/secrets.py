"""Passwords and tokens: from the environment, from files of their owner alone, from credentials.

Nothing here logs, and no error holds more of a secret than the name of its file. Files are read
at each connect, so that a rotated one is used at once.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Optional

from schema.errors import ConfigError

PASSWORD = "SAM_PUBLISHER_PASSWORD"
TOKEN = "SAM_PUBLISHER_TOKEN"
PASSWORD_CREDENTIAL = "sam-publisher-password"
TOKEN_CREDENTIAL = "sam-publisher-token"


def password(file: Optional[Path], environ: Mapping[str, str]) -> Optional[str]:
    """The password of the brokers, if there is one: variable, file, systemd credential.

    Raises:
        ConfigError: the file can't be used.
    """
    if environ.get(PASSWORD):
        return environ[PASSWORD]
    place = file or _credential(PASSWORD_CREDENTIAL, environ)
    return read_secret(place) if place else None


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
    place = file or _credential(TOKEN_CREDENTIAL, environ)
    if not place and environ.get("BEARER_TOKEN"):
        return _of_one_word(environ["BEARER_TOKEN"].strip(), "BEARER_TOKEN")
    place = place or _discovered(environ)
    return _of_one_word(read_secret(place), str(place)) if place else None


def read_secret(path: Path) -> str:
    """The first line of a file that its owner alone reads.

    Raises:
        ConfigError: it can't be read, others may read it, or it is empty.
    """
    try:
        with path.open(encoding="utf-8") as file:
            problem = _exposed(os.fstat(file.fileno()))
            secret = file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {_words(error)}"]) from None
    if problem or not secret:
        raise ConfigError([f"{path}: {problem or 'holds no secret'}"])
    return secret


def problem_of_secret(path: Path) -> Optional[str]:
    """What is wrong with a file that holds a secret: it is missing, or others may read it."""
    try:
        with path.open("rb") as file:
            return _tell(path, _exposed(os.fstat(file.fileno())))
    except OSError as error:
        return f"{path}: {_words(error)}"


def problem_of_certificate(path: Path) -> Optional[str]:
    """What is wrong with a certificate's file, which may hold the key as well (X.509 proxies)."""
    try:
        with path.open("rb") as file:
            holds_key = b"PRIVATE KEY" in file.read()
            return _tell(path, _exposed(os.fstat(file.fileno())) if holds_key else None)
    except OSError as error:
        return f"{path}: {_words(error)}"


def _exposed(found: os.stat_result) -> Optional[str]:
    """Who else may read a file; a group may read what root gave it, as systemd does."""
    mode = stat.S_IMODE(found.st_mode)
    if not mode & 0o077 or (found.st_uid == 0 and not mode & 0o037):
        return None
    return f"others may use it (mode {mode:04o}): chmod 600, or 640 where root is the owner"


def _tell(path: Path, problem: Optional[str]) -> Optional[str]:
    return f"{path}: {problem}" if problem else None


def _credential(name: str, environ: Mapping[str, str]) -> Optional[Path]:
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        return None
    place = Path(directory, name)
    try:
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # reading it will tell
        pass
    return place


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


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "can't be read").lower()
    return "is not UTF-8"
