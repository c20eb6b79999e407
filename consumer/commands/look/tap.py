"""`sam-consume tap`: print the messages that pass, without taking any."""

from __future__ import annotations

import argparse
from datetime import datetime
from fnmatch import fnmatchcase

from sam_pipeline.consumer.commands.look.looking import add_limits, look, shortens
from sam_pipeline.consumer.commands.look.message_view import (
    body_lines,
    head_document,
    head_lines,
    records_document,
    shortened,
)
from sam_pipeline.consumer.settings.load import load_for_tap
from sam_pipeline.consumer.sources.tap import make_taps
from sam_pipeline.schema.identity.policy import usable_policy
from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import SPOOL, STOMP, parse_broker
from sam_pipeline.schema.program.command import (
    OK,
    number,
    print_json_line,
    print_lines,
    text_argument,
)
from sam_pipeline.schema.records.classes import folded

TIMEOUT_S = 10.0

EXAMPLES = """\
examples:
  sam-consume tap                                    what passes at all configured brokers
  sam-consume tap --class metricOutput --count 5
  sam-consume tap --broker stomp://msg1.example.org --destination '/topic/grid.probe.*' --for 60
  sam-consume tap --broker spool:///var/spool/sam-in --all
  sam-consume tap --json | jq -r '.records[].hostName'      one document on each line

Nothing is acknowledged, and no subscription or queue is left behind. The daemon that runs beside
gets every message. Of a topic, tap shows the messages that are published while it runs; of a spool,
those that wait, too. ActiveMQ Classic shows the messages that wait in a queue; other brokers can't
do so without taking them, so tap leaves queues there out. If more messages arrive than can be
printed, some are left out, and counted.

Exit status: 0 at the end, also after Ctrl-C; 69 if no broker could be reached for --timeout.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="GLOB",
        type=text_argument,
        action="append",
        default=[],
        help="print only messages of these classes, for example 'service*'",
    )
    parser.add_argument(
        "--broker",
        dest="brokers",
        metavar="URL",
        type=_broker,
        action="append",
        default=[],
        help="look at this broker or spool instead of all configured ones",
    )
    parser.add_argument(
        "--destination",
        dest="destinations",
        metavar="DESTINATION",
        type=_destination,
        action="append",
        default=[],
        help="look at this topic or queue instead of the configured ones",
    )
    add_limits(parser)
    parser.add_argument(
        "--timeout",
        type=number,
        default=TIMEOUT_S,
        metavar="S",
        help="give up if no broker could be reached for S seconds (default: %(default)g)",
    )
    parser.set_defaults(handler=run_tap)


def run_tap(args: argparse.Namespace) -> int:
    """Print messages until stopped."""
    config = load_for_tap(args, args.brokers, args.destinations)
    policy = usable_policy(config.publishers)
    named = [item for item in config.network_subscriptions if args.destinations]
    patterns = [folded(pattern) for pattern in args.classes]
    limits, brief = config.limits(), shortens(args)

    def wanted(message: Message) -> bool:
        name = folded(message.message_class or "")
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    def show(at: datetime, broker: str, message: Message) -> None:
        if args.json:
            head = head_document(at, broker, message)
            print_json_line({**head, **records_document(message, limits)})
            return
        body = body_lines(message)
        print_lines(
            *head_lines(at, broker, message, limits), *(shortened(body) if brief else body), ""
        )

    look(args, make_taps(config, policy, named), show, wanted)
    return OK


def _broker(url: str) -> str:
    try:
        broker = parse_broker(url)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if broker.kind not in (STOMP, SPOOL):
        expected = "expected stomp://HOST, stomp+ssl://HOST or spool:///PATH"
        raise argparse.ArgumentTypeError(f"{broker}: {expected}")
    return url


def _destination(text: str) -> str:
    if problem := problem_of_destination(text, wildcards=True):
        raise argparse.ArgumentTypeError(problem)
    return text
