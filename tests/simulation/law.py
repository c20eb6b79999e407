"""The law of rates: from processor time per message to what a machine of n cores gets to.

A component that needs `d` of processor time for a message, when one process is at work, needs
`d (1 + s (n - 1))` when n are: they wait for the same locks and caches. On n cores it gets to
`n / (d (1 + s (n - 1)))` messages a second, which is Amdahl's law; for large n the rate tends to
`1 / (d s)`. The rates of the whole chain on one machine follow the universal scalability law,
`x n / (1 + a (n - 1) + b n (n - 1))` for n consumer processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

COMPONENTS = ("consumer", "broker", "PostgreSQL")
CORES = (2, 4, 8, 16, 32)


class Drained(Protocol):
    """A measured cell: rates in messages/s, processor time in µs for one message."""

    @property
    def brokers(self) -> int: ...
    @property
    def consumers(self) -> int: ...
    @property
    def rate(self) -> float: ...
    @property
    def consumer_us(self) -> float: ...
    @property
    def broker_us(self) -> float: ...
    @property
    def postgresql_us(self) -> float: ...
    @property
    def publish_us(self) -> float: ...


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

    @property
    def limit(self) -> float:
        """The rate that no number of cores exceeds."""
        return 1e6 / (self.alone_us * self.contention) if self.contention else float("inf")

    def cores(self, rate: float) -> float:
        """How many cores this rate takes; infinite if none suffice."""
        left = 1e6 - rate * self.alone_us * self.contention
        return rate * self.alone_us * (1 - self.contention) / left if left > 0 else float("inf")


@dataclass(frozen=True)
class Usl:
    """The universal scalability law."""

    alone: float
    contention: float
    coherency: float

    def rate(self, processes: float) -> float:
        others = processes - 1
        return (
            self.alone
            * processes
            / (1 + self.contention * others + self.coherency * processes * others)
        )


@dataclass(frozen=True)
class Law:
    """What the cells of one kind of broker say."""

    consumer: Amdahl
    deliver: Amdahl
    """Of the broker, for sending a message to a consumer."""
    publish_us: float
    """Of the broker, for storing and confirming a message."""
    database: Amdahl
    chain: Usl
    """Of all on the measuring machine, by consumer processes."""

    @property
    def broker(self) -> Amdahl:
        """For storing a message and sending it to one consumer."""
        both = self.deliver.alone_us + self.publish_us
        return Amdahl(both, self.deliver.contention * self.deliver.alone_us / both)

    def components(self) -> dict[str, Amdahl]:
        return dict(zip(COMPONENTS, (self.consumer, self.broker, self.database), strict=True))

    def on_one_machine(self, cores: int) -> tuple[float, str]:
        """The rate of all components on one machine, and which of them uses most of it."""
        used = {name: part.us(cores / 2) for name, part in self.components().items()}
        return cores * 1e6 / sum(used.values()), max(used, key=lambda name: used[name])


def fitted(cells: Sequence[Drained]) -> Law:
    """Least squares over the cells of one kind of broker."""
    consumers = [cell.consumers for cell in cells]
    return Law(
        consumer=fitted_amdahl(consumers, [cell.consumer_us for cell in cells]),
        deliver=fitted_amdahl(consumers, [cell.broker_us for cell in cells]),
        publish_us=float(np.median([cell.publish_us for cell in cells])),
        database=fitted_amdahl(consumers, [cell.postgresql_us for cell in cells]),
        chain=fitted_usl(consumers, [cell.rate for cell in cells]),
    )


def fitted_amdahl(processes: Sequence[int], used_us: Sequence[float]) -> Amdahl:
    others = np.array(processes, float) - 1
    alone, slope = non_negative(np.column_stack([np.ones_like(others), others]), np.array(used_us))
    return Amdahl(alone, slope / alone)


def fitted_usl(processes: Sequence[int], rates: Sequence[float]) -> Usl:
    """Least squares of `n / x`, which is linear in the three figures; its errors are relative."""
    count, rate = np.array(processes, float), np.array(rates)
    terms = np.column_stack([np.ones_like(count), count - 1, count * (count - 1)])
    per_rate = count / rate
    base, contention, coherency = non_negative(terms / per_rate[:, None], np.ones_like(rate))
    return Usl(1 / base, contention / base, coherency / base)


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


def print_law(law: Law, write: Callable[[str], Any] = print) -> None:
    write("  law: processor µs alone, contention, messages/s at most")
    parts = {**law.components(), "broker, delivering": law.deliver}
    for name, part in parts.items():
        limit = f"{part.limit:12.0f}" if part.limit < float("inf") else "    no limit"
        write(f"    {name:20}{part.alone_us:8.1f}{part.contention:8.3f}{limit}")
    write(
        f"    consumer processes on this machine: {law.chain.alone:.0f}/s alone, contention"
        f" {law.chain.contention:.3f}, coherency {law.chain.coherency:.3f}"
    )
    heads = "".join(f"{name:>12}" for name in COMPONENTS)
    write(f"  messages/s by cores{heads}  (a machine each)   all on one machine")
    for cores in CORES:
        own = "".join(f"{part.rate(cores):12.0f}" for part in law.components().values())
        rate, most = law.on_one_machine(cores)
        write(f"    {cores:15}{own}{rate:33.0f}, most: {most}")
