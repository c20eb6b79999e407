"""`sam-consume run`: the daemon, a drain, or a relay."""

from __future__ import annotations

import argparse
import logging
import math
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sam_pipeline.consumer.commands.arguments import add_instance, add_targets
from sam_pipeline.consumer.commands.files import Setup, problems_of_files, read_settings
from sam_pipeline.consumer.core.inbox import BatchRule, Inbox
from sam_pipeline.consumer.core.loop import Drain, Loop, Patience, Sink, consume
from sam_pipeline.consumer.core.recovery import Attempts, UnstoredMessage, name_locked
from sam_pipeline.consumer.core.source import growing_delays
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SourceUnreachable
from sam_pipeline.consumer.monitoring.observer import Observer, reporting
from sam_pipeline.consumer.process.allocator import return_large_blocks, returning_free_pages
from sam_pipeline.consumer.process.listening import Listeners, inherited_sockets
from sam_pipeline.consumer.process.signals import StopRequest, handling_signals
from sam_pipeline.consumer.sources.make import make_sources
from sam_pipeline.consumer.sources.stomp.records import warn_of_left_behind
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    duration_argument,
    print_done,
    print_json,
)
from sam_pipeline.schema.times import require_set_clock

if TYPE_CHECKING:
    from sam_pipeline.consumer.sinks.database import DatabaseSinks

BATCHES_WAITING = 4
"""The number of batches for which the inbox has room."""
TIMEOUT_S = 60.0
CONFIGURATION = "configuration"
CONTINUING = "continuing with the previous configuration"

EXAMPLES = """\
examples:
  sam-consume run                      the daemon; SIGTERM commits the current batch and stops,
                                       SIGHUP rereads the configuration
  sam-consume run --drain              load all waiting messages, then stop (cron, tests)
  sam-consume run --drain --timeout 10
  sam-consume run --to spool:///var/spool/sam-in      move the messages to a spool instead
  sam-consume run --to stomp://msg1.example.org --to stomp://msg2.example.org      or to a broker:
                                       each message to the first one that confirms it
  sam-consume run --instance 2         one of several processes that share the messages

A drain ends when no broker has delivered a message for 2 s. Exit code: 0 if every record became a
row or every message was moved, 65 if there are new dead letters or no broker of --to takes some
messages, 69 if a broker or the database was unavailable for longer than --timeout (messages of the
other brokers are loaded). A server that has fallen silent without closing its connections is
noticed within a minute.
"""

logger = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--drain", action="store_true", help="load all waiting messages, then stop")
    parser.add_argument(
        "--timeout",
        type=duration_argument,
        default=TIMEOUT_S,
        metavar="S",
        help="seconds that a drain waits for a broker or the database (default: %(default)g)",
    )
    add_targets(parser)
    add_instance(parser)
    parser.set_defaults(handler=run_consumer)


def run_consumer(args: argparse.Namespace) -> int:
    """Load until stopped or drained; a reload starts again with the new configuration."""
    return_large_blocks()
    settings = read_settings(args)
    config = settings.config
    name, directory = config.process_name, config.state_directory
    process = _Process(args, name, settings, Listeners(inherited_sockets(config.inherited_sockets)))
    process.listeners.require_all_used(config.doors)
    require_set_clock(datetime.now(UTC))
    request, state = process.request, process.state
    with (
        name_locked(directory, name),
        closing(process.listeners),
        closing(Attempts(directory / f"consume-{name}.attempts")) as attempts,
        closing(UnstoredMessage(directory / f"consume-{name}.unstored")) as unstored,
        handling_signals(request, before_exit=attempts.forgive, reread=process.reread),
        returning_free_pages(),  # in a thread, which must not get the signals
    ):
        drain = process.run(attempts, unstored)
        while drain is None and request.restarts():
            state.unused_files.clear()
            state.full_sources.clear()
            process.listeners.retain(process.settings.config.doors)
            drain = process.run(attempts, unstored)
    if drain is None:
        logger.info("stopped: %s", state.counts)
        return OK
    code = OK if state.counts.all_loaded else BAD_DATA
    if args.json:
        print_json(_document(state.counts))
    else:
        done = f"{'moved' if config.targets else 'loaded'} {state.counts}"
        print_done(args, done, success=code == OK and not drain.unreached)
    if drain.unreached:
        raise SourceUnreachable(drain.unreached, drain.timeout_s)
    return code


