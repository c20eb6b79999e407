"""`sam-publish run`: run a monitoring plugin and publish what it found."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from publisher.announcement import publish_and_tell
from publisher.host_name import this_host
from publisher.options import config_of
from publisher.options import record_of as record_of_options
from publisher.plugin import UNKNOWN, record_of, run_plugin
from publisher.result_command import messages_of
from schema.errors import SamError
from schema.log import lazy_logger

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from schema.record import Record

logger = lazy_logger(__name__)


def handle(args: argparse.Namespace) -> int:
    """The plugin's exit code, whatever becomes of its result."""
    signal.signal(signal.SIGTERM, _leave)
    run = run_plugin(args.plugin, args.plugin_timeout, _pass_on)
    name = Path(args.plugin[0]).name
    if run.trouble:
        logger.warning("%s %s", name, run.trouble)
    record: Record = {"metricName": f"org.nagios.{Path(name).stem}", "hostName": this_host()}
    record.update(record_of(run, name), **record_of_options(args))
    try:
        config = config_of(args)
        messages = messages_of(record, config, args)
        publish_and_tell(messages, config, args, say=logger.info, output=sys.stderr.buffer)
    except SamError as error:
        logger.error("the result is lost: %s", error)
        return UNKNOWN if args.publish_failure == "unknown" else run.exit_code
    return run.exit_code


def _pass_on(chunk: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more: the result counts all the same
        while chunk:
            chunk = chunk[os.write(sys.stdout.fileno(), chunk) :]


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End as the signal would, but through the blocks that end the plugin."""
    raise SystemExit(128 + number)
