"""The options that several commands of sam-publish share, and the configuration they give."""

from __future__ import annotations

import argparse
from typing import Any

from sam_pipeline.publisher.delivery.outgoing import command_origin
from sam_pipeline.publisher.settings import RECORD_KEYS, PublisherConfig, load_config
from sam_pipeline.schema.messages.destination import require_destination
from sam_pipeline.schema.messages.headers import WRITTEN, belongs_to_broker, is_header_name, is_ours
from sam_pipeline.schema.messages.message import DESTINATION, default_destination
from sam_pipeline.schema.net.broker import parse_broker
from sam_pipeline.schema.program.command import duration_argument, text_argument
from sam_pipeline.schema.records.text import Record

PROGRAM = "sam-publish"


def add_record_options(parser: argparse.ArgumentParser, with_uri: bool = True) -> None:
    """The optional keys of a record."""
    if with_uri:
        parser.add_argument("--uri", help="URI of the service; its host replaces --host")
    parser.add_argument("--site", metavar="NAME", help="site of the service")
    parser.add_argument("--vo", metavar="NAME", help="VO on whose behalf the probe ran")
    parser.add_argument("--fqan", help="VO role with which the probe ran")
    parser.add_argument(
        "--gathered-at", metavar="HOST", help="host that ran the probe (default: this host)"
    )


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """The brokers, and the time limit."""
    group = parser.add_argument_group("broker options")
    add_broker(
        group,
        "publish to this broker, such as stomp+ssl://HOST, sam+https://HOST or spool:///PATH; "
        "each one is tried after those before it",
    )
    group.add_argument(
        "--timeout",
        dest="timeout_s",
        type=seconds_argument,
        metavar="S",
        help="time limit in seconds for publishing, or for each batch of a drain (default: 10)",
    )


def add_broker(group: argparse._ArgumentGroup, text: str) -> None:
    group.add_argument(
        "--broker",
        dest="brokers",
        action="append",
        type=broker_argument,
        metavar="URL",
        help=text,
    )


def add_message_options(parser: argparse.ArgumentParser) -> None:
    """The form of the messages, and the fallback if no broker takes them."""
    group = parser.add_argument_group("message options")
    group.add_argument(
        "--class",
        dest="message_class",
        type=text_argument,
        metavar="NAME",
        help="class of the messages (default: metricOutput)",
    )
    group.add_argument(
        "--destination", metavar="NAME", help="topic or queue (default: /topic/grid.probe.CLASS)"
    )
    group.add_argument(
        "--header",
        dest="headers",
        action="append",
        type=header_argument,
        default=[],
        metavar="K=V",
        help="add a header to the messages",
    )
    fallback = group.add_mutually_exclusive_group()
    fallback.add_argument(
        "--no-spool", action="store_true", help="if no broker takes a message, exit with 69"
    )
    fallback.add_argument(
        "--require-broker",
        action="store_true",
        help="if no broker takes a message, spool it and exit with 75",
    )
    group.add_argument(
        "--no-drain",
        dest="drain",
        action="store_const",
        const=False,
        help="do not send spooled messages of earlier calls",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="print the messages as they would be sent, and exit"
    )


def broker_argument(text: str) -> str:
    """The argparse `type` of a broker URL."""
    try:
        parse_broker(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def seconds_argument(text: str) -> float:
    """The argparse `type` of a duration above 0."""
    if seconds := duration_argument(text):
        return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not above 0")


def header_argument(text: str) -> tuple[str, str]:
    """The argparse `type` of a message header, `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not is_header_name(name) or not value.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    if belongs_to_broker(name):
        raise argparse.ArgumentTypeError(f"{name} is reserved by brokers: choose another name")
    if is_ours(name):
        raise argparse.ArgumentTypeError(f"{name} may be set only by consumers and relays")
    if name.lower() in WRITTEN:
        advice = ": use --destination" if name.lower() == DESTINATION else ""
        raise argparse.ArgumentTypeError(f"{name} is set by {PROGRAM} itself{advice}")
    return name, value


def config_of(args: argparse.Namespace) -> PublisherConfig:
    """The configuration, with the options that were given.

    Raises:
        MessageRefused: no consumer could receive messages at the destination of the options.
        ConfigError: all problems at once.
    """
    message_class = getattr(args, "message_class", None)
    destination = getattr(args, "destination", None)
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
