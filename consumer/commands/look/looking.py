"""What `tap` and `run --dry-run` share: their options, and the end of a look."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import islice

from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.sources.tap import TapInbox, passing
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program.command import number, output_ended, whole_number
from sam_pipeline.schema.program.wording import plural

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

logger = logging.getLogger(__name__)

Show = Callable[[datetime, str, Message], object]
"""Prints a message that arrived at this time from this broker."""


def add_limits(parser: argparse._ActionsContainer) -> None:
    """Add the options that limit a look and its output."""
    parser.add_argument("--count", type=whole_number(), metavar="N", help="end after N messages")
    parser.add_argument(
        "--for", dest="for_s", type=number, metavar="SECONDS", help="end after this time"
    )
    parser.add_argument(
        "--all",
        dest="full",
        action="store_true",
        help="print all lines of each message, and all of each line, also on a terminal",
    )


def look(
    args: argparse.Namespace,
    sources: Sequence[Source],
    show: Show,
    wanted: Callable[[Message], bool] = lambda message: True,
) -> None:
    """Show the wanted messages that pass until a limit, a signal, or the reader's end.

    Raises:
        SourceUnreachable: no source could be read for `args.timeout`.
    """
    if not sources:
        raise ConfigError(["there is nothing to look at: no broker and no spool is configured"])
    ends_at = math.inf if args.for_s is None else time.monotonic() + args.for_s
    inbox = TapInbox(wanted)
    with stopped_by_signals() as stop:

        def goes_on() -> bool:
            return not (stop.is_set() or time.monotonic() >= ends_at or output_ended())

        with closing(passing(sources, inbox, goes_on, args.timeout)) as deliveries:
            for delivery in islice(deliveries, args.count):
                show(datetime.now(UTC), delivery.session.broker, delivery.message)
    if inbox.left_out:
        text = "%s left out: more arrived than could be printed"
        logger.warning(text, plural(inbox.left_out, "message"))


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that a signal sets; it is the usual end of a look, and no error."""
    stop = threading.Event()
    previous = [signal.signal(number, lambda *_: stop.set()) for number in SIGNALS]
    try:
        yield stop
    finally:
        for signal_number, handler in zip(SIGNALS, previous, strict=True):
            signal.signal(signal_number, handler)


def shortens(args: argparse.Namespace) -> bool:
    """Whether the output is for the eye: on a terminal, unless --all is given."""
    return sys.stdout.isatty() and not args.full
