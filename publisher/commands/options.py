"""From the options of the command line to a configuration, headers and a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sam_pipeline.publisher.delivery.origin import command_origin
from sam_pipeline.publisher.settings import RECORD_KEYS, PublisherConfig, load_config
from sam_pipeline.schema.messages.destination import require_destination
from sam_pipeline.schema.messages.message import DESTINATION, default_destination

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from sam_pipeline.schema.records.text import Record


def config_of(args: argparse.Namespace) -> PublisherConfig:
    """The configuration, with the options that were given.

    Raises:
        MessageRefused: no consumer could receive messages at the destination of the options.
        ConfigError: all problems at once.
    """
    message_class, destination = (
        getattr(args, option, None) for option in ("message_class", "destination")
    )
    if destination is not None or message_class:
        for name in (destination, message_class and default_destination(message_class)):
            if name is not None:
                require_destination(name)
    no_spool = getattr(args, "no_spool", False)
    flags = {**flags_of(args), "destination": None, "option_destination": destination}
    return load_config(args.config, flags, no_spool=no_spool)


def flags_of(args: argparse.Namespace) -> dict[str, Any]:
    """The options that set fields of the configuration, by field; None if not given."""
    names = ("brokers", "timeout_s", "message_class", "destination", "drain")
    flags = {name: getattr(args, name, None) for name in names}
    if flags["brokers"]:
        flags["brokers"] = tuple(flags["brokers"])
    flags["require_broker"] = getattr(args, "require_broker", False) or None
    return flags


def headers_of(args: argparse.Namespace, config: PublisherConfig) -> dict[str, str]:
    """The destination, the origin and the headers of all messages of this call."""
    destination = config.destination_of(config.message_class)
    return {DESTINATION: destination, **command_origin(args.command), **dict(args.headers)}


def record_of(args: argparse.Namespace) -> Record:
    """The record, with only the keys whose options were given."""
    values = {key: getattr(args, option, None) for option, key in RECORD_KEYS.items()}
    return {key: value for key, value in values.items() if value is not None}
