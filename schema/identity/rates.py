"""Rates of publishers: a token bucket for each, with the records of one minute."""

from __future__ import annotations

from sam_pipeline.schema.identity.policy import PublisherRule

MINUTE_S = 60.0


class RateLimits:
    """How long to leave the messages of a publisher with their broker."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """The records that a publisher may still send, and when that was true."""

    def spend(self, publisher: PublisherRule, records: int, now_s: float) -> float:
        """The publisher has sent records; returns for how many seconds to read no more of them.

        A bucket that is overdrawn is empty for a minute at most, however many records came at once.
        """
        limit = publisher.records_per_minute
        if not limit:
            return 0.0
        left, since_s = self._buckets.get(publisher.name, (float(limit), now_s))
        refilled = min(left + limit * (now_s - since_s) / MINUTE_S, limit)
        left = max(refilled - records, -limit)
        self._buckets[publisher.name] = (left, now_s)
        return max(-left, 0.0) / limit * MINUTE_S
