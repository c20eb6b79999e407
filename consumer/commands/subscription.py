"""`sam-consume subscription`: list and delete what brokers store for this consumer."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial

from sam_pipeline.consumer.commands.arguments import add_targets
from sam_pipeline.consumer.core.recovery import name_locked
from sam_pipeline.consumer.errors import NoState, SourceTaken, UnsubscribeRefused
from sam_pipeline.consumer.monitoring.snapshot import BrokerState, Snapshot, is_alive, read_state
from sam_pipeline.consumer.settings.config import ConsumerConfig, load_consumer
from sam_pipeline.consumer.sources.make import stomp_settings
from sam_pipeline.consumer.sources.stomp.dialects import deletable
from sam_pipeline.consumer.sources.stomp.records import (
    MadeSubscription,
    SubscriptionRecords,
    configured,
    is_configured,
    is_made,
    left_behind,
    unsubscribing,
)
from sam_pipeline.consumer.sources.stomp.removal import MAX_COUNT, Removal, remove
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import parse_broker
from sam_pipeline.schema.program.command import (
    OK,
    USAGE,
    add_action,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.wording import did_you_mean_or_list, plural

EXAMPLES = """\
examples:
  sam-consume subscription list
  sam-consume subscription delete stomp+ssl://msg1.example.org:61614      all that are left behind
  sam-consume subscription delete stomp://msg1.example.org /topic/grid.probe.downtime
  sam-consume subscription delete stomp://msg1.example.org /topic/grid.probe.downtime --yes
                                       though it is configured; the daemon must be stopped
  sam-consume subscription delete stomp://gone.example.org --forget
                                       the broker, or its subscription, does not exist any more

States:
  active       the daemon reads it
  offline      it is configured, but not read now: the broker stores the messages
  new          it is configured, and was never made: the broker stores nothing yet
  left behind  it is not configured any more, but the broker stores messages until it is deleted

The list comes from the state directory and the configuration, as the user of the service; no broker
is asked. A broker drops the messages that wait in a deleted subscription. Login, certificates and
proxy are those of the configuration: keep the table [[consumer.broker]] of a broker until then;
destinations = [] in it stops reading there.

