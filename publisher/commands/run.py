"""`sam-publish run`: run a monitoring plugin and publish its result."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Callable, TextIO

from sam_pipeline.publisher.commands.arguments import (
    PROGRAM,
    add_broker_options,
    add_message_options,
    add_record_options,
    config_of,
    headers_of,
    seconds_argument,
)
from sam_pipeline.publisher.commands.arguments import record_of as record_of_options
from sam_pipeline.publisher.commands.outcome import publish_and_report
from sam_pipeline.publisher.commands.result import messages_of
from sam_pipeline.publisher.delivery.publication import NoBrokerTookIt
from sam_pipeline.publisher.probe.plugin import UNKNOWN, PluginRun, record_of, run_plugin
from sam_pipeline.publisher.probe.values import this_host
from sam_pipeline.publisher.spool.bounded import count_losses
from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.program.command import CommandParser
from sam_pipeline.schema.records.text import Record

READER_PATIENCE_S = 5.0
"""How long a reader of our output may take to read a chunk (s)."""

logger = lazy_logger(__name__)

DESCRIPTION = """\
Run a monitoring plugin and publish its result. Its output and exit code are passed on unchanged;
all other messages are written to standard error.

Exit codes 0 to 3 are OK, WARNING, CRITICAL and UNKNOWN. A plugin that takes too long is killed with
its process group, and so is one that runs when this command is terminated. A plugin that is killed,
or ends with any other exit code, is published as UNKNOWN, with the reason. In the record, bytes
that are not UTF-8 are replaced, and output beyond 1 MB is cut. If a plugin wrote nothing to
standard output, the record has its standard error.
"""
EXAMPLES = """\
examples:
  sam-publish run -- /usr/lib/nagios/plugins/check_load -w 9 -c 12
  sam-publish run --metric org.example.Ssh --host ce01.example.org --flavour CE \\
      -- /usr/lib/nagios/plugins/check_ssh ce01.example.org
"""


def add_options(parser: CommandParser) -> None:
    parser.set_defaults(handler=handle)
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.usage = f"{PROGRAM} run [options] -- PLUGIN [ARGS...]"
    parser.advice = f"options of the plugin need a -- before it: {parser.usage}"
    parser.add_argument(
        "--metric", metavar="NAME", help="name of the metric (default: org.nagios.PLUGIN)"
    )
    parser.add_argument("--host", help="host of the service (default: this host)")
    parser.add_argument("--flavour", help="flavour of the service (default: Host)")
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
    """Return the exit code of the plugin, whatever becomes of its result."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as after nohup
            # Once the plugin has ended, they change nothing: publishing has its own time limit.
            signal.signal(number, lambda number, _: received.append(number))
    run = run_plugin(
        args.plugin,
        args.plugin_timeout,
        pass_on_to(sys.stdout, "output"),
        pass_on_to(sys.stderr, "standard error"),
        received,
    )
    try:
        publish(run, args)
    except Exception as error:
        if not isinstance(error, NoBrokerTookIt):  # which has been counted
            with suppress(Exception):
                count_losses(None, 1)
        loss = f"the result is lost: {reason_of(error)}"
        try:
            logger.debug("traceback of the error", exc_info=True)
            logger.error("%s", loss)
        except Exception:  # as if this program was removed, and with it the modules for logging
            with suppress(Exception):  # not even that replaces the exit code
                os.write(sys.stderr.fileno(), f"{PROGRAM}: error: {loss}\n".encode())
        return UNKNOWN if args.publish_failure == "unknown" else run.exit_code
    return run.exit_code


def publish(run: PluginRun, args: argparse.Namespace) -> None:
    """Publish the result of a run.

    Raises:
        Exception: whatever prevented it; the result is lost.
    """
    name = Path(args.plugin[0]).name
    result, warnings = record_of(run, name)
    for warning in warnings:
        logger.warning("%s %s", name, warning)
    config = config_of(args)
    record: Record = {
        "metricName": f"org.nagios.{Path(name).stem}",
        "serviceFlavour": "Host",
        **config.completed({**result, **record_of_options(args)}),
    }
    if "hostName" not in record:
        record["hostName"] = this_host()
    messages = messages_of(record, config, headers_of(args, config))
    publish_and_report([messages], config, args, to_log=True)


def reason_of(error: Exception) -> str:
    """Why a result is lost, in one line."""
    if isinstance(error, SamError):
        return "; ".join(error.lines)
    if isinstance(error, ImportError):
        return f"this program was overwritten or removed while it ran: {error}"
    return str(error) if isinstance(error, OSError) else f"a bug: {type(error).__name__}: {error}"


def pass_on_to(stream: TextIO, name: str) -> Callable[[bytes], None]:
    """Write chunks of the plugin's output to ours, until that fails or nobody reads it."""
    descriptor = stream.fileno()
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    given_up = False

    def pass_on(chunk: bytes) -> None:
        nonlocal given_up
        while chunk and not given_up:
            try:
                if not writable.poll(READER_PATIENCE_S * 1000):
                    raise TimeoutError(f"nobody read it for {READER_PATIENCE_S:g} s")
                chunk = chunk[os.write(descriptor, chunk[: select.PIPE_BUF]) :]  # never blocks
            except OSError as error:
                given_up = True
                reason = error.strerror or error
                logger.warning("the plugin's %s is no longer passed on: %s", name, reason)

    return pass_on
