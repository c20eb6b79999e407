"""Files that hold secrets or certificates: read by their owner alone, or refused.

Nothing here logs, and no error holds more of a secret than the name of its file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from sam_pipeline.schema.errors import ConfigError


def find_secret(
    file: Optional[Path], variable: str, credential: str, environ: Mapping[str, str]
) -> Optional[str]:
    """A secret, if there is one: of the variable, the file, or a systemd credential.

    Raises:
        ConfigError: the file can't be used.
    """
    if environ.get(variable):
        return environ[variable]
    place = file or credential_file(credential, environ)
    return read_secret(place) if place else None


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


def credential_file(name: str, environ: Mapping[str, str]) -> Optional[Path]:
    """That of systemd, if there is one of the name."""
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


def _exposed(found: os.stat_result) -> Optional[str]:
    """Who else may read a file; a group may read what root gave it, as systemd does."""
    mode = stat.S_IMODE(found.st_mode)
    if not mode & 0o077 or (found.st_uid == 0 and not mode & 0o037):
        return None
    return f"others may use it (mode {mode:04o}): chmod 600, or 640 where root is the owner"


def _tell(path: Path, problem: Optional[str]) -> Optional[str]:
    return f"{path}: {problem}" if problem else None


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "can't be read").lower()
    return "is not UTF-8"
