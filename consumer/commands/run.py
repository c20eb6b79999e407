"""`sam-consume run`: the daemon, a drain, or a relay."""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from sam_pipeline.consumer.commands.arguments import add_instance, add_targets
from sam_pipeline.consumer.commands.files import Setup, problems_of_files, read_settings
from sam_pipeline.consumer.core.inbox import BatchRule, Inbox
from sam_pipeline.consumer.core.loop import Drain, Loop, Patience, Sink, consume
from sam_pipeline.consumer.core.recovery import Attempts, UnstoredMessage, name_locked
from sam_pipeline.consumer.core.source import growing_delays
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SourceUnreachable
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.monitoring.reporter import reporting
from sam_pipeline.consumer.process.allocator import return_large_blocks, returning_free_pages
from sam_pipeline.consumer.process.listening import Listeners, inherited_sockets
from sam_pipeline.consumer.process.signals import StopRequest, handling_signals
from sam_pipeline.consumer.sinks.relay import SpoolSink
from sam_pipeline.consumer.sources.make import make_sources
from sam_pipeline.consumer.sources.stomp.records import warn_of_left_behind
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.net.broker_url import SPOOL
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    duration_argument,
    print_done,
    print_json,
)
from sam_pipeline.schema.times import require_set_clock

if TYPE_CHECKING:
    from sam_pipeline.sql.loading.authorise import RecentRecords

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

A drain ends when no broker has delivered a message for 2 s. Exit status: 0 if every record became a
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
    request = StopRequest()
    settings = read_settings(args)
    config = settings.config
    listeners = Listeners(inherited_sockets(config.inherited_sockets))
    listeners.require_all_used(config.doors)
    require_set_clock(datetime.now(UTC))
    state = State()
    name = config.process_name
    recent = None
    if not config.targets:
        from sam_pipeline.sql.loading.authorise import RecentRecords

        recent = RecentRecords()

    def reread() -> bool:
        """Read all files; whether to reload: with a single problem, nothing changes."""
        nonlocal settings
        try:
            new = read_settings(args)
            if new.config.name != config.name:
                text = f"[consumer] name: {new.config.name} is another consumer: restart the daemon"
                raise ConfigError([text])
            listeners.require_all_used(new.config.doors)
            if problems := [*problems_of_files(new.config), *_objections(new, recent)]:
                raise ConfigError(problems)
            if present := new.policy or settings.policy:
                read = {"file": str(new.config.policy_file or "")}
                if new.policy:
                    read |= {"mode": present.mode, "publishers": str(len(present.publishers))}
                new = new._replace(policy_read=read)
        except ConfigError as error:
            for problem in error.problems:
                logger.error("%s", problem)
            logger.error(CONTINUING)
            state.out_of_use(CONFIGURATION, "; ".join(error.problems))
            return False
        settings = new
        return True

    with (
        name_locked(config.state_directory, name),
        closing(listeners),
        closing(Attempts(config.state_directory / f"consume-{name}.attempts")) as attempts,
        closing(UnstoredMessage(config.state_directory / f"consume-{name}.unstored")) as unstored,
        handling_signals(request, before_exit=attempts.forgive, reread=reread),
        returning_free_pages(),  # in a thread, which must not get the signals
    ):
        process = _Process(name, args, request, state, attempts, unstored, listeners, recent)
        drain = _run(process, settings)
        while drain is None and request.restarts():
            state.unused_files.clear()
            state.full_sources.clear()
            listeners.retain(settings.config.doors)
            drain = _run(process, settings)
    config = settings.config
    if drain is None:
        logger.info("stopped: %s", state.counts)
        return OK
    done = f"{'moved' if config.targets else 'loaded'} {state.counts}"
    code = OK if state.counts.all_loaded else BAD_DATA
    if args.json:
        print_json(_document(state.counts))
    else:
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


class _Process(NamedTuple):
    """What stays the same when the configuration is read again."""

    name: str
    args: argparse.Namespace
    request: StopRequest
    state: State
    attempts: Attempts
    unstored: UnstoredMessage
    listeners: Listeners
    recent: RecentRecords | None


def _run(process: _Process, settings: Setup) -> Drain | None:
    """Consume until stopped, or until everything is loaded; then returns the drain."""
    name, args, request, state, attempts, unstored, listeners, _ = process
    config = settings.config
    warn_of_left_behind(config)
    sources = make_sources(
        config,
        settings.policy,
        state,
        listeners,
        settings.credentials,
        attempts.is_last_for_frame,
    )
    drain = Drain(sources, args.timeout) if args.drain else None
    inbox = Inbox(BATCHES_WAITING * config.batch_size, config.buffer_bytes)
    rule = BatchRule(config.batch_size, max_bytes=config.buffer_bytes // BATCHES_WAITING)
    with ExitStack() as stack:
        sink = stack.enter_context(_opened_sink(process, settings))
        if drain is None:
            # A relay does not know the classes of its messages.
            watched = config.replace(silence=()) if config.targets else config
            observer = Observer(name, state, inbox, sources, config.spools, watched)
            stack.enter_context(reporting(observer, request, config))
        logger.info("starting with %s", ", ".join(source.name for source in sources))
        give_up_after_s = drain.timeout_s if drain else math.inf
        patience = Patience(request.stop, growing_delays, state, give_up_after_s)
        consume(Loop(inbox, rule, sink, patience, attempts, unstored, state), sources, drain)
    return drain


def _objections(settings: Setup, recent: RecentRecords | None) -> Iterator[str]:
    """Why the policy should not be used yet, judged by the records accepted lately."""
    from sam_pipeline.sql.database.engine import make_engine
    from sam_pipeline.sql.errors import SqlError

    if settings.policy is None or recent is None:
        return
    engine = make_engine(settings.database_url)
    try:
        if objection := recent.objection(settings.policy, engine):
            yield f"{settings.config.policy_file}: {objection}"
    except SqlError as error:
        logger.warning("the policy was not tried on the records accepted lately: %s", error)
    finally:
        engine.dispose()


@contextmanager
def _opened_sink(process: _Process, settings: Setup) -> Iterator[Sink]:
    """The database, where the name is released at the end, or the spool or brokers of a relay."""
    config, state, attempts = settings.config, process.state, process.attempts
    if config.targets and config.targets[0].kind == SPOOL:
        yield SpoolSink(config.targets[0], attempts)
        return
    if config.targets:
        from sam_pipeline.consumer.sinks.relay import BrokerSink

        with closing(BrokerSink(config.targets, config, state, attempts)) as brokers:
            yield brokers
        return
    from sam_pipeline.consumer.sinks.database import DatabaseSink, HeldName
    from sam_pipeline.sql.database.engine import make_engine
    from sam_pipeline.sql.loading.authorise import Authority
    from sam_pipeline.sql.loading.catalogue import Catalogue
    from sam_pipeline.sql.loading.letters.quota import LetterQuota
    from sam_pipeline.sql.loading.load import Loader

    engine, policy = make_engine(settings.database_url), settings.policy
    loader = Loader(
        engine,
        Catalogue(engine),
        config.limits(),
        Authority(policy, timedelta(days=config.signature_age_days)) if policy else None,
        LetterQuota(config.dead_letters_per_hour, config.dead_letter_bytes_per_hour, policy),
        process.recent,
    )
    shared = all(subscription.shared for subscription in config.network_subscriptions)
    held = HeldName(engine, config.name, shared)
    sink = DatabaseSink(
        loader,
        process.name,
        state,
        attempts,
        held if config.network_brokers else None,
        settings.policy_read,
    )
    with closing(held), closing(sink):
        yield sink
