"""The options that commands of sam-publish share, and parsers that are made when needed."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import CommandParser, common_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    AddOptions = Callable[[argparse.ArgumentParser], None]

PROGRAM = "sam-publish"

RECORD_KEYS = {
    "metric": "metricName",
    "status": "metricStatus",
    "host": "hostName",
    "flavour": "serviceFlavour",
    "uri": "serviceURI",
    "site": "siteName",
    "vo": "voName",
    "fqan": "voFqan",
    "summary": "summaryData",
    "details": "detailsData",
    "performance_data": "performanceData",
    "timestamp": "timestamp",
    "gathered_at": "gatheredAt",
}
"""The key of a record that each option fills."""


class _LateParser:
    """The parser of a command, made when it is asked for anything: one of them is."""

    def __init__(self, options: AddOptions = lambda _: None, **keywords: Any) -> None:
        self._options = options
        self._keywords = keywords
        self._made: CommandParser | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = CommandParser(**self._keywords)
            self._options(self._made)
            self._made._add_container_actions(common_options())
        return getattr(self._made, name)


def subcommands(parser: argparse.ArgumentParser, name: str) -> Any:
    return parser.add_subparsers(
        dest=name,
        required=True,
        metavar=name.upper(),
        prog=parser.prog,  # else argparse formats a whole usage text to find it
        parser_class=_LateParser,
    )


def add_optional_keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--uri", help="of the service; its host counts then")
    parser.add_argument("--site")
    parser.add_argument("--vo")
    parser.add_argument("--fqan", help="VO role")
    parser.add_argument("--gathered-at", metavar="HOST", help="that measured (default: this host)")


def add_where(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where to publish")
    group.add_argument(
        "--broker",
        dest="brokers",
        action="append",
        type=_broker,
        metavar="URL",
        help="such as stomp+ssl://HOST or spool:///PATH; repeat to fall back to the next",
    )
    group.add_argument(
        "--timeout",
        dest="timeout_s",
        type=seconds,
        metavar="S",
        help="of the publishing in total, of a drain for each step (default: 10)",
    )


def add_how(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to publish as, and what if no broker takes it")
    group.add_argument(
        "--class", dest="message_class", metavar="NAME", help="default: metricOutput"
    )
    group.add_argument("--destination", help="default: /topic/grid.probe.CLASS")
    group.add_argument(
        "--header",
        dest="headers",
        action="append",
        type=_header,
        default=[],
        metavar="K=V",
        help="of the message, repeatable",
    )
    keep = group.add_mutually_exclusive_group()
    keep.add_argument("--no-spool", action="store_true", help="fail (exit code 69), keep nothing")
    keep.add_argument("--require-broker", action="store_true", help="spool, but exit with 75")
    group.add_argument(
        "--dry-run", action="store_true", help="print exactly what would be sent, and send nothing"
    )


def _broker(url: str) -> str:
    from sam_pipeline.schema.net.broker_url import parse_broker

    try:
        parse_broker(url)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return url


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _header(text: str) -> tuple[str, str]:
    from sam_pipeline.publisher.brokers.stomp.headers import OURS, belongs_to_broker, is_header_name

    name, equals, value = text.partition("=")
    if not equals or not is_header_name(name) or not value.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if belongs_to_broker(name):
        raise argparse.ArgumentTypeError(f"{name} means something to brokers: choose another name")
    if name.lower() in OURS:
        raise argparse.ArgumentTypeError(f"{name} is written by {PROGRAM} itself")
    return name, value
