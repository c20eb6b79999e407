"""The memory of short-lived processes: which address worked last, and which ones rest.

One small JSON file in the state directory, for all publishers of one user on one host:

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
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any, Callable, NamedTuple

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.net.broker_url import Broker
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

logger = lazy_logger(__name__)


class Fact(NamedTuple):
    """What is known of one address; all zero if nothing is known."""

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


class Memory:
    """Facts about brokers, kept in the directory; without one, as long as this object lives."""

    def __init__(
        self,
        directory: Path | None,
        brokers: Sequence[Broker],
        clock: Callable[[], float] = time,
        credentials: Callable[[Broker], str] = lambda _: "",
    ) -> None:
        """A change of a broker's `credentials` ends its rest; they are secret, and not stored."""
        self._path = directory / FILE if directory else None
        self._facts: dict[str, Fact] = {}
        self.brokers = brokers
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

    def last_worked(self) -> tuple[BrokerAddress, bool] | None:
        """The address that worked last, and whether it may be used without a look-up."""
        by_url = {str(broker): broker for broker in self.brokers}
        worked = []
        for key, fact in self._facts.items():
            url, _, ip = key.rpartition(" ")
            if url in by_url and 0 < fact.worked_at <= self._clock():
                worked.append((fact.worked_at, BrokerAddress(by_url[url], ip)))
        if not worked:
            return None
        worked_at, address = max(worked, key=lambda pair: pair[0])
        return address, is_literal(address) or self._clock() - worked_at < TRUSTED_S

    def failing(self) -> tuple[int, str]:
        """The failures in a row of the broker with the fewest, and its reason; 0 if one works."""
        urls = set(map(str, self.brokers))
        facts = [fact for key, fact in self._facts.items() if key.rpartition(" ")[0] in urls]
        if not facts or any(not fact.failures for fact in facts):
            return 0, ""
        fewest = min(facts, key=lambda fact: fact.failures)
        return fewest.failures, fewest.reason

    def rest_of(self, address: BrokerAddress) -> Fact | None:
        """The failures of an address that rests now; None if it does not."""
        fact = self._facts.get(_key(address), NOTHING)
        now = self._clock()
        # A rest that is further ahead than it can be: the clock was set back since.
        if not now < fact.rests_until <= now + MAX_REST_S:
            return None
        salt = fact.credentials[: 2 * SALT_BYTES]
        return (
            fact if fact.credentials == _digest(self._credentials(address.broker), salt) else None
        )

    def worked(self, address: BrokerAddress) -> None:
        """Forget the failures of the address, and try it first from now on."""
        key, name = _key(address), _key(BrokerAddress(address.broker))
        failed = any(self._facts.get(known, NOTHING).failures for known in (key, name))
        only_choice = len(self.brokers) == 1 and is_literal(address)
        if not failed and (only_choice or self.last_worked() == (address, True)):
            return
        self._facts.pop(name, None)
        self._facts[key] = Fact(worked_at=self._clock())
        self._changed = True

    def failed(self, address: BrokerAddress, reason: str) -> None:
        """Let the address rest: 5 s after the first failure, then twice as long, up to 5 min."""
        failures = self._facts.get(_key(address), NOTHING).failures + 1
        rest_s = min(MAX_REST_S, MIN_REST_S * 2 ** min(failures - 1, 20))
        # A random part, at least half, so that a thousand hosts do not return at the same moment.
        rest_s *= 0.5 + int.from_bytes(os.urandom(2), "big") / 0x1FFFE
        digest = _digest(self._credentials(address.broker), os.urandom(SALT_BYTES).hex())
        fact = Fact(0.0, failures, self._clock() + rest_s, reason[:MAX_REASON], digest)
        self._facts[_key(address)] = fact
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


def _key(address: BrokerAddress) -> str:
    """The key of an address; without an IP, as if its name did not resolve, that of the broker."""
    return f"{address.broker} {address.ip}"


def _digest(credentials: str, salt: str) -> str:
    from hashlib import blake2s  # slow to import, and needed for brokers that failed only

    key = salt.encode()
    return salt + blake2s(credentials.encode(), digest_size=DIGEST_BYTES, key=key).hexdigest()


def is_literal(address: BrokerAddress) -> bool:
    """Whether the broker's URL contains the address itself instead of a name."""
    return address.ip in ("", address.broker.host)


def _parsed(values: dict[str, Any]) -> Fact:
    fact = Fact(
        float(values.get("worked_at", 0)),
        int(values.get("failures", 0)),
        float(values.get("rests_until", 0)),
        str(values.get("reason", "")),
        str(values.get("credentials", "")),
    )
    return fact if all(0 <= number < 1e12 for number in fact[:3]) else NOTHING
