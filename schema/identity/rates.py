"""Rates of senders: a token bucket for each, with what it may send in one minute."""

from __future__ import annotations

from sam_pipeline.schema.identity.policy import PublisherRule

MINUTE_S = 60.0
MAX_BUCKETS = 10_000
"""Of clients, which may have any number of addresses; full buckets are then forgotten."""


class RateLimits:
    """How long to take nothing more from a sender."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """How much a sender may still send, and when that was true."""

    def spend(self, publisher: PublisherRule, records: int, now_s: float) -> float:
        """The publisher has sent records; returns for how many seconds to read no more of them.

        A bucket that is overdrawn is empty for a minute at most, however many records came at once.
        """
        limit = publisher.records_per_minute
        if not limit:
            return 0.0
        left = max(self._left(publisher.name, limit, now_s) - records, -limit)
        self._buckets[publisher.name] = (left, now_s)
        return max(-left, 0.0) / limit * MINUTE_S

    def admit(self, client: str, limit: int, now_s: float) -> float:
        """A client makes a request, of which it has a `limit` per minute, or none if that is 0.

        Returns 0, or after how many seconds it may make the request, which is not counted then.
        """
        if not limit:
            return 0.0
        left = self._left(client, limit, now_s)
        if left < 1:
            return (1 - left) / limit * MINUTE_S
        self._buckets[client] = (left - 1, now_s)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets = {
                name: bucket
                for name, bucket in self._buckets.items()
                if self._left(name, limit, now_s) < limit
            }
        return 0.0

    def _left(self, name: str, limit: int, now_s: float) -> float:
        left, since_s = self._buckets.get(name, (float(limit), now_s))
        return min(left + limit * (now_s - since_s) / MINUTE_S, limit)
