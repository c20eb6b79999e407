"""The result of `check --connect` for one broker: a check message sent there and back."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional

from sam_pipeline.schema.net.broker import Broker


class RoundTrip(NamedTuple):
    """The outcome for an address: how far the message got (`proven`), or the `problem`."""

    broker: str
    address: str
    destination: str
    proven: Optional[str]
    seconds: float
    problem: Optional[str] = None
    anybody_may_publish: bool = False
    """Whether a message of a client without credentials was confirmed."""

    limit: str = ""
    """When the broker gives up on a message that it delivers again and again, if it may."""

    @property
    def notes(self) -> list[str]:
        """Settings of the broker that deserve attention."""
        notes = []
        if self.anybody_may_publish:
            proof = f"a message without credentials to {self.destination} was confirmed"
            notes.append(f"{self.broker}: anybody may publish here: {proof}")
        if self.limit:
            notes.append(f"{self.broker}: {self.limit}")
        return notes


def timed(
    broker: Broker,
    address: str,
    destination: str,
    prove: Callable[[], str],
    failure: type[Exception],
) -> RoundTrip:
    """Run one check; if it raises a `failure`, its message is the problem."""
    started = time.monotonic()
    proven, problem = None, None
    try:
        proven = prove()
    except failure as error:
        problem = str(error)
    seconds = round(time.monotonic() - started, 3)
    return RoundTrip(str(broker), address, destination, proven, seconds, problem)
