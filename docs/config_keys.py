"""The keys of sam.toml, as its classes describe them: for these pages, and for sam.toml(5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from sam_pipeline.schema.settings.reader import fields_of

NONE = "\N{EN DASH}"
REQUIRED = "required"


class ConfigKey(NamedTuple):
    """A key, its default as in sam.toml but without quotes, and its meaning in Markdown."""

    name: str
    default: str
    meaning: str


def keys_of(config_class: Any) -> Iterator[ConfigKey]:
    """The keys of a section or table, without the tables in it that have pages of their own."""
    if dataclasses.is_dataclass(config_class):
        described = {field.name: field.metadata for field in dataclasses.fields(config_class)}
    else:
        described = config_class.metadata()
    for field in fields_of(config_class):
        meaning = described[field.name].get("what")
        if field.key and meaning:
            yield ConfigKey(
                field.key, _shown(field.default) if field.optional else REQUIRED, meaning
            )


def _shown(default: object) -> str:
    """As in sam.toml, without quotes; a dash for what is empty."""
    if not default and default not in (0, False):
        return NONE
    return default if isinstance(default, str) else str(default).lower().removesuffix(".0")
