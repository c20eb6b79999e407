"""The daemons of a consumer that run now, from their state files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import BrokerState, Snapshot, is_alive, read_state
from sam_pipeline.consumer.settings.config import ConsumerConfig


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
