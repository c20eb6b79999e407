"""The order in which brokers are tried, and what short-lived processes remember of them.

The memory is one small JSON file in the state directory, for all publishers of one user on one
host:

    {"stomp://msg.example.org:61613 192.0.2.7": {"worked_at": 1763700000.0},
     "stomp://msg2.example.org:61613 192.0.2.8":
         {"failures": 3, "rests_until": 1763700020.0, "reason": "connection refused",
          "credentials": "5be1c0d2a94e77f01c20c3b6"}}

It only saves time. If it is lost, damaged or stale, that costs a look-up and a failed connection;
so it is never fsynced or locked, and the last of two writers wins. Times are those of the system
clock, which other processes share; impossible ones are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import time
from typing import Any, Callable, NamedTuple, TypeVar

from sam_pipeline.publisher.brokers.tokens import token_for
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.net.broker import Broker, Proxy, Target
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.replacing import replacing

FILE = "brokers.json"
MIN_REST_S = 5.0
MAX_REST_S = 300.0
TRUSTED_S = 3600.0
"""An address is used for this time without a new look-up of its name."""

FORGOTTEN_S = 7 * 86400.0
MAX_FACTS = 200
MAX_BYTES = 256 * 1024
MAX_REASON = 200
SALT_BYTES = 8
DIGEST_BYTES = 4
"""Enough to notice a change, and too few to find out a secret."""

T = TypeVar("T")

logger = lazy_logger(__name__)


class BrokerCandidate(NamedTuple):
    """An address to try; it shares the remaining time with `sharing - 1` others."""

    target: Target
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

    def __init__(self, memory: Memory, order: str, deadline: Deadline, *, ask_all: bool) -> None:
        self.deadline = deadline
        """The end of the time for looking up names."""
        self._memory = memory
        self._order = order
        self._ask_all = ask_all
        self._looked_up: dict[Broker, list[Target]] = {}
        self._seen: set[tuple[str, str, int, str]] = set()
        self._left_out: list[Target] = []
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
        waiting = _in_order(self._memory.targets, self._order)
        last = self._memory.last_worked()
        if last is not None:  # skipped if its name has other addresses by now
            target, trusted = last
            named = target._replace(ip="")
            known = trusted and target.ip  # a spool has no IP, nor a broker behind a proxy
            if known or target in self._addresses(named, len(waiting)):
                self._seen.add(_identity(target))
                yield BrokerCandidate(target, len(waiting))
                if is_literal(target):
                    waiting.remove(named)  # has no other address
        while waiting:
            named = waiting.pop(0)
            left_out = named.broker not in self._looked_up and self._rests(named)
            addresses = [] if left_out else self._addresses(named, len(waiting) + 1)
            awake = [target for target in self._unseen(addresses) if not self._rests(target)]
            last_resorts = len(self._left_out) if self._ask_all else 0
            yield from _sharing(awake, len(waiting) + last_resorts)
        if self._ask_all:
            yield from self.left_out()
        for target in self._left_out:
            fields = {"broker": str(target)}
            logger.warning("broker left out: %s", self._why_left_out(target), extra=fields)

    def left_out(self) -> Iterator[BrokerCandidate]:
        """The addresses that `candidates` left out."""
        while self._left_out:
            addresses = self._addresses(self._left_out.pop(0))
            yield from _sharing(self._unseen(addresses), len(self._left_out))

    def worked(self, target: Target) -> None:
        self._memory.worked(target)

    def failed(self, target: Target, failure: BrokerUnavailable) -> None:
        logger.warning("broker unavailable: %s", failure, extra={"broker": failure.broker})
        self._failures.append(failure)
        self._memory.failed(target, failure.reason)

    def no_time_for(self, target: Target) -> None:
        """Record that the address was not tried; it does not rest for that."""
        failure = BrokerUnavailable(target, "not tried: no time left")
        logger.warning("broker skipped: %s", failure, extra={"broker": failure.broker})
        self._failures.append(failure)

    def _addresses(self, target: Target, parts: int = 1) -> list[Target]:
        """The addresses of a name, looked up once; of an address or a spool, itself."""
        broker = target.broker
        if target.ip or not broker.host:
            return [target]
        if broker not in self._looked_up:
            addresses: list[Target] = []
            if self.deadline.expired:
                self.no_time_for(target)
            else:
                try:
                    addresses = addresses_of(target, self.deadline.share(parts))
                except BrokerUnavailable as failure:
                    self.failed(target, failure)
            self._looked_up[broker] = _in_order(addresses, self._order)
        return self._looked_up[broker]

    def _unseen(self, targets: Sequence[Target]) -> list[Target]:
        unseen = [target for target in targets if _identity(target) not in self._seen]
        self._seen.update(map(_identity, unseen))
        return unseen

    def _rests(self, target: Target) -> bool:
        """Whether the address rests; then it is added to those left out."""
        rests = self._memory.rest_of(target) is not None
        if rests:
            self._seen.discard(_identity(target))  # it may still be tried later
            self._left_out.append(target)
        return rests

    def _why_left_out(self, target: Target) -> BrokerUnavailable:
        fact = self._memory.rest_of(target)
        if fact is None:
            return BrokerUnavailable(target, "was left out after a failure")
        times = "once" if fact.failures == 1 else f"{fact.failures} times in a row"
        return BrokerUnavailable(target, f"left out, because it failed {times}: {fact.reason}")


class Fact(NamedTuple):
    """What this host remembers of one address; all zero for a new one."""

    worked_at: float = 0.0
    failures: int = 0
    """The failures in a row, up to now."""
    rests_until: float = 0.0
    reason: str = ""
    """The reason of the last failure."""
    credentials: str = ""
    """Salt and digest of the credentials that were used then."""

    @property
    def newest(self) -> float:
        return max(self.worked_at, self.rests_until)


NOTHING = Fact()


def credentials_of(target: Target) -> str:
    """Login, token, proxy and TLS files of a broker as one text, which is secret: compare it only.

    A TLS file counts by its modification time and size, not by its contents.
    """
    facts: list[object] = [target.insecure, target.vhost]
    for read in (target.login, lambda: token_for(target), target.find_proxy):
        try:
            found = read()
        except ConfigError as problem:
            found = str(problem)
        facts.append(tuple(found) if isinstance(found, Proxy) else found)
    for path in target.tls_files:
        state = None
        with suppress(OSError):
            status = os.stat(path) if path else None
            state = status and (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        facts.append((path, state))
    return repr(facts)


class Memory:
    """Facts about brokers, kept in the directory; without one, as long as this object lives."""

    def __init__(
        self,
        directory: Path | None,
        targets: Sequence[Target],
        clock: Callable[[], float] = time,
        credentials: Callable[[Target], str] = credentials_of,
    ) -> None:
        """A change of a broker's `credentials` ends its rest; they are secret, and not stored."""
        self._path = directory / FILE if directory else None
        self._facts: dict[str, Fact] = {}
        self.targets = targets
        self._clock = clock
        self._credentials = credentials
        self._changed = False

    def refresh(self) -> None:
        """Read what other processes have written since."""
        if self._path is None:
            return
        self._facts = {}
        try:
            # A planted symbolic link is not followed, and a planted pipe does not block us.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._path, flags)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    return  # an address chosen by another user would get our password
                stored = json.loads(file.read(MAX_BYTES))
                self._facts = {key: _parsed(values) for key, values in stored.items()}
        except OSError:  # usually: it does not exist yet
            pass
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            logger.debug("%s is damaged and ignored: %s", self._path, error)

    def last_worked(self) -> tuple[Target, bool] | None:
        """The address that worked last, and whether it may be used without a look-up."""
        by_url = {_key(target.broker, ""): target for target in self.targets}
        worked = []
        for key, fact in self._facts.items():
            name, blank, ip = key.rpartition(" ")
            target = by_url.get(name + blank)
            if target and 0 < fact.worked_at <= self._clock():
                worked.append((fact.worked_at, target._replace(ip=ip)))
        if not worked:
            return None
        worked_at, target = max(worked, key=lambda pair: pair[0])
        return target, is_literal(target) or self._clock() - worked_at < TRUSTED_S

    def failing(self) -> tuple[int, str]:
        """The failures in a row of the broker with the fewest, and its reason; 0 if one works."""
        urls = {str(target.broker) for target in self.targets}
        facts = [fact for key, fact in self._facts.items() if key.rpartition(" ")[0] in urls]
        if not facts or any(not fact.failures for fact in facts):
            return 0, ""
        fewest = min(facts, key=lambda fact: fact.failures)
        return fewest.failures, fewest.reason

    def rest_of(self, target: Target) -> Fact | None:
        """The failures of an address that rests now; None if it does not."""
        fact = self._facts.get(_key(target.broker, target.ip), NOTHING)
        now = self._clock()
        # A rest that is further ahead than it can be: the clock was set back since.
        if not now < fact.rests_until <= now + MAX_REST_S:
            return None
        salt = fact.credentials[: 2 * SALT_BYTES]
        same = fact.credentials == _digest(self._credentials(target), salt)
        return fact if same else None

    def worked(self, target: Target) -> None:
        """Forget the failures of the address, and try it first from now on."""
        key, name = _key(target.broker, target.ip), _key(target.broker, "")
        failed = any(self._facts.get(known, NOTHING).failures for known in (key, name))
        only_choice = len(self.targets) == 1 and is_literal(target)
        if not failed and (only_choice or self.last_worked() == (target, True)):
            return
        self._facts.pop(name, None)
        self._facts[key] = Fact(worked_at=self._clock())
        self._changed = True

    def failed(self, target: Target, reason: str) -> None:
        """Let the address rest: 5 s after the first failure, then twice as long, up to 5 min."""
        failures = self._facts.get(_key(target.broker, target.ip), NOTHING).failures + 1
        rest_s = min(MAX_REST_S, MIN_REST_S * 2 ** min(failures - 1, 20))
        # A random part, at least half, so that a thousand hosts do not return at the same moment.
        rest_s *= 0.5 + int.from_bytes(os.urandom(2), "big") / 0x1FFFE
        digest = _digest(self._credentials(target), os.urandom(SALT_BYTES).hex())
        fact = Fact(0.0, failures, self._clock() + rest_s, reason[:MAX_REASON], digest)
        self._facts[_key(target.broker, target.ip)] = fact
        self._changed = True

    def save(self) -> None:
        """Write the facts if they changed; if that fails, the next process learns them itself."""
        if not self._changed or self._path is None:
            return
        self._changed = False
        # The newest facts, without those that are too old or in the future.
        now = self._clock()
        facts = self._facts.items()
        fresh = [pair for pair in facts if -MAX_REST_S <= now - pair[1].newest < FORGOTTEN_S]
        document = {
            key: {name: value for name, value in fact._asdict().items() if value}
            for key, fact in sorted(fresh, key=lambda pair: pair[1].newest)[-MAX_FACTS:]
        }
        try:
            with replacing(self._path, 0o600, directory_mode=0o700) as file:
                file.write(json.dumps(document, indent=1).encode() + b"\n")
        except OSError as error:
            logger.debug("could not save the memory of brokers: %s", error)


