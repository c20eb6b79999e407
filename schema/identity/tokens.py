"""Bearer tokens of senders: a file has a line `NAME SHA256` for each, never the token itself."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple, Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import TOKEN
from sam_pipeline.schema.identity.keys import problem_of_name
from sam_pipeline.schema.secret_file import read_private

TOKEN_BYTES = 32
MAX_CHARACTERS = 16 * 1024 * 1024
"""The limit on a file of tokens: room for a hundred thousand."""
FORM = "expected NAME SHA256, the digest as 64 hexadecimal digits"


class StoredToken(NamedTuple):
    """A line of the file; several tokens may have one name, while a sender changes its token."""

    name: str
    digest: bytes
    line: int


class Tokens:
    """The tokens of a file."""

    def __init__(self, tokens: Iterable[StoredToken] = ()) -> None:
        self._by_start: dict[bytes, list[StoredToken]] = {}
        for token in tokens:
            self._by_start.setdefault(token.digest[:4], []).append(token)
        self.names = frozenset(token.name for token in self)

    def __iter__(self) -> Iterator[StoredToken]:
        return (token for tokens in self._by_start.values() for token in tokens)

    def name_of(self, secret: str) -> Optional[str]:
        """The name of the token with this text; None if there is none.

        How long that takes depends on the start of a digest, which reveals nothing of a token.
        """
        digest = sha256(secret.encode("utf-8", "surrogateescape")).digest()
        for token in self._by_start.get(digest[:4], ()):
            if compare_digest(token.digest, digest):
                return token.name
        return None


def load_tokens(path: Path) -> Tokens:
    """The tokens of a file that only its owner can read; blank lines and `#` lines are ignored.

    Raises:
        ConfigError: all problems of the file at once.
    """
    tokens: list[StoredToken] = []
    problems: list[str] = []
    lines_by_digest: dict[bytes, int] = {}
    for number, line in enumerate(read_private(path, MAX_CHARACTERS).splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        name, digits = fields if len(fields) == 2 else (fields[0], "")
        if problem := problem_of_name(name, TOKEN):
            problems.append(f"{path}:{number}: {problem}")
        elif not re.fullmatch("[0-9a-fA-F]{64}", digits):
            problems.append(f"{path}:{number}: {FORM}")
        else:
            token = StoredToken(name, bytes.fromhex(digits), number)
            first = lines_by_digest.setdefault(token.digest, number)
            if first != number:
                problems.append(f"{path}:{number}: the same token as in line {first}")
            tokens.append(token)
    if problems:
        raise ConfigError(problems)
    return Tokens(tokens)


def make_token(path: Path, name: str) -> str:
    """A new token, whose line was appended to the file, which is created with mode 0600.

    Raises:
        ConfigError: the file has problems, or can't be written; it is as before.
    """
    secret = secrets.token_hex(TOKEN_BYTES)
    line = f"{name} {sha256(secret.encode()).hexdigest()}\n".encode()
    # Appended, not replaced: the file keeps its owner, which is the account of the service.
    with _locked(path, os.O_CREAT | os.O_APPEND) as (descriptor, _):
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(None, "no space left on device")
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
    return secret


def remove_tokens(path: Path, name: str, start: str = "") -> int:
    """Blank the lines of a name whose digests begin with `start`; returns their number.

    Raises:
        ConfigError: the file has problems, or can't be written.
    """
    with _locked(path) as (descriptor, tokens):
        lines = os.pread(descriptor, os.fstat(descriptor).st_size, 0).splitlines(keepends=True)
        numbers = [
            token.line
            for token in tokens
            if token.name == name and token.digest.hex().startswith(start)
        ]
        for number in numbers:  # in place, like `make_token`; blank lines are ignored
            blank = b" " * len(lines[number - 1].rstrip(b"\r\n"))
            os.pwrite(descriptor, blank, sum(map(len, lines[: number - 1])))
        os.fsync(descriptor)
    return len(numbers)


@contextmanager
def _locked(path: Path, flags: int = 0) -> Iterator[tuple[int, Tokens]]:
    """The descriptor of a file that no other process changes meanwhile, and its tokens."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor, load_tokens(path)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError([f"{path}: {(error.strerror or str(error)).lower()}"]) from None