def _document(counts: Counts) -> dict[str, object]:
    """The document that a drain prints with `--json`: brokers and classes are lists in it."""
    document = counts.document()
    for name in ("messages_by_broker", "rows_by_class", "duplicates_by_class"):
        del document[name]
    brokers = [{"broker": name, "messages": n} for name, n in counts.messages_by_broker.items()]
    classes = [
        {"class": name, "rows": rows, "duplicates": counts.duplicates_by_class[name]}
        for name, rows in counts.rows_by_class.items()
    ]
    return {**document, "brokers": brokers, "classes": classes}


@dataclass
class _Process:
    """The process, which reads its settings again on SIGHUP."""

    args: argparse.Namespace
    name: str
    settings: Setup
    listeners: Listeners
    request: StopRequest = field(default_factory=StopRequest)
    state: State = field(default_factory=State)

    @cached_property
    def database(self) -> DatabaseSinks:
        """The sinks of a process that loads: a relay starts without SQLAlchemy."""
        from sam_pipeline.consumer.sinks.database import DatabaseSinks

        return DatabaseSinks()

    def reread(self) -> bool:
        """Read all files; whether to reload: with a single problem, nothing changes."""
        try:
            new = read_settings(self.args)
            config, policy = new.config, new.policy
            if config.name != self.settings.config.name:
                text = f"[consumer] name: the new name {config.name} takes effect after a restart"
                raise ConfigError([text])
            self.listeners.require_all_used(config.doors)
            problems = [*problems_of_files(config)]
            if policy and not config.targets:
                problems += self.database.objections(new.database_url, policy, config.policy_file)
            if problems:
                raise ConfigError(problems)
            if present := policy or self.settings.policy:
                read = {"file": str(config.policy_file or "")}
                if policy:
                    read |= {"mode": present.mode, "publishers": str(len(present.publishers))}
                new = new._replace(policy_read=read)
        except ConfigError as error:
            for problem in error.problems:
                logger.error("%s", problem)
            logger.error(CONTINUING)
            self.state.out_of_use(CONFIGURATION, "; ".join(error.problems))
            return False
        self.settings = new
        return True

    def run(self, attempts: Attempts, unstored: UnstoredMessage) -> Drain | None:
        """Consume until stopped, or until everything is loaded; then returns the drain."""
        config, policy, credentials, url, policy_read = self.settings
        args, state = self.args, self.state
        warn_of_left_behind(config)
        sources = make_sources(
            config, policy, state, self.listeners, credentials, attempts.is_last_for_frame
        )
        drain = Drain(sources, args.timeout) if args.drain else None
        inbox = Inbox(BATCHES_WAITING * config.batch_size, config.buffer_bytes)
        rule = BatchRule(config.batch_size, max_bytes=config.buffer_bytes // BATCHES_WAITING)
        with ExitStack() as stack:
            opened: AbstractContextManager[Sink]
            if config.targets:
                from sam_pipeline.consumer.sinks.relay import opened_relay

                opened = opened_relay(config, state, attempts)
            else:
                opened = self.database.opened(
                    url, config, policy, policy_read, self.name, state, attempts
                )
            sink = stack.enter_context(opened)
            if drain is None:
                # A relay does not know the classes of its messages.
                watched = config.replace(silence=()) if config.targets else config
                observer = Observer(self.name, state, inbox, sources, config.spools, watched)
                stack.enter_context(reporting(observer, self.request, config))
            logger.info("starting with %s", ", ".join(source.name for source in sources))
            give_up_after_s = drain.timeout_s if drain else math.inf
            patience = Patience(self.request.stop, growing_delays, state, give_up_after_s)
            consume(Loop(inbox, rule, sink, patience, attempts, unstored, state), sources, drain)
        return drain
