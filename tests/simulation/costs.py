"""The service times of the model, from tests/simulation/measured.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.simulation.law import Law, fitted, non_negative

MEASURED = Path(__file__).with_name("measured.json")
QUIET_LOAD = 2.0
"""The load average up to which figures are final."""


@dataclass(frozen=True)
class Costs:
    """Processor time in s, for one message unless its name says otherwise."""

    publish: float
    """Of the broker, to store and confirm it."""
    publish_burst: float
    """Of the broker, for each group of messages that arrives and goes on at once."""
    receipt_s: float
    """How long the broker waits for its disk before it confirms and delivers."""
    ack_s: float
    """How long the broker waits for its disk after the acks of a batch, before it sends more."""
    deliver: float
    serial_s: float
    """A broker delivers the messages of a subscription one after the other, each in this time: that
    of the bare client, but not longer than one core needs."""
    read: float
    read_burst: float
    """Of the consumer's reading thread, for each group."""
    load: float
    load_batch: float
    """Of the consumer's main thread, for each batch."""
    row: float
    transaction: float
    fsync_s: Sequence[float]
    """Quantiles of the time to flush a commit to disk."""

    def slowed(self, factor: float) -> Costs:
        """The costs if all work takes that many times as long; disks stay as fast."""
        waits = ("receipt_s", "ack_s", "fsync_s")
        slow = {name: value * factor for name, value in vars(self).items() if name not in waits}
        return replace(self, **slow)

    def times(self, grain: int) -> Costs:
        """The costs if each message, and each batch, stands for `grain` of them."""
        scaled = {
            name: value * grain
            for name, value in vars(self).items()
            if name not in ("fsync_s", "receipt_s")
        }
        return replace(self, **scaled, fsync_s=[value * grain for value in self.fsync_s])


@dataclass(frozen=True)
class MeasuredKind:
    """What was measured with one kind of broker."""

    name: str
    document: Mapping[str, Any]
    fsync_s: Sequence[float]

    @cached_property
    def cells(self) -> Sequence[Any]:
        return [SimpleNamespace(**cell) for cell in self.document["cells"]]

    @cached_property
    def grid(self) -> Mapping[tuple[int, int], Sequence[Any]]:
        """The cells of all rounds by their numbers of brokers and consumers."""
        found: dict[tuple[int, int], list[Any]] = {}
        for cell in self.cells:
            found.setdefault((cell.brokers, cell.consumers), []).append(cell)
        return found

    @cached_property
    def paces(self) -> Sequence[Any]:
        return [SimpleNamespace(**pace) for pace in self.document["paces"]]

    @cached_property
    def law(self) -> Law:
        return fitted(self.cells)

    def slowness(self, cell: Any) -> float:
        """How much processor time a drain took, relative to the law.

        A machine that is shared with other guests changes its speed from minute to minute.
        """
        parts = (self.law.consumer, self.law.deliver, self.law.database)
        used_us = cell.consumer_us + cell.broker_us + cell.postgresql_us
        return float(used_us / sum(part.us(cell.consumers) for part in parts))

    @property
    def most_consumers(self) -> int:
        return int(max(cell.consumers for cell in self.cells))

    def costs(self, consumers: int = 1) -> Costs:
        """The costs while this number of consumers is at work, or as many as were measured.

        More have machines of their own, and do not all wait for the same locks at a time.

        What a message, a batch and a group cost follows from the drains, where batches are large,
        and from the runs at an even pace, where they are small.
        """
        law = self.law
        consumers = min(consumers, self.most_consumers)
        main_share = float(np.median([cell.main_share for cell in self.cells]))
        batch = float(np.median([cell.rows_per_transaction for cell in self.cells]))
        shares = np.array(
            [
                [1, 1 / batch, CHUNKS / batch],
                *([1, 1 / p.rows_per_transaction, 1 / in_a_tick(p.rate)] for p in self.paces),
            ]
        )
        message, load_batch, read_burst = non_negative(
            shares, np.array([law.consumer.alone_us, *(p.consumer_us for p in self.paces)])
        )
        consumer_us = message * law.consumer.contended(consumers)
        busiest = max(range(len(self.paces)), key=lambda number: self.paces[number].rate)
        pace = self.paces[busiest]
        row, transaction = non_negative(
            shares[[0, busiest + 1], :2], np.array([law.database.alone_us, pace.postgresql_us])
        )
        burst_us = pace.broker_us - law.publish_us - law.deliver.alone_us
        return Costs(
            publish=law.publish_us / 1e6,
            publish_burst=max(burst_us, 0) * in_a_tick(pace.rate) / 1e6,
            receipt_s=pace.receipt_median_s,
            ack_s=pace.receipt_median_s,
            deliver=law.deliver.us(consumers) / 1e6,
            serial_s=min(1 / self.document["bare_rate"], law.deliver.alone_us / 1e6),
            read=(1 - main_share) * consumer_us / 1e6,
            read_burst=read_burst / 1e6,
            load=main_share * consumer_us / 1e6,
            load_batch=load_batch / 1e6,
            row=row * law.database.contended(consumers) / 1e6,
            transaction=transaction / 1e6,
            fsync_s=self.fsync_s,
        )


CHUNKS = 8
"""The smallest number of chunks in which a consumer reads a batch."""
TICK_S = 0.005
"""How often the sender of the runs at an even pace sends what is due."""


def in_a_tick(rate: float) -> float:
    """Messages that the sender of the runs at an even pace sends together."""
    return max(rate * TICK_S, 1.0)


@dataclass(frozen=True)
class Measured:
    """All of measured.json."""

    document: Mapping[str, Any]

    @property
    def cores(self) -> int:
        return int(self.document["machine"]["cores"])

    @property
    def is_preliminary(self) -> bool:
        """Whether the run was short, or other programs used the machine."""
        return bool(self.document["quick"]) or self.document["load_before"] > QUIET_LOAD

    @property
    def prefetch(self) -> int:
        return int(self.document["prefetch"])

    def kinds(self) -> Sequence[MeasuredKind]:
        return [self.kind(name) for name in self.document["brokers"]]

    def kind(self, name: str) -> MeasuredKind:
        return MeasuredKind(name, self.document["brokers"][name], self.document["fsync_s"])

    def print_inputs(self) -> None:
        """The inputs, in a few lines."""
        document, machine = self.document, self.document["machine"]
        size = "small sizes" if document["quick"] else "full sizes"
        print(f"measured {document['measured_at']} at commit {document['commit']}, {size},")
        print(f"load average {document['load_before']} before; {machine['cores']} cores,")
        print(f"{machine['processor']}, {machine['memory_gb']} GB of memory, {machine['system']}")


def read_measured(path: Path = MEASURED) -> Measured:
    return Measured(json.loads(path.read_text()))
