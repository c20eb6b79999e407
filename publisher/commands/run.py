"""`sam-publish run`: run a monitoring plugin and publish what it found."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from sam_pipeline.publisher.commands.arguments import (
    PROGRAM,
    add_how,
    add_optional_keys,
    add_where,
    seconds,
)
from sam_pipeline.publisher.commands.options import config_of
from sam_pipeline.publisher.commands.options import record_of as record_of_options
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.commands.result import messages_of
from sam_pipeline.publisher.probe.host_name import this_host
from sam_pipeline.publisher.probe.plugin import UNKNOWN, record_of, run_plugin
from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.log import lazy_logger

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from sam_pipeline.schema.records.text import Record

READER_PATIENCE_S = 5.0
"""How long a reader of our output may take for a piece of it."""

logger = lazy_logger(__name__)

DESCRIPTION = """\
Run a monitoring plugin and publish what it found. Its output and exit code are passed on
unchanged; everything else is said on standard error.

Exit codes 0 to 3 are OK, WARNING, CRITICAL and UNKNOWN. A plugin that takes too long is killed
with its whole process group. That, death by a signal, any other exit code, output that is not
UTF-8 or above 1 MB are published as UNKNOWN, with the reason.
"""
EXAMPLES = """\
examples:
  sam-publish run -- /usr/lib/nagios/plugins/check_load -w 9 -c 12
  sam-publish run --metric org.example.Ssh --host ce01.example.org --flavour CE \\
      -- /usr/lib/nagios/plugins/check_ssh ce01.example.org
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.usage = f"{PROGRAM} run [options] -- PLUGIN [ARGS...]"
    parser.add_argument(
        "--metric", metavar="NAME", help="default: org.nagios.FILE, after the plugin's file"
    )
    parser.add_argument("--host", help="that is measured (default: this host)")
    parser.add_argument("--flavour", default="Host", help="of the service there (default: Host)")
    add_optional_keys(parser)
    parser.add_argument(
        "--plugin-timeout", type=seconds, default=60.0, metavar="S", help="default: 60"
    )
    parser.add_argument(
        "--publish-failure",
        choices=["keep", "unknown"],
        default="keep",
        help="where neither a broker nor the spool took the result: keep the plugin's exit code "
        "(default), or end with 3, unknown",
    )
    parser.add_argument("plugin", nargs="+", metavar="PLUGIN", help="with its arguments, after --")
    add_where(parser)
    add_how(parser)


def handle(args: argparse.Namespace) -> int:
    """The plugin's exit code, whatever becomes of its result."""
    signal.signal(signal.SIGTERM, _leave)
    run = run_plugin(args.plugin, args.plugin_timeout, _pass_on)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # publishing the result soon ends
    name = Path(args.plugin[0]).name
    if run.trouble:
        logger.warning("%s %s", name, run.trouble)
    record: Record = {"metricName": f"org.nagios.{Path(name).stem}", "hostName": this_host()}
    record.update(record_of(run, name), **record_of_options(args))
    try:
        config = config_of(args)
        messages = messages_of(record, config, args)
        publish_and_report(messages, config, args, say=logger.info, output=sys.stderr.buffer)
    except SamError as error:
        logger.error("the result is lost: %s", error)
        return UNKNOWN if args.publish_failure == "unknown" else run.exit_code
    return run.exit_code


def _pass_on(chunk: bytes) -> None:
    """Write it out; where nobody reads it any more, the result counts all the same."""
    output = sys.stdout.fileno()
    writable = select.poll()
    writable.register(output, select.POLLOUT)
    with suppress(OSError):
        while chunk and writable.poll(READER_PATIENCE_S * 1000):
            chunk = chunk[os.write(output, chunk[: select.PIPE_BUF]) :]  # this much never blocks


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End as the signal would, but through the blocks that end the plugin."""
    raise SystemExit(128 + number)
