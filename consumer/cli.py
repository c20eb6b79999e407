"""The command line of `sam-consume`."""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any

from consumer import dead_letters, status
from consumer.check import find_problems
from consumer.config import load_consumer, state_directory
from consumer.drain import Drain
from consumer.errors import SourceUnreachable
from consumer.inbox import Inbox
from consumer.loop import BatchRule
from consumer.service import consume
from consumer.signals import stopping_on_signals
from consumer.sources import make_sources, room_for
from consumer.speaker import Watched
from consumer.state import State
from consumer.tally import Tally
from consumer.watch import watching
from schema.command import BAD_DATA, OK, CommandParser, common_options, run, to_json
from schema.errors import ConfigError
from sql.config import load_database
from sql.engine import make_engine

PROGRAM = "sam-consume"
TIMEOUT_S = 60.0

RUN_EXAMPLES = """\
examples:
  sam-consume run                      the daemon; SIGTERM commits the batch in hand and stops
  sam-consume run --drain              load what is there now, then stop: cron, tests
  sam-consume run --drain --timeout 10

A drain ends after 2 s without news from every broker: exit 0 when every record became a row,
65 when there are new dead letters, 69 when a broker or the database was away longer than
--timeout (what the others had is loaded).
"""

CHECK_EXAMPLES = """\
examples:
  sam-consume check
  sam-consume --config /etc/sam/sam.toml check --json
"""

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv, lambda args: int(args.handler(args)))


def make_parser() -> CommandParser:
    common = common_options()
    parser = CommandParser(
        prog=PROGRAM,
        parents=[common],
        description="Take messages from all configured brokers and load them into the database.",
        epilog=RUN_EXAMPLES,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {version('sam-pipeline')}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands, common)
    _add_check(commands, common)
    status.add_command(commands, common)
    dead_letters.add_commands(commands, common)
    return parser


def _add_run(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "run", parents=[common], help="load messages until told to stop", epilog=RUN_EXAMPLES
    )
    command.add_argument("--drain", action="store_true", help="load what is there now, then stop")
    command.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="S",
        help="in a drain: how long a broker or the database may be away (default %(default)g)",
    )
    command.set_defaults(handler=run_consumer)


def _add_check(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "check",
        parents=[common],
        help="tell every problem of configuration and database at once",
        epilog=CHECK_EXAMPLES,
    )
    command.set_defaults(handler=run_check)


def run_consumer(args: argparse.Namespace) -> int:
    config = load_consumer(args)
    engine = make_engine(load_database(args).url)
    sources = make_sources(config, state_directory())
    drain = Drain(sources, args.timeout) if args.drain else None
    rule = BatchRule(config.batch_size, config.batch_age_s)
    stop = threading.Event()
    logger.info("starting with %s", ", ".join(source.name for source in sources))
    watched = Watched(State(), sources, Inbox(room_for(config)), stop)
    told = nullcontext() if drain else watching(config, _instance(args), watched)
    with stopping_on_signals(stop), told:
        tally = consume(engine, sources, watched.inbox, rule, stop, drain, watched.state)
    if drain is None:
        logger.info("stopped: %s", tally)
        return OK
    return _tell(tally, drain, args.json)


def _instance(args: argparse.Namespace) -> int | None:
    """Which of several processes that share the load; None where there is one alone."""
    return getattr(args, "instance", None)


def run_check(args: argparse.Namespace) -> int:
    problems = find_problems(args)
    if args.json:
        print(to_json({"problems": problems}))
    if problems:
        raise ConfigError(problems)
    if not args.json:
        print("no problem found")
    return OK


def _tell(tally: Tally, drain: Drain, as_json: bool) -> int:
    print(to_json(tally.as_json()) if as_json else f"loaded {tally}")
    if drain.unreached:
        raise SourceUnreachable(drain.unreached, drain.timeout_s)
    return OK if tally.all_loaded else BAD_DATA
