"""Senders whose identity is not accepted yet: what they may use, and the log of those refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from sam_pipeline.consumer.sources.door.answers import TOO_MANY, HttpProblem, try_again
from sam_pipeline.schema.program.wording import one_line, plural

MAX_BODY_BYTES = 64 * 1024
"""The limit on a body whose sender is not known yet; one of these is never inflated."""
MAX_BYTES = 1024 * 1024
"""The limit on all such bodies together."""
SHARE_OF_ADDRESS = 0.8
"""Of `max_connections`, for the strangers of one address: many nodes may be behind it."""
LOGGED = 5
"""The limit on refusals that are logged one by one in EVERY_S; then only their number is."""
EVERY_S = 60.0
LONGEST_REFUSAL = 200

logger = logging.getLogger(__name__)


class Connection(Protocol):
    """A connection that can be ended."""

    def dismiss(self) -> None: ...


class Strangers:
    """The strangers at one door. Beyond a limit the oldest one goes, in favour of a newcomer."""

    def __init__(
        self, door: str, max_connections: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.reading_bytes = 0
        """The size of the bodies that are being read."""
        self._door = door
        self._limit_of_address = max(int(max_connections * SHARE_OF_ADDRESS), 1)
        self._addresses: dict[Connection, str] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        """Both in the order of arrival."""
        self._clock = clock
        self._period_began = -EVERY_S
        self._refusals = 0

    def add(self, connection: Connection, address: str) -> None:
        """A connection was accepted."""
        neighbours = self._by_address.get(address, {})
        if len(neighbours) >= self._limit_of_address:
            self._dismiss(next(iter(neighbours)))
        self._addresses[connection] = address
        self._by_address.setdefault(address, {})[connection] = None

    def dismiss_oldest(self) -> bool:
        """Make room for another connection; False without a stranger."""
        if self._addresses:
            self._dismiss(next(iter(self._addresses)))
            return True
        return False

    def remove(self, connection: Connection) -> None:
        """The sender is known now, or the connection has ended."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            del self._by_address[address][connection]
            if not self._by_address[address]:
                del self._by_address[address]

    def reserve(self, count: int) -> None:
        """Count bytes of a body as being read; raises HttpProblem if there are too many."""
        self.reading_bytes += count
        if self.reading_bytes > MAX_BYTES:
            raise try_again(TOO_MANY, "too many senders that are not known yet: try again later")

    def log_refusal(self, address: str, problem: HttpProblem | str) -> None:
        """A request or a TLS handshake was refused."""
        self.look()
        if self._clock() >= self._period_began + EVERY_S:
            self._period_began, self._refusals = self._clock(), 0
        self._refusals += 1
        if self._refusals <= LOGGED:
            text = one_line(str(problem), LONGEST_REFUSAL)
            logger.warning(
                "door %s: refused %s: %s", self._door, address, text, extra={"broker": self._door}
            )

    def look(self) -> None:
        """Log the number of further refusals when the period is over."""
        if self._refusals > LOGGED and self._clock() >= self._period_began + EVERY_S:
            more = plural(self._refusals - LOGGED, "more refusal")
            text = "door %s: %s within %.0f s"
            logger.warning(text, self._door, more, EVERY_S, extra={"broker": self._door})
            self._refusals = 0

    def _dismiss(self, connection: Connection) -> None:
        self.remove(connection)
        connection.dismiss()
