"""Which address is tried next, for publishing as for draining."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable, NamedTuple, TypeVar

from sam_pipeline.publisher.brokers.address import BrokerAddress, addresses_of
from sam_pipeline.publisher.delivery.memory import Memory
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.log import lazy_logger

if TYPE_CHECKING:
    from sam_pipeline.publisher.settings.config import PublisherConfig
    from sam_pipeline.schema.net.broker_url import Broker
    from sam_pipeline.schema.net.deadline import Deadline

T = TypeVar("T")

logger = lazy_logger(__name__)


class BrokerCandidate(NamedTuple):
    """An address to try; `sharing` candidates, this one included, share the time that is left."""

    address: BrokerAddress
    sharing: int


class Route:
    """The addresses of the configured brokers, in the order in which they are tried.

    1. First the address that worked last. Its name is not looked up for an hour.
    2. Then the URLs as they are listed, or shuffled, and with them the addresses of each name. A
       name is looked up when its turn comes; an address that has two names is asked once.
    3. An address that failed rests, and so does a name that was not resolved. While it rests it
       is left out, because the spool can take the message.
    4. What was left out is asked last, where the message would be refused otherwise: with
       `ask_all` (no spool, a required broker, `spool drain`), and by `left_out()` when the spool
       failed.

    On leaving the block, what the call learned of the brokers is remembered.
    """

    def __init__(
        self,
        config: PublisherConfig,
        memory: Memory,
        patience: Callable[[], Deadline],
        *,
        ask_all: bool,
    ) -> None:
        self._config = config
        self._memory = memory
        self._patience = patience
        self._ask_all = ask_all
        self._brokers = _in_order(memory.brokers, config.order)
        self._looked_up: dict[Broker, list[BrokerAddress]] = {}
        self._seen: set[tuple[str, str, int, str]] = set()
        self._left_out: list[BrokerAddress] = []
        self._failures: list[BrokerUnavailable] = []

    def __enter__(self) -> Route:
        self._memory.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.save()

    @property
    def failures(self) -> list[BrokerUnavailable]:
        """One for each address that failed, or was left out."""
        return [*self._failures, *map(self._why_left_out, self._left_out)]

    def candidates(self) -> Iterator[BrokerCandidate]:
        """All of them, or all that do not rest."""
        waiting = list(self._brokers)
        last = self._memory.last_worked()
        if last is not None:  # unless its name leads elsewhere by now
            address, believed = last
            known = believed and address.ip  # a spool has none; nor had what a proxy led to
            if known or address in self._addresses(BrokerAddress(address.broker), len(waiting)):
                self._seen.add(address.identity)
                yield BrokerCandidate(address, len(waiting))
                if address.ip in ("", address.broker.host):
                    waiting.remove(address.broker)  # it has no other address
        while waiting:
            name = BrokerAddress(waiting.pop(0))
            left_out = name.broker not in self._looked_up and self._rests(name)
            addresses = [] if left_out else self._addresses(name, len(waiting) + 1)
            awake = [address for address in self._unseen(addresses) if not self._rests(address)]
            last_resorts = len(self._left_out) if self._ask_all else 0
            yield from _sharing(awake, len(waiting) + last_resorts)
        if self._ask_all:
            yield from self.left_out()
        for address in self._left_out:
            logger.warning("broker left out: %s", self._why_left_out(address))

    def left_out(self) -> Iterator[BrokerCandidate]:
        """Those that `candidates` did not give."""
        while self._left_out:
            addresses = self._addresses(self._left_out.pop(0))
            yield from _sharing(self._unseen(addresses), len(self._left_out))

    def worked(self, address: BrokerAddress) -> None:
        self._memory.worked(address)

    def failed(self, address: BrokerAddress, failure: BrokerUnavailable) -> None:
        logger.warning("broker unavailable: %s", failure)
        self._failures.append(failure)
        self._memory.failed(address, failure.reason)

    def no_time_for(self, address: BrokerAddress) -> None:
        """It was not asked, which is no reason to let it rest."""
        failure = BrokerUnavailable(address, "the time was up before it was asked")
        logger.warning("broker not asked: %s", failure)
        self._failures.append(failure)

    def _addresses(self, address: BrokerAddress, parts: int = 1) -> list[BrokerAddress]:
        """The addresses of a name, looked up once; an address stands for itself."""
        broker = address.broker
        if address.ip:
            return [address]
        if broker not in self._looked_up:
            addresses: list[BrokerAddress] = []
            deadline = self._patience()
            if deadline.expired:
                self.no_time_for(address)
            else:
                try:
                    via_proxy = self._config.proxy_for(broker) is not None
                    addresses = addresses_of(broker, deadline.share(parts), via_proxy)
                except BrokerUnavailable as failure:
                    self.failed(address, failure)
            self._looked_up[broker] = _in_order(addresses, self._config.order)
        return self._looked_up[broker]

    def _unseen(self, addresses: Sequence[BrokerAddress]) -> list[BrokerAddress]:
        unseen = [address for address in addresses if address.identity not in self._seen]
        self._seen.update(address.identity for address in unseen)
        return unseen

    def _rests(self, address: BrokerAddress) -> bool:
        """Whether it rests; then it is left out for now."""
        rests = self._memory.rest_of(address) is not None
        if rests:
            self._seen.discard(address.identity)  # it may still have its turn
            self._left_out.append(address)
        return rests

    def _why_left_out(self, address: BrokerAddress) -> BrokerUnavailable:
        fact = self._memory.rest_of(address)
        if fact is None:
            return BrokerUnavailable(address, "it rested after a failure")
        times = "once" if fact.failures == 1 else f"{fact.failures} times in a row"
        return BrokerUnavailable(address, f"it rests, for it failed {times}: {fact.reason}")


def _sharing(addresses: Sequence[BrokerAddress], later: int) -> Iterator[BrokerCandidate]:
    for position, address in enumerate(addresses):
        yield BrokerCandidate(address, len(addresses) - position + later)


def _in_order(items: Sequence[T], order: str) -> list[T]:
    if order == "listed" or len(items) < 2:
        return list(items)
    return sorted(items, key=lambda _: os.urandom(8))  # `import random` takes longer
