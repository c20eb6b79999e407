"""Keys of a section of sam.toml, as fields of a config dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any


def config_key(meaning: str, check: Any = None, default: Any = MISSING, **options: Any) -> Any:
    """A key of the file; the documentation shows its `meaning`."""
    name = {"key": options.pop("key")} if "key" in options else {}
    return field(default=default, metadata={"what": meaning, "check": check, **name}, **options)


def expected(text: str, accepts: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    """A check of a value, which reports the `text` unless the value is accepted."""
    return lambda value: None if accepts(value) else f"expected {text}, not {value!r}"
