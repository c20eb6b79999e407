"""What `make bench-scale` measured, the law fitted to it, and the service times of the model.

A component that needs `d` of processor time for a message, when one process is at work, needs
`d (1 + s (n - 1))` when n are: they wait for the same locks and caches. On n cores it gets to
`n / (d (1 + s (n - 1)))` messages a second, which is Amdahl's law.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.bare import STEP

MEASURED = Path(__file__).with_name("measured.json")
NAMES = {"activemq": "ActiveMQ", "artemis": "Artemis", "rabbitmq": "RabbitMQ"}
CORES = (2, 4, 8, 16, 32)
TICK_S = 0.005
"""How often the sender of the runs at an even pace sends what is due."""
QUIET_LOAD = 2.0
"""The load average up to which figures are final."""


@dataclass(frozen=True)
class Amdahl:
    """Processor time for a message, by the number of processes that are at work."""

    alone_us: float
    contention: float
    """The share by which each further process makes a message dearer."""

    def us(self, processes: float) -> float:
        return self.alone_us * self.contended(processes)

    def contended(self, processes: float) -> float:
        """How many times as much a message takes as with one process."""
        return 1 + self.contention * (max(processes, 1) - 1)

    def rate(self, cores: float) -> float:
        """Messages a second, if all cores are at work."""
        return cores * 1e6 / self.us(cores)

    def cores(self, rate: float) -> float:
        """How many cores this rate takes; infinite if none suffice."""
        left = 1e6 - rate * self.alone_us * self.contention
        return rate * self.alone_us * (1 - self.contention) / left if left > 0 else float("inf")


@dataclass(frozen=True)
class Law:
    """What the drains with one kind of broker say; `deliver` and `publish_us` are of the broker."""

    consumer: Amdahl
    deliver: Amdahl
    publish_us: float
    database: Amdahl

    @property
    def broker(self) -> Amdahl:
        """For storing a message and sending it to one consumer."""
        both = self.deliver.alone_us + self.publish_us
        return Amdahl(both, self.deliver.contention * self.deliver.alone_us / both)

    def components(self) -> dict[str, Amdahl]:
        return {"consumer": self.consumer, "broker": self.broker, "PostgreSQL": self.database}

    def on_one_machine(self, cores: int) -> tuple[float, str]:
        """The rate of all components on one machine, and which of them uses most of it."""
        used = {name: part.us(cores / 2) for name, part in self.components().items()}
        return cores * 1e6 / sum(used.values()), max(used, key=lambda name: used[name])


def fitted(cells: Sequence[Any]) -> Law:
    """Least squares over the drains with one kind of broker."""
    consumers = [cell.consumers for cell in cells]
    return Law(
        consumer=fitted_amdahl(consumers, [cell.consumer_us for cell in cells]),
        deliver=fitted_amdahl(consumers, [cell.broker_us for cell in cells]),
        publish_us=float(np.median([cell.publish_us for cell in cells])),
        database=fitted_amdahl(consumers, [cell.postgresql_us for cell in cells]),
    )


def fitted_amdahl(processes: Sequence[int], used_us: Sequence[float]) -> Amdahl:
    others = np.array(processes, float) - 1
    alone, slope = non_negative(np.column_stack([np.ones_like(others), others]), np.array(used_us))
    return Amdahl(alone, slope / alone)


def non_negative(terms: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, ...]:
    """The least squares without negative figures: the best of those in which some are 0."""
    width = terms.shape[1]
    best, best_error = np.zeros(width), np.inf
    for size in range(1, width + 1):
        for chosen in combinations(range(width), size):
            found = np.linalg.lstsq(terms[:, chosen], values, rcond=None)[0]
            error = float(np.sum((terms[:, chosen] @ found - values) ** 2))
            if (found >= 0).all() and error < best_error * (1 - 1e-9):
                best, best_error = np.zeros(width), error
                best[list(chosen)] = found
    return tuple(map(float, best))


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
    """What was measured with one kind of broker; `shared` is the whole document."""

    name: str
    document: Mapping[str, Any]
    shared: Mapping[str, Any]

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
            publish_burst=max(burst_us, 0) * max(fast.rate * TICK_S, 1.0) / 1e6,
            receipt_s=fast.receipt_median_s,
            deliver=law.deliver.us(consumers) / 1e6,
            delivery_s=self.document["delivery_s"],
            read=(message - load) * contended / 1e6,
            load=load * contended / 1e6,
            load_batch=load_batch / 1e6,
            row=row * law.database.contended(consumers) / 1e6,
            transaction=transaction / 1e6,
            round_trips=self.shared["round_trips"],
            batch_waits_s=self.shared["batch_waits_s"],
        )


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

    def kinds(self) -> Sequence[MeasuredKind]:
        return [self.kind(name) for name in self.document["brokers"]]

    def kind(self, name: str) -> MeasuredKind:
        return MeasuredKind(name, self.document["brokers"][name], self.document)


def read_measured(path: Path = MEASURED) -> Measured:
    return Measured(json.loads(path.read_text()))


def written(document: Mapping[str, Any], indent: str = "") -> str:
    """JSON with one line for each record, or for each column of the cells."""
    lines = []
    for key, value in document.items():
        if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()):
            text = written(value, indent + " ")
        elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            records = (f"{indent}  {json.dumps(record)}" for record in value)
            text = "[\n" + ",\n".join(records) + f"\n{indent} ]"
        else:
            text = json.dumps(value)
        lines.append(f"{indent} {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
