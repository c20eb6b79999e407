"""The second law: one session for each result, or a spool that one process drains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.simulation.costs import MeasuredKind
from tests.simulation.plan import BUSY

ONE_SHOT, SPOOLED = "a session each", "spooled, one drain"
SMALL_SHARE = 0.1
"""Up to this share of a broker's capacity, sessions need no thought."""


class OneShot(NamedTuple):
    """Of one kind of broker."""

    broker_us: Mapping[str, float]
    """Processor time of the broker for one result, by the way it is sent."""
    limit: float
    """Sessions a second that the broker accepted, sharing the machine with its clients."""

    def most(self, cores: int) -> float:
        """Sessions a second that a broker with these cores is planned for."""
        return BUSY * cores * 1e6 / self.broker_us[ONE_SHOT]

    def from_then_on(self, cores: int) -> float:
        """Results a second from which on spools are worth it: sessions take more than their
        share."""
        return SMALL_SHARE * cores * 1e6 / self.broker_us[ONE_SHOT]


def one_shot_costs(kind: MeasuredKind) -> OneShot:
    storm = kind.document["storm"]
    fastest = max(storm["sessions"], key=lambda run: run["rate"])
    return OneShot(
        {ONE_SHOT: fastest["broker_us"], SPOOLED: storm["drain"]["broker_us"]}, fastest["rate"]
    )