Exit code of delete: 0 if deleted, 64 if the subscription is unknown, 69 if the broker can't be
reached, 77 if the daemon reads that broker, the subscription is configured, or the broker refuses.
"""

ACTIVE, OFFLINE, NEW, LEFT_BEHIND = "active", "offline", "new", "left behind"
COLUMNS = ("broker", "destination", "stored_in", "state", "since", "problem")
OF_MADE = ("server", "stored_in", "since")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = partial(add_action, parser.add_subparsers(), epilog=EXAMPLES)
    text = "list the subscriptions at each broker, and those that are left behind"
    add_targets(add("list", run_list, text))
    action = add("delete", run_delete, "delete subscriptions at their broker")
    action.add_argument("broker", metavar="BROKER", help="the URL of the broker")
    action.add_argument(
        "destination", metavar="DESTINATION", nargs="?", help="by default all that are left behind"
    )
    action.add_argument(
        "--yes", action="store_true", help="even if it is configured; its messages are lost"
    )
    action.add_argument(
        "--forget",
        action="store_true",
        help="forget it without asking the broker: it does not exist any more",
    )


def run_list(args: argparse.Namespace) -> int:
    """Print the subscriptions as a table or as JSON."""
    config = load_consumer(args)
    made = SubscriptionRecords(config).all() if config.name else []
    rows = [*_listed(config, made, running_daemons(config))]
    if args.json:
        print_json(rows)
    elif rows:
        table = [[row[name] or "" for name in COLUMNS] for row in rows]
        print_lines(*text_table([name.replace("_", " ") for name in COLUMNS], table))
    else:
        print_done(args, "no subscriptions: no network broker is configured, and none was read")
    return OK


def _listed(
    config: ConsumerConfig, made: Sequence[MadeSubscription], daemons: list[Snapshot]
) -> Iterator[dict[str, object]]:
    """The configured subscriptions, then those that are left behind."""
    for broker, subscription in configured(config):
        matching = [item for item in made if is_made(config, broker, subscription, item)]
        states = [state for _, state in reading(daemons, str(broker))]
        connected = any(not state.missing for state in states)
        yield {
            "broker": str(broker),
            "vhost": config.target_of(broker).vhost,
            "destination": subscription.destination,
            "shared": subscription.shared,
            **{name: getattr(matching[-1], name) if matching else None for name in OF_MADE},
            "state": NEW if not matching else ACTIVE if connected else OFFLINE,
            "problem": "; ".join(text for state in states for text in state.missing),
        }
    for item in left_behind(config, made):
        names = ("broker", "vhost", "destination", "shared", *OF_MADE)
        yield {name: getattr(item, name) for name in names} | {"state": LEFT_BEHIND, "problem": ""}


def run_delete(args: argparse.Namespace) -> int:
    """Delete them one by one.

    Raises:
        UnsubscribeRefused, BrokerUnreachable: some are not deleted.
    """
    config = load_consumer(args)
    records = SubscriptionRecords(config)
    chosen = _chosen(args, config, records.all() if config.name else [])
    with ExitStack() as stack:
        documents: list[dict[str, object]] = []
        if args.json:
            stack.callback(print_json, documents)  # also if a later one is refused
        _require_unused(config, chosen, stack)
        for made in [item for item in chosen if not args.yes and is_configured(config, item)]:
            raise UnsubscribeRefused(
                f"broker {made.broker}: {made.destination} is configured: remove it from the"
                " configuration first, or add --yes; the broker drops the messages that wait in"
                f" {made.stored_in}"
            )
        for made in chosen:
            removals = list[Removal]()
            if not args.forget:
                broker = made.address()
                if not deletable(made.server, made.destination, made.shared):
                    raise UnsubscribeRefused(
                        f"broker {broker}: {made.stored_in} is a queue, which clients can't delete:"
                        f" use the tools of the broker, then: {unsubscribing(made)} --forget"
                    )
                if made.has_table and not config.table_of(broker):
                    raise UnsubscribeRefused(
                        f"broker {broker}: its table [[consumer.broker]] is missing, so its login"
                        " is unknown: put it back, with destinations = []"
                    )
                removals += remove(made, stomp_settings(config, config.name, broker))
            records.remove(made.key)
            documents += [{**asdict(made), **removal._asdict()} for removal in removals]
            if not args.json:
                print_done(args, *(_line(made, removal) for removal in removals))
    return OK


def _line(made: MadeSubscription, removal: Removal) -> str:
    where = f"{made.stored_in} at {made.broker}"
    if removal.address not in made.broker:
        where += f" ({removal.address})"
    if not removal.existed:
        return f"{where} does not exist any more"
    if removal.lost is None:
        return f"deleted {where}"
    at_least = "at least " if removal.lost >= MAX_COUNT else ""
    return f"deleted {where}, with {at_least}{plural(removal.lost, 'message')} that waited"


def _chosen(
    args: argparse.Namespace, config: ConsumerConfig, made: Sequence[MadeSubscription]
) -> list[MadeSubscription]:
    """The subscriptions that the arguments name."""
    try:
        url = str(parse_broker(args.broker))
    except ValueError as error:
        raise ConfigError([str(error)], USAGE) from None
    there = [item for item in made if item.broker == url]
    if not there:
        hint = did_you_mean_or_list(url, {item.broker for item in made})
        raise ConfigError([f"{url}: no subscription was made there ({hint})"], USAGE)
    if args.destination is None:
        behind = [item for item in there if args.yes or not is_configured(config, item)]
        if not behind:
            text = (
                f"{url}: nothing is left behind there: name the DESTINATION to delete, with --yes"
            )
            raise ConfigError([text], USAGE)
        return behind
    chosen = [item for item in there if item.destination == args.destination]
    if not chosen:
        hint = did_you_mean_or_list(args.destination, {item.destination for item in there})
        raise ConfigError([f"{args.destination}: no subscription at {url} ({hint})"], USAGE)
    return chosen


def _require_unused(
    config: ConsumerConfig, chosen: Sequence[MadeSubscription], stack: ExitStack
) -> None:
    """Raise UnsubscribeRefused if a process of the consumer reads the broker."""
    daemons = running_daemons(config)
    for made in chosen:
        for daemon, _ in reading(daemons, made.broker):
            raise UnsubscribeRefused(
                f"the daemon {daemon.name} (process {daemon.pid}) reads {made.broker}: stop it, or"
                " remove the broker from its configuration and reload it"
            )
    if not daemons:  # perhaps a drain runs, which does not report its state
        try:
            stack.enter_context(name_locked(config.state_directory, config.name))
        except SourceTaken as error:
            raise UnsubscribeRefused(str(error)) from error


def running_daemons(config: ConsumerConfig) -> list[Snapshot]:
    """The last snapshot of each process with the name of the consumer."""
    names = {config.name}
    for directory in config.state_directories:
        with suppress(OSError):
            paths = [*directory.glob(f"consume-{config.name}@*.state.json")]
            names |= {path.name[len("consume-") : -len(".state.json")] for path in paths}
    alive = []
    for name in sorted(names):
        with suppress(NoState):
            snapshot = read_state(config.state_directories, name)
            if snapshot.ended_at is None and is_alive(snapshot):
                alive.append(snapshot)
    return alive


def reading(daemons: list[Snapshot], broker: str) -> Iterator[tuple[Snapshot, BrokerState]]:
    """The daemons that read a broker, and the state of that broker in them."""
    for daemon in daemons:
        for state in daemon.brokers:
            if state.broker == broker:
                yield daemon, state
