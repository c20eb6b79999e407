"""`sam-publish run`: run a monitoring plugin and publish its result."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sam_pipeline.publisher.commands.arguments import (
    PROGRAM,
    add_broker_options,
    add_message_options,
    add_record_options,
    seconds_argument,
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

    from sam_pipeline.schema.records.text import Record

READER_PATIENCE_S = 5.0
"""How long a reader of our output may take to read a chunk (s)."""

logger = lazy_logger(__name__)

DESCRIPTION = """\
Run a monitoring plugin and publish its result. Its output and exit code are passed on unchanged;
all other messages are written to standard error.

Exit codes 0 to 3 are OK, WARNING, CRITICAL and UNKNOWN. A plugin that takes too long is killed
with its whole process group. A plugin that is killed, ends with any other exit code, or writes
output that is not UTF-8 or larger than 1 MB is published as UNKNOWN, with the reason.
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
        "--metric", metavar="NAME", help="name of the metric (default: org.nagios.PLUGIN)"
    )
    parser.add_argument("--host", help="host of the service (default: this host)")
    parser.add_argument("--flavour", default="Host", help="flavour of the service (default: Host)")
    add_record_options(parser)
    parser.add_argument(
        "--plugin-timeout",
        type=seconds_argument,
        default=60.0,
        metavar="S",
        help="time limit in seconds for the plugin (default: 60)",
    )
    parser.add_argument(
        "--publish-failure",
        choices=["keep", "unknown"],
        default="keep",
        help="exit code if neither a broker nor the spool took the result: that of the plugin "
        "(keep, the default), or 3 (unknown)",
    )
    parser.add_argument("plugin", nargs="+", metavar="PLUGIN", help="the plugin and its arguments")
    add_broker_options(parser)
    add_message_options(parser)


def handle(args: argparse.Namespace) -> int:
    """Return the exit code of the plugin, whether or not its result could be published."""
    # Through the blocks that kill the plugin, which dying by the signal would skip.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    run = run_plugin(args.plugin, args.plugin_timeout, pass_on)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # publishing has its own time limit
    name = Path(args.plugin[0]).name
    if run.trouble:
        logger.warning("%s %s", name, run.trouble)
    record: Record = {"metricName": f"org.nagios.{Path(name).stem}", "hostName": this_host()}
    record.update(record_of(run, name), **record_of_options(args))
    try:
        config = config_of(args)
        messages = messages_of(record, config, args)
        publish_and_report(messages, config, args, logger.info, sys.stderr)
    except SamError as error:
        logger.error("the result is lost: %s", error)
        return UNKNOWN if args.publish_failure == "unknown" else run.exit_code
    return run.exit_code


def pass_on(chunk: bytes) -> None:
    """Write a chunk of the plugin's output to ours; give up if nobody reads it."""
    output = sys.stdout.fileno()
    writable = select.poll()
    writable.register(output, select.POLLOUT)
    with suppress(OSError):
        while chunk and writable.poll(READER_PATIENCE_S * 1000):
            chunk = chunk[os.write(output, chunk[: select.PIPE_BUF]) :]  # never blocks
