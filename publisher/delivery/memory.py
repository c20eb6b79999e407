"""What short-lived processes remember of brokers: the address that worked last, and who rests.

One small JSON file in the state directory, for all publishers of one user on one host:

    {"stomp://msg.example.org:61613 192.0.2.7": {"worked_at": 1763700000.0},
     "stomp://msg2.example.org:61613 192.0.2.8":
         {"failures": 3, "rests_until": 1763700020.0, "reason": "connection refused"}}

It only ever saves time. Lost, damaged or stale, it costs a look-up and a failed connection; so it
is never synced or locked, and of two writers the last one wins. Times are those of the clock on
the wall, which other processes and hosts share: one that can't be right is not believed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any, Callable, NamedTuple

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.net.broker_url import Broker

FILE = "brokers.json"
MIN_REST_S = 5.0
MAX_REST_S = 300.0
BELIEVED_S = 3600.0
"""How long the address of a name is used without looking the name up again."""

FORGOTTEN_S = 7 * 86400.0
MAX_FACTS = 200
MAX_BYTES = 256 * 1024
MAX_REASON = 200

logger = lazy_logger(__name__)


class Fact(NamedTuple):
    """What is known of one address; all zero: nothing."""

    worked_at: float = 0.0
    failures: int = 0
    """In a row, until now."""
    rests_until: float = 0.0
    reason: str = ""
    """Of the last failure."""

    @property
    def newest(self) -> float:
        return max(self.worked_at, self.rests_until)


NOTHING = Fact()


class Memory:
    """Facts about these brokers; without a directory they are forgotten with this object."""

    def __init__(
        self, directory: Path | None, brokers: Sequence[Broker], clock: Callable[[], float] = time
    ) -> None:
        self._path = directory / FILE if directory else None
        self._facts: dict[str, Fact] = {}
        self.brokers = brokers
        self._clock = clock
        self._changed = False

    def refresh(self) -> None:
        """See what other processes learned since."""
        if self._path is None:
            return
        self._facts = {}
        try:
            # A symlink or a pipe that somebody left there can't lead us elsewhere, or hold us up.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._path, flags)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    return  # an address that somebody else chose would get our password
                from json import loads

                stored = loads(file.read(MAX_BYTES))
                self._facts = {key: _fact(values) for key, values in stored.items()}
        except OSError:  # most often: there is none yet
            pass
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            logger.debug("%s is damaged and not believed: %s", self._path, error)

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
        return address, _is_no_name(address) or self._clock() - worked_at < BELIEVED_S

    def rest_of(self, address: BrokerAddress) -> Fact | None:
        """Why the address rests now; None if it does not."""
        fact = self._facts.get(_key(address), NOTHING)
        now = self._clock()
        # Further ahead than any rest can be: the clock was set back since.
        return fact if now < fact.rests_until <= now + MAX_REST_S else None

    def worked(self, address: BrokerAddress) -> None:
        """Forget its failures, and ask it first from now on."""
        key, name = _key(address), _key(BrokerAddress(address.broker))
        failed = any(self._facts.get(known, NOTHING).failures for known in (key, name))
        only_choice = len(self.brokers) == 1 and _is_no_name(address)
        if not failed and (only_choice or self.last_worked() == (address, True)):
            return
        self._facts.pop(name, None)
        self._facts[key] = Fact(worked_at=self._clock())
        self._changed = True

    def failed(self, address: BrokerAddress, reason: str) -> None:
        """Let it rest: 5 s after the first failure, then twice as long each time, up to 5 min."""
        failures = self._facts.get(_key(address), NOTHING).failures + 1
        rest_s = min(MAX_REST_S, MIN_REST_S * 2 ** min(failures - 1, 20))
        # By chance down to half of it, so that a thousand hosts do not come back as one.
        rest_s *= 0.5 + int.from_bytes(os.urandom(2), "big") / 0x1FFFE
        fact = Fact(0.0, failures, self._clock() + rest_s, reason[:MAX_REASON])
        self._facts[_key(address)] = fact
        self._changed = True

    def save(self) -> None:
        """Write what changed; where that is not possible, the next process learns it itself."""
        if not self._changed or self._path is None:
            return
        self._changed = False
        from json import dumps

        from sam_pipeline.schema.program.replacing import replacing

        # The newest facts, without what is old or lies in the future.
        now = self._clock()
        facts = self._facts.items()
        fresh = [pair for pair in facts if -MAX_REST_S <= now - pair[1].newest < FORGOTTEN_S]
        document = {
            key: {name: value for name, value in fact._asdict().items() if value}
            for key, fact in sorted(fresh, key=lambda pair: pair[1].newest)[-MAX_FACTS:]
        }
        try:
            with replacing(self._path, 0o600, directory_mode=0o700) as file:
                file.write(dumps(document, indent=1).encode() + b"\n")
        except OSError as error:
            logger.debug("brokers are not remembered: %s", error)


def _key(address: BrokerAddress) -> str:
    """Without an address, as where its name did not resolve, the broker as a whole is meant."""
    return f"{address.broker} {address.ip}"


def _is_no_name(address: BrokerAddress) -> bool:
    return address.ip in ("", address.broker.host)


def _fact(values: dict[str, Any]) -> Fact:
    fact = Fact(
        float(values.get("worked_at", 0)),
        int(values.get("failures", 0)),
        float(values.get("rests_until", 0)),
        str(values.get("reason", "")),
    )
    return fact if all(0 <= number < 1e12 for number in fact[:3]) else NOTHING
