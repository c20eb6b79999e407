"""Files that contain secrets or certificates: refused if other users can read them.

Nothing here is logged, and an error names the file, never its contents.
"""

from __future__ import annotations

import os
import stat
from binascii import b2a_base64
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from sam_pipeline.schema.errors import ConfigError

MAX_CHARACTERS = 64 * 1024
"""The most that is read of a file: /dev/zero has no end."""


class Secret(NamedTuple):
    """Where a secret is read at each use: the variable, else the file, else a systemd credential.

    A secret for one broker alone is only in a file.
    """

    file: Optional[Path] = None
    variable: str = ""
    credential: str = ""

    def read(self) -> Optional[str]:
        """The secret, if there is one; raises ConfigError if the file can't be used."""
        if self.variable and os.environ.get(self.variable):
            return os.environ[self.variable]
        path = self.file
        if path is None and self.credential:
            path = credential_file(self.credential, os.environ)
        return read_secret(path) if path else None


def read_secret(path: Path) -> str:
    """The first line of a file that only its owner can read.

    Raises:
        ConfigError: it can't be read, other users can read it, or the line is empty.
    """
    secret = read_private(path).partition("\n")[0].strip()
    if not secret:
        raise ConfigError([f"{path}: its first line is empty"])
    return secret


def read_private(path: Path, max_characters: int = MAX_CHARACTERS) -> str:
    """The text of a file that only its owner can read.

    Raises:
        ConfigError: it can't be read, or other users can read it.
    """
    try:
        with path.open(encoding="utf-8") as file:
            problem = exposure(os.fstat(file.fileno()))
            text = file.read(max_characters)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {_reason(error)}"]) from None
    if problem:
        raise ConfigError([f"{path}: {problem}"])
    return text


def problem_of_secret(path: Path, if_it_has: bytes = b"") -> Optional[str]:
    """The problem of a file that holds a secret: it is missing, or other users can read it."""
    try:
        with path.open("rb") as file:
            is_secret = not if_it_has or if_it_has in file.read()
            problem = exposure(os.fstat(file.fileno())) if is_secret else None
    except OSError as error:
        problem = _reason(error)
    return f"{path}: {problem}" if problem else None


def problem_of_certificate(path: Path) -> Optional[str]:
    """The problem of a certificate file, which may hold the key as well (X.509 proxies)."""
    return problem_of_secret(path, b"PRIVATE KEY")


def exposure(status: os.stat_result) -> Optional[str]:
    """How other users can read a file, if they can; the group may read one of root (systemd)."""
    mode = stat.S_IMODE(status.st_mode)
    if not mode & 0o077 or (status.st_uid == 0 and not mode & 0o037):
        return None
    return f"is accessible to other users (mode {mode:04o}): chmod 600, or 640 if root owns it"


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
    except OSError:  # `read_secret` will report it
        pass
    return path


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or "can't be read").lower()
    return "is not UTF-8"


def basic_login(user: str, password: Optional[str]) -> str:
    """The value of an HTTP header for Basic authentication."""
    login = f"{user}:{password or ''}"
    return f"Basic {b2a_base64(login.encode(), newline=False).decode()}"


def problem_of_path(path: Path) -> Optional[str]:
    """The problem of a path to a file or directory that must exist."""
    return None if path.exists() else f"{path}: no such file or directory"
