"""The order in which addresses are tried, for publishing and for draining."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable, NamedTuple, TypeVar

from sam_pipeline.publisher.brokers.address import BrokerAddress, addresses_of
from sam_pipeline.publisher.delivery.memory import Memory, is_literal
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.log import lazy_logger

if TYPE_CHECKING:
    from sam_pipeline.publisher.settings.config import PublisherConfig
    from sam_pipeline.schema.net.broker_url import Broker
    from sam_pipeline.schema.net.deadline import Deadline

T = TypeVar("T")

logger = lazy_logger(__name__)


class BrokerCandidate(NamedTuple):
    """An address to try; it shares the remaining time with `sharing - 1` others."""

    address: BrokerAddress
    sharing: int


class Route:
    """The addresses of the configured brokers, in the order in which they are tried.

    1. The address that worked last comes first. Its name is not looked up again for an hour.
    2. Then the URLs in order, or shuffled, each with all addresses of its name. A name is looked
       up when it is needed; an address with two names is tried once.
    3. An address that failed, or a name that did not resolve, rests. While it rests it is left
       out, because the spool can take the message.
    4. The ones left out are tried last if the message would be refused otherwise: with `ask_all`
       (no spool, a required broker, `spool drain`), and by `left_out()` after the spool failed.

    At the end of the block, the memory of the brokers is saved.
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
        """One error for each address that failed or was left out."""
        return [*self._failures, *map(self._why_left_out, self._left_out)]

    def candidates(self) -> Iterator[BrokerCandidate]:
        """The addresses to try, without those that rest unless `ask_all` is set."""
        waiting = list(self._brokers)
        last = self._memory.last_worked()
        if last is not None:  # skipped if its name has other addresses by now
            address, trusted = last
            known = trusted and address.ip  # a spool has no IP, nor a broker behind a proxy
            if known or address in self._addresses(BrokerAddress(address.broker), len(waiting)):
                self._seen.add(address.identity)
                yield BrokerCandidate(address, len(waiting))
                if is_literal(address):
                    waiting.remove(address.broker)  # has no other address
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
            fields = {"broker": str(address)}
            logger.warning("broker left out: %s", self._why_left_out(address), extra=fields)

    def left_out(self) -> Iterator[BrokerCandidate]:
        """The addresses that `candidates` left out."""
        while self._left_out:
            addresses = self._addresses(self._left_out.pop(0))
            yield from _sharing(self._unseen(addresses), len(self._left_out))

    def worked(self, address: BrokerAddress) -> None:
        self._memory.worked(address)

    def failed(self, address: BrokerAddress, failure: BrokerUnavailable) -> None:
        logger.warning("broker unavailable: %s", failure, extra={"broker": failure.broker})
        self._failures.append(failure)
        self._memory.failed(address, failure.reason)

    def no_time_for(self, address: BrokerAddress) -> None:
        """Record that the address was not tried; it does not rest for that."""
        failure = BrokerUnavailable(address, "not tried: no time left")
        logger.warning("broker skipped: %s", failure, extra={"broker": failure.broker})
        self._failures.append(failure)

    def _addresses(self, address: BrokerAddress, parts: int = 1) -> list[BrokerAddress]:
        """The addresses of a name, looked up once; of an address, itself."""
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
        """Whether the address rests; then it is added to those left out."""
        rests = self._memory.rest_of(address) is not None
        if rests:
            self._seen.discard(address.identity)  # it may still be tried later
            self._left_out.append(address)
        return rests

    def _why_left_out(self, address: BrokerAddress) -> BrokerUnavailable:
        fact = self._memory.rest_of(address)
        if fact is None:
            return BrokerUnavailable(address, "was left out after a failure")
        times = "once" if fact.failures == 1 else f"{fact.failures} times in a row"
        return BrokerUnavailable(address, f"left out, because it failed {times}: {fact.reason}")


def _sharing(addresses: Sequence[BrokerAddress], later: int) -> Iterator[BrokerCandidate]:
    for position, address in enumerate(addresses):
        yield BrokerCandidate(address, len(addresses) - position + later)


def _in_order(items: Sequence[T], order: str) -> list[T]:
    if order == "listed" or len(items) < 2:
        return list(items)
    return sorted(items, key=lambda _: os.urandom(8))  # `import random` is slow