@lru_cache(maxsize=1000)
def _key(broker: Broker, ip: str) -> str:
    """The key of an address; without an IP, as if its name did not resolve, that of the broker."""
    return f"{broker} {ip}"


def _digest(credentials: str, salt: str) -> str:
    from hashlib import blake2s  # 2.8 ms, and needed for brokers that failed only

    key = salt.encode()
    return salt + blake2s(credentials.encode(), digest_size=DIGEST_BYTES, key=key).hexdigest()


def is_literal(target: Target) -> bool:
    """Whether the broker's URL contains the address itself instead of a name."""
    return target.ip in ("", target.broker.host)


def _parsed(values: dict[str, Any]) -> Fact:
    known = NOTHING._asdict().items()
    fact = Fact(**{name: type(default)(values.get(name, default)) for name, default in known})
    return fact if all(0 <= number < 1e12 for number in fact[:3]) else NOTHING


def addresses_of(target: Target, deadline: Deadline) -> list[Target]:
    """All addresses of a broker; a single one without an IP if a proxy resolves the name.

    Raises:
        BrokerUnavailable: the name does not resolve, or not in time.
    """
    try:
        if not target.broker.host or target.find_proxy() is not None:
            return [target]
        from sam_pipeline.schema.net.channel import Resolver  # 4 ms; spool:// needs no socket

        ips = Resolver().ips_of(target.broker.host, target.broker.port, deadline)
        return [target._replace(ip=ip) for ip in ips]
    except (OSError, ConfigError) as error:
        raise BrokerUnavailable(target, str(error)) from error


def _identity(target: Target) -> tuple[str, str, int, str]:
    """Equal for two names of the same broker."""
    broker = target.broker
    return broker.scheme, target.ip or broker.host, broker.port, broker.path


def _sharing(targets: Sequence[Target], later: int) -> Iterator[BrokerCandidate]:
    for position, target in enumerate(targets):
        yield BrokerCandidate(target, len(targets) - position + later)


def _in_order(items: Sequence[T], order: str) -> list[T]:
    if order == "listed" or len(items) < 2:
        return list(items)
    return sorted(items, key=lambda _: os.urandom(8))  # `import random` is slow
