"""The `[publisher]` section of sam.toml, read and checked once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Optional

from schema.broker import Broker, parse_broker
from schema.config import load, read_secret, state_dir
from schema.message import Message, default_destination

DESTINATION = "destination"
"""Header of a message: where it travels. It survives the spool."""


def _bad_broker(urls: Sequence[str]) -> str | None:
    for url in urls:
        try:
            parse_broker(url)
        except ValueError as error:
            return str(error)
    return None


def _not_above_zero(seconds: float) -> str | None:
    return None if seconds > 0 else f"want more than 0 seconds, not {seconds:g}"


def _empty(text: str) -> str | None:
    return None if text.strip() else "is empty"


@dataclass(frozen=True)
class PublisherConfig:
    """Where messages go and how long that may take; without a `spool` none is kept."""

    brokers: tuple[str, ...] = field(default=(), metadata={"check": _bad_broker})
    spool: Optional[Path] = None
    timeout_s: float = field(default=10.0, metadata={"check": _not_above_zero})
    message_class: str = field(default="metricOutput", metadata={"key": "class", "check": _empty})
    destination: Optional[str] = field(default=None, metadata={"check": _empty})
    user: Optional[str] = None
    password_file: Optional[Path] = None

    @property
    def broker_list(self) -> list[Broker]:
        return [parse_broker(url) for url in self.brokers]

    def login(self, broker: Broker) -> tuple[str | None, str | None]:
        """User and password for a broker; the file is read anew at each connect."""
        password = read_secret(self.password_file) if self.password_file else None
        return broker.user or self.user, password

    def addressed(self, message: Message) -> Message:
        """The message with the class and the destination that it lacks."""
        message = message.with_default_class(self.message_class)
        if message.headers.get(DESTINATION):
            return message
        destination = self.destination or default_destination(message.message_class or "")
        return replace(message, headers={**message.headers, DESTINATION: destination})


def load_config(path: str | None, flags: Mapping[str, Any]) -> PublisherConfig:
    """The configuration; its spool is in the state directory unless it names another.

    Raises:
        ConfigError: all problems at once.
    """
    config = load(
        PublisherConfig,
        "publisher",
        flags=flags,
        path=path,
        environ=os.environ,
        parse_toml=_parse_toml,
    )
    if config.spool is None:
        config = replace(config, spool=state_dir(os.environ) / "spool")
    return config


def _parse_toml(text: str) -> dict[str, Any]:
    try:
        parser = import_module("tomllib")
    except ModuleNotFoundError:  # Python 3.9 and 3.10
        parser = import_module("tomli")
    parsed: dict[str, Any] = parser.loads(text)
    return parsed
