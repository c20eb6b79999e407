"""Keys of a section of sam.toml, as fields of a config dataclass."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any, Callable

from sam_pipeline.schema.secret_file import (
    problem_of_certificate,
    problem_of_path,
    problem_of_secret,
)


def config_key(meaning: str, check: Any = None, default: Any = MISSING, **options: Any) -> Any:
    """A key of the file; the documentation shows its `meaning`."""
    name = {"key": options.pop("key")} if "key" in options else {}
    return field(default=default, metadata={"what": meaning, "check": check, **name}, **options)


def expected(text: str, accepts: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    """A check of a value, which reports the `text` unless the value is accepted."""
    return lambda value: None if accepts(value) else f"expected {text}, not {value!r}"


POSITIVE = expected("more than 0", lambda number: number > 0)


def path_key(meaning: str) -> Any:
    """An optional file or directory."""
    return config_key(meaning, problem_of_path, None)


def secret_key(meaning: str) -> Any:
    """An optional file that only its owner can read."""
    return config_key(meaning, problem_of_secret, None)


def certificate_key(meaning: str) -> Any:
    """An optional certificate, whose file may also contain the private key."""
    return config_key(meaning, problem_of_certificate, None)


def private_key(certificate: str = "certificate_file") -> Any:
    """The private key of the certificate under another key of the section."""
    return secret_key(f"its private key, mode 0600; may be part of `{certificate}`")


def revocation_key() -> Any:
    """The revocation lists of the certificate authorities under the key before."""
    return path_key("their revocation lists: a PEM file, or a directory with `*.r0`")
