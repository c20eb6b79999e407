"""The command line of `sam-consume`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.commands import check, dead_letters, status
from sam_pipeline.consumer.config import ConsumerConfig, load_consumer, state_directory
from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.drain import Drain
from sam_pipeline.consumer.core.inbox import BatchRule, Inbox
from sam_pipeline.consumer.core.service import consume
from sam_pipeline.consumer.core.sink import Sink
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.consumer.errors import SourceUnreachable
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.monitoring.reporter import reporting
from sam_pipeline.consumer.process.clock import require_set_clock
from sam_pipeline.consumer.process.name_lock import name_held
from sam_pipeline.consumer.process.signals import Wishes, heeding_signals
from sam_pipeline.consumer.sinks.database import DatabaseSink
from sam_pipeline.consumer.sinks.spool import SpoolSink
from sam_pipeline.consumer.sources.make import make_sources
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import SPOOL, Broker, parse_broker
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    CommandParser,
    common_options,
    run,
    to_json,
)
from sam_pipeline.sql.database.config import load_database
from sam_pipeline.sql.database.engine import make_engine

BATCHES_WAITING = 4
"""So many batches fit into the inbox."""

PROGRAM = "sam-consume"
TIMEOUT_S = 60.0

RUN_EXAMPLES = """\
examples:
  sam-consume run                      the daemon; SIGTERM commits the batch in hand and stops,
                                       SIGHUP reads the configuration again
  sam-consume run --drain              load what is there now, then stop: cron, tests
  sam-consume run --drain --timeout 10
  sam-consume run --to spool:///var/spool/sam-in      move the messages there instead
  sam-consume run --instance 2         one of several that share the load (shared = true)

A drain ends after 2 s without news from every broker: exit 0 when every record became a row,
65 when there are new dead letters, 69 when a broker or the database was away longer than
--timeout (what the others had is loaded).
"""

CHECK_EXAMPLES = """\
examples:
  sam-consume check
  sam-consume check --connect          also sends a message through each broker, and sees it come
  sam-consume --config /etc/sam/sam.toml check --json

Exit 78 when there is a problem. The message is of class sam-check: consumers count and ack it, and
load nothing.
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
    command.add_argument(
        "--to",
        type=_spool_url,
        metavar="spool:///PATH",
        help="move the messages into this directory queue instead; no database is needed",
    )
    status.add_instance(command)
    command.set_defaults(handler=run_consumer)


def _spool_url(text: str) -> Broker:
    try:
        broker = parse_broker(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if broker.kind != SPOOL:
        raise argparse.ArgumentTypeError(f"{text}: want spool:///PATH")
    return broker


def _add_check(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "check",
        parents=[common],
        help="tell every problem of configuration and database at once",
        epilog=CHECK_EXAMPLES,
    )
    command.add_argument(
        "--connect", action="store_true", help="with a round trip for each broker and destination"
    )
    command.set_defaults(handler=check.handle)


def run_consumer(args: argparse.Namespace) -> int:
    wishes = Wishes()
    config = load_consumer(args, args.instance)
    require_set_clock(datetime.now(UTC))
    who = config.who(args.instance)
    state = State()
    with name_held(state_directory(), who), heeding_signals(wishes):
        tally, drain = _run(args, config, who, wishes, state)
        while drain is None and wishes.begins_anew():
            config = _read_again(args, config)
            tally, drain = _run(args, config, who, wishes, state)
    if drain is None:
        logger.info("stopped: %s", tally)
        return OK
    return _tell(tally, drain, "moved" if args.to else "loaded", args.json)


def _run(
    args: argparse.Namespace, config: ConsumerConfig, who: str, wishes: Wishes, state: State
) -> tuple[Tally, Drain | None]:
    """Until told to stop, or until all is loaded."""
    directory = state_directory()
    sources = make_sources(config, who, directory)
    drain = Drain(sources, args.timeout) if args.drain else None
    sink = make_sink(args, config, who, state)
    logger.info("starting with %s", ", ".join(source.name for source in sources))
    attempts = Attempts(directory / f"consume-{who}.attempts")
    try:
        inbox = Inbox(BATCHES_WAITING * config.batch_size, config.buffer_bytes)
        rule = BatchRule(
            config.batch_size, config.batch_age_s, max_bytes=config.buffer_bytes // BATCHES_WAITING
        )
        brokers = config.parsed_brokers()
        spools = {str(each): Path(each.path) for each in brokers if each.kind == SPOOL}
        observer = Observer(who, state, inbox, sources, spools)
        with nullcontext() if drain else reporting(observer, wishes, config, args.instance):
            tally = consume(sink, sources, inbox, attempts, rule, wishes.stop, drain, state)
        return tally, drain
    finally:
        attempts.close()


def make_sink(
    args: argparse.Namespace, config: ConsumerConfig, who: str, state: State | None = None
) -> Sink:
    """The database, or with `--to` a directory queue."""
    if args.to is None:
        return DatabaseSink(make_engine(load_database(args).url), who, config.limits(), state)
    if args.to in config.parsed_brokers():
        raise ConfigError([f"--to {args.to}: it is one of the brokers to read from"])
    return SpoolSink(Path(args.to.path))


def _read_again(args: argparse.Namespace, config: ConsumerConfig) -> ConsumerConfig:
    """The configuration as it is now; as it was, if that is no good."""
    try:
        found = load_consumer(args, args.instance)
        if found.name != config.name:
            raise ConfigError([f"[consumer] name: {found.name} is another consumer: restart it"])
        return found
    except ConfigError as error:
        for problem in error.problems:
            logger.error("%s", problem)
        logger.error("going on with the configuration as it was")
        return config


def _tell(tally: Tally, drain: Drain, done: str, as_json: bool) -> int:
    print(to_json(tally.as_json()) if as_json else f"{done} {tally}")
    if drain.unreached:
        raise SourceUnreachable(drain.unreached, drain.timeout_s)
    return OK if tally.all_loaded else BAD_DATA
