"""`sam-consume subscriptions`: what brokers store for this consumer, also unused ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sam_pipeline.consumer.commands.arguments import add_targets
from sam_pipeline.consumer.commands.subscriptions.daemons import reading, running_daemons
from sam_pipeline.consumer.monitoring.snapshot import Snapshot
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.load import load_consumer
from sam_pipeline.consumer.sources.stomp.records import (
    MadeSubscription,
    SubscriptionRecords,
    configured,
    is_made,
    left_behind,
)
from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_table

EXAMPLES = """\
examples:
  sam-consume subscriptions
  sam-consume subscriptions --json

States:
  active       the daemon reads it
  offline      it is configured, but not read now: the broker stores the messages
  new          it is configured, and was never made: the broker stores nothing yet
  left behind  it is not configured any more, but the broker stores messages until it is deleted:
               sam-consume unsubscribe BROKER DESTINATION

It is read from the state directory and the configuration, as the user of the service; no broker is
asked.
"""

ACTIVE, OFFLINE, NEW, LEFT_BEHIND = "active", "offline", "new", "left behind"
COLUMNS = ("broker", "destination", "stored_in", "state", "since", "problem")


class ListedSubscription(NamedTuple):
    """A subscription at one broker; `stored_in` and `since` are None if it was never made."""

    broker: str
    vhost: str
    destination: str
    shared: bool
    server: str | None
    stored_in: str | None
    since: str | None
    state: str
    problem: str


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add_targets(parser)
    parser.set_defaults(handler=run_subscriptions)


def run_subscriptions(args: argparse.Namespace) -> int:
    """Print them."""
    config = load_consumer(args)
    made = SubscriptionRecords(config).all() if config.name else []
    rows = [*listed(config, made, running_daemons(config))]
    if args.json:
        print_json([row._asdict() for row in rows])
    elif rows:
        table = [[getattr(row, name) or "" for name in COLUMNS] for row in rows]
        heads = [name.replace("_", " ") for name in COLUMNS]
        print_lines(*text_table(heads, table))
    return OK


def listed(
    config: ConsumerConfig, made: Sequence[MadeSubscription], daemons: list[Snapshot]
) -> Iterator[ListedSubscription]:
    """The configured subscriptions, then those that are left behind."""
    for broker, subscription in configured(config):
        matching = [item for item in made if is_made(config, broker, subscription, item)]
        item = matching[-1] if matching else None
        states = [state for _, state in reading(daemons, str(broker))]
        problem = "; ".join(text for state in states for text in state.missing)
        connected = any(not state.missing for state in states)
        yield ListedSubscription(
            str(broker),
            config.target_of(broker).vhost,
            subscription.destination,
            subscription.shared,
            item.server if item else None,
            item.stored_in if item else None,
            item.since if item else None,
            NEW if item is None else ACTIVE if connected else OFFLINE,
            problem,
        )
    for item in left_behind(config, made):
        yield ListedSubscription(
            item.broker,
            item.vhost,
            item.destination,
            item.shared,
            item.server,
            item.stored_in,
            item.since,
            LEFT_BEHIND,
            "",
        )
