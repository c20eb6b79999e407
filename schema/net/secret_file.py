"""Files that hold secrets or certificates: read by their owner alone, or refused.

Nothing here logs, and no error holds more of a secret than the name of its file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Callable, Optional

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
    path = file or credential_file(credential, environ)
    return read_secret(path) if path else None


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
        raise ConfigError([f"{path}: {_reason(error)}"]) from None
    if problem or not secret:
        raise ConfigError([f"{path}: {problem or 'holds no secret'}"])
    return secret


def problem_of_secret(path: Path) -> Optional[str]:
    """What is wrong with a file that holds a secret: it is missing, or others may read it."""
    return _problem(path, lambda file: True)


def problem_of_certificate(path: Path) -> Optional[str]:
    """What is wrong with a certificate's file, which may hold the key as well (X.509 proxies)."""
    return _problem(path, lambda file: b"PRIVATE KEY" in file.read())


def credential_file(name: str, environ: Mapping[str, str]) -> Optional[Path]:
    """The path of the systemd credential of that name, if there is one."""
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        return None
    path = Path(directory, name)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # reading it fails with the reason
        pass
    return path


def _problem(path: Path, is_secret: Callable[[BinaryIO], bool]) -> Optional[str]:
    try:
        with path.open("rb") as file:
            problem = _exposed(os.fstat(file.fileno())) if is_secret(file) else None
    except OSError as error:
        problem = _reason(error)
    return f"{path}: {problem}" if problem else None


def _exposed(status: os.stat_result) -> Optional[str]:
    """Who else may read a file; a group may read what root gave it, as systemd does."""
    mode = stat.S_IMODE(status.st_mode)
    if not mode & 0o077 or (status.st_uid == 0 and not mode & 0o037):
        return None
    return f"others may use it (mode {mode:04o}): chmod 600, or 640 where root is the owner"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "can't be read").lower()
    return "is not UTF-8"
