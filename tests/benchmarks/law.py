"""What `make bench-scale` measured, and the law fitted to it.

A component that needs `d` of processor time for a message, when one process is at work, needs
`d (1 + s (n - 1))` when n are: they wait for the same locks and caches. On n cores it gets to
`n / (d (1 + s (n - 1)))` messages a second, which is Amdahl's law.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

MEASURED = Path(__file__).with_name("measured.json")
NAMES = {"activemq": "ActiveMQ", "artemis": "Artemis", "rabbitmq": "RabbitMQ"}
CORES = (2, 8, 32)
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
    """Least squares without negative contention."""
    slope, alone = np.polyfit(np.array(processes, float) - 1, np.array(used_us), 1)
    if slope < 0:
        slope, alone = 0.0, np.mean(used_us)
    return Amdahl(float(alone), float(slope / alone))


@dataclass(frozen=True)
class MeasuredKind:
    """What was measured with one kind of broker."""

    name: str
    document: Mapping[str, Any]
    batch_wait_s: float
    """For each batch of a consumer, beyond processor time: mostly the flush of its log."""

    @cached_property
    def cells(self) -> Sequence[Any]:
        return [SimpleNamespace(**cell) for cell in self.document["cells"]]

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


@dataclass(frozen=True)
class Measured:
    """All of measured.json."""

    document: Mapping[str, Any]

    @property
    def is_preliminary(self) -> bool:
        """Whether the run was short, or other programs used the machine."""
        return bool(self.document["quick"]) or self.document["load_before"] > QUIET_LOAD

    def kinds(self) -> Sequence[MeasuredKind]:
        wait_s = self.document["batch_wait_s"]
        return [MeasuredKind(*item, wait_s) for item in self.document["brokers"].items()]


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
