"""sam-publish: publish records, one result, or what a monitoring plugin found."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import NoReturn

from publisher.address import this_host
from publisher.announcement import Say, publish_and_tell
from publisher.arguments import PROGRAM, RECORD_KEYS, build_parser
from publisher.config import PublisherConfig, load_config
from publisher.records import RefusedRecord, raw_message, read_records, read_sources
from publisher.transport import kind_of
from schema import command
from schema.broker import SPOOL, Broker
from schema.errors import SamError
from schema.message import MAX_RECORDS, Message, pack
from schema.normalise import normalise
from schema.record import Record
from schema.times import format_time

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    return command.run(PROGRAM, build_parser(), argv, _handle)


def _handle(args: argparse.Namespace) -> int:
    handlers = {"send": _send, "result": _result, "run": _run, "spool": _spool}
    return handlers[args.command](args)


def _send(args: argparse.Namespace) -> int:
    config = _config_of(args)
    sources = read_sources(args.files)
    if args.raw:
        headers = dict(args.headers)
        messages = [raw_message(source, config.message_class, headers) for source in sources]
        return _publish(messages, config, args)
    now = datetime.now(timezone.utc)
    records: list[Record] = []
    refused: list[RefusedRecord] = []
    for source in sources:
        for item in read_records(source, config.message_class, now):
            if isinstance(item, RefusedRecord):
                print(f"{PROGRAM}: error: {item}", file=sys.stderr)
                refused.append(item)
            else:
                records.append(item)
    return _publish(_packed(records, config, args), config, args, refused)


def _result(args: argparse.Namespace) -> int:
    config = _config_of(args)
    record = _named_on_the_command_line(args)
    if record.get("detailsData") == "-":
        record["detailsData"] = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip()
    record.setdefault("timestamp", format_time(datetime.now(timezone.utc)))
    return _publish(_of_one_result(record, config, args), config, args)


def _run(args: argparse.Namespace) -> int:
    """The plugin's exit code, whatever becomes of its result."""
    from publisher.plugin import UNKNOWN, record_of, run_plugin  # the others need no subprocess

    signal.signal(signal.SIGTERM, _leave)
    run = run_plugin(args.plugin, args.plugin_timeout, _pass_on)
    name = Path(args.plugin[0]).name
    if run.trouble:
        logger.warning("%s %s", name, run.trouble)
    record = {"metricName": f"org.nagios.{Path(name).stem}", "hostName": this_host()}
    record.update(record_of(run, name), **_named_on_the_command_line(args))
    try:
        config = _config_of(args)
        _publish(_of_one_result(record, config, args), config, args, say=logger.info)
    except SamError as error:
        logger.error("the result is lost: %s", error)
        return UNKNOWN if args.publish_failure == "unknown" else run.exit_code
    return run.exit_code


def _spool(args: argparse.Namespace) -> int:
    from publisher import spool_command  # publishing seldom needs it

    return spool_command.handle(args, _config_of(args))


def _publish(
    messages: Sequence[Message],
    config: PublisherConfig,
    args: argparse.Namespace,
    refused: Sequence[RefusedRecord] = (),
    say: Say = print,
) -> int:
    if not args.dry_run:
        return publish_and_tell(messages, refused, config, args, say)
    stream = sys.stdout if say is print else sys.stderr
    stream.buffer.write(_preview(messages, config))
    return command.BAD_DATA if refused else command.OK


def _packed(
    records: Sequence[Record], config: PublisherConfig, args: argparse.Namespace
) -> list[Message]:
    size = 1 if getattr(args, "one_per_message", False) else MAX_RECORDS
    return list(pack(records, config.message_class, size, headers=dict(args.headers)))


def _of_one_result(
    record: Record, config: PublisherConfig, args: argparse.Namespace
) -> list[Message]:
    record.setdefault("gatheredAt", this_host())
    now = datetime.now(timezone.utc)
    return _packed(normalise(record, config.message_class, {}, now), config, args)


def _config_of(args: argparse.Namespace) -> PublisherConfig:
    """The configuration under the options of the command line."""
    names = ("brokers", "timeout_s", "message_class", "destination")
    flags = {name: getattr(args, name, None) for name in names}
    if flags["brokers"]:
        flags["brokers"] = tuple(flags["brokers"])
    config = load_config(args.config, flags)
    return replace(config, spool=None) if getattr(args, "no_spool", False) else config


def _preview(messages: Sequence[Message], config: PublisherConfig) -> bytes:
    """Exactly what the first broker, or else the spool, would get."""
    spool = Broker(SPOOL, path=str(config.spool))
    kind = kind_of(next(iter(config.broker_list), spool))
    return b"".join(kind.preview(config.addressed(message)) for message in messages)


def _named_on_the_command_line(args: argparse.Namespace) -> Record:
    given = {key: getattr(args, option, None) for option, key in RECORD_KEYS.items()}
    return {key: value for key, value in given.items() if value is not None}


def _pass_on(chunk: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more: the result counts all the same
        while chunk:
            chunk = chunk[os.write(sys.stdout.fileno(), chunk) :]


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End as the signal would, but through the blocks that end the plugin."""
    raise SystemExit(128 + number)
