"""The keys of sam.toml, as its classes describe them: for these pages, and for sam.toml(5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sam_pipeline.publisher.settings import CopyTable, MessageKeys
from sam_pipeline.schema.settings import key as settings_key
from sam_pipeline.schema.settings.broker import ServerKeys
from sam_pipeline.schema.settings.key import Settings

NONE = "\N{EN DASH}"
REQUIRED = "required"
FIRST = ("kind", "url", "name", "brokers")
"""Keys that begin a table: they say what it is about."""


class ConfigKey(NamedTuple):
    """A key, its default as in sam.toml but without quotes, and its meaning in Markdown."""

    name: str
    default: str
    meaning: str


def keys_of(settings: type[Settings]) -> Iterator[ConfigKey]:
    """The keys of a section or table, without tables and keys that are described elsewhere."""
    elsewhere = {*ServerKeys.mro(), *(MessageKeys.mro() if settings is CopyTable else ())}
    for key in sorted(settings.KEYS.values(), key=lambda key: key.name not in FIRST):
        if key.meaning and (settings is ServerKeys or key.owner not in elsewhere):
            default = (
                REQUIRED if key.default is settings_key.REQUIRED else _shown(key.shown(key.default))
            )
            yield ConfigKey(key.name, default, key.meaning)


def _shown(default: object) -> str:
    """As in sam.toml, without quotes; a dash for what is empty."""
    if not default and default not in (0, False):
        return NONE
    return default if isinstance(default, str) else str(default).lower().removesuffix(".0")
