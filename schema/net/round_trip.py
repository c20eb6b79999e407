"""The result of `check --connect` for one broker: a check message sent there and back."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple, Optional

from sam_pipeline.schema.net.broker_url import Broker


class RoundTrip(NamedTuple):
    """The outcome of a check message: `proven` says how far it got, `problem` why it failed."""

    broker: str
    address: str
    destination: str
    proven: Optional[str]
    seconds: float
    problem: Optional[str] = None


def timed(
    broker: Broker,
    address: str,
    destination: str,
    prove: Callable[[], str],
    failure: type[Exception],
) -> RoundTrip:
    """Run one check; the text of a `failure` that it raises is its problem."""
    started = time.monotonic()
    proven, problem = None, None
    try:
        proven = prove()
    except failure as error:
        problem = str(error)
    seconds = round(time.monotonic() - started, 3)
    return RoundTrip(str(broker), address, destination, proven, seconds, problem)
