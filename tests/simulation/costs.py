"""The service times of the model, from tests/simulation/measured.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.benchmarks.bare_consumer import STEP
from tests.simulation.law import Law, fitted, non_negative

MEASURED = Path(__file__).with_name("measured.json")
FRAME_BYTES = 700
"""Of a message that a broker sends, with its headers."""
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
    deliver: float
    delivery_s: Sequence[float]
    """Times in which a broker delivers STEP messages of a subscription, one after the other, while
    it processes the acks of earlier ones."""
    read: float
    """Of the consumer's reading thread."""
    load: float
    load_batch: float
    """Of the consumer's main thread, for each batch."""
    row: float
    transaction: float
    round_trips: int
    """To the database, for each batch."""
    batch_waits_s: Sequence[float]
    """Times to load a batch beyond the processor time: mostly the flush of its log."""

    @property
    def serial_s(self) -> float:
        """The time in which a broker delivers one message of a subscription."""
        return mean(self.delivery_s) / STEP

    def slowed(self, factor: float) -> Costs:
        """The costs if all work takes that many times as long; disks stay as fast."""
        return self._scaled(factor, but=("receipt_s", "batch_waits_s", "round_trips"))

    def times(self, grain: int) -> Costs:
        """The costs if each message, and each batch, stands for `grain` of them."""
        return self._scaled(grain, but=("receipt_s", "round_trips"))

    def _scaled(self, factor: float, but: Sequence[str]) -> Costs:
        scaled: dict[str, Any] = {
            name: value * factor if isinstance(value, float) else [one * factor for one in value]
            for name, value in vars(self).items()
            if name not in but
        }
        return replace(self, **scaled)


@dataclass(frozen=True)
class MeasuredKind:
    """What was measured with one kind of broker."""

    name: str
    document: Mapping[str, Any]
    round_trips: int
    batch_waits_s: Sequence[float]

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

        What a message and a batch cost follows from the drains, where batches are large, and from
        the run at an even pace in which they were smallest.
        """
        law = self.law
        consumers = min(consumers, self.most_consumers)
        main_share = float(np.median([cell.main_share for cell in self.cells]))
        large = float(np.median([cell.rows_per_transaction for cell in self.cells]))
        slow, fast = sorted(self.paces, key=lambda pace: float(pace.rate))
        sizes = (large, slow.rows_per_transaction)
        message, load_batch = message_and_batch(sizes, (law.consumer.alone_us, slow.consumer_us))
        row, transaction = message_and_batch(sizes, (law.database.alone_us, slow.postgresql_us))
        load = min(max(main_share * law.consumer.alone_us - load_batch / large, 0.0), message)
        contended = law.consumer.contended(consumers)
        burst_us = fast.broker_us - law.publish_us - law.deliver.alone_us
        return Costs(
            publish=law.publish_us / 1e6,
            publish_burst=max(burst_us, 0) * in_a_tick(fast.rate) / 1e6,
            receipt_s=fast.receipt_median_s,
            deliver=law.deliver.us(consumers) / 1e6,
            delivery_s=self.document["delivery_s"],
            read=(message - load) * contended / 1e6,
            load=load * contended / 1e6,
            load_batch=load_batch / 1e6,
            row=row * law.database.contended(consumers) / 1e6,
            transaction=transaction / 1e6,
            round_trips=self.round_trips,
            batch_waits_s=self.batch_waits_s,
        )


TICK_S = 0.005
"""How often the sender of the runs at an even pace sends what is due."""


def in_a_tick(rate: float) -> float:
    """Messages that the sender of the runs at an even pace sends together."""
    return max(rate * TICK_S, 1.0)


def message_and_batch(sizes: tuple[float, float], used: tuple[float, float]) -> tuple[float, ...]:
    """What a message and a batch cost by themselves, from the cost of a message at two sizes."""
    return non_negative(np.array([[1, 1 / size] for size in sizes]), np.array(used))


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
        kind, shared = self.document["brokers"][name], self.document
        return MeasuredKind(name, kind, shared["round_trips"], shared["batch_waits_s"])

    def print_inputs(self) -> None:
        """The inputs, in a few lines."""
        document, machine = self.document, self.document["machine"]
        size = "small sizes" if document["quick"] else "full sizes"
        print(f"measured {document['measured_at']} at commit {document['commit']}, {size},")
        print(f"load average {document['load_before']} before; {machine['cores']} cores,")
        print(f"{machine['processor']}, {machine['memory_gb']} GB of memory, {machine['system']}")


def read_measured(path: Path = MEASURED) -> Measured:
    return Measured(json.loads(path.read_text()))
