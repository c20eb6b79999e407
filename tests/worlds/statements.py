"""What several publishers say about a few things, drawn at random, in order of arrival.

Few keys and few values, so that statements often contest each other, repeat each other, or differ
in nothing but their publisher.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.messages.message import Message, new_message
from tests.worlds.records import wlcg_text

PROBES, FEED, FORGER, OTHER_FORGER = "key:probes", "key:feed", "key:forger", "key:other-forger"
HONEST = (PROBES, FEED)
STATEMENTS = 12
"""The most of one world."""

_FIRST = datetime(2026, 11, 1, tzinfo=UTC)
_TIMES = ("2026-11-01T00:00:00Z", "2026-11-02T10:00:00Z", "2026-11-02T10:00:01Z")


@dataclass(frozen=True)
class Statement:
    """A record and its publisher; with another `number` it is said again, in another message.

    A record without a timestamp was said when its message was made, in the order of its id.
    """

    publisher: str
    message_class: str
    record: tuple[tuple[str, str], ...]
    number: int

    def message(self, world: str) -> Message:
        """The statement as a source delivers it, with names of its world's own."""
        record = {key: f"{world}-{value}" if key in _NAMES else value for key, value in self.record}
        body = wlcg_text(record)
        said = f"{self.publisher} {self.message_class} {body} {self.number}"
        digest = sha256(said.encode()).hexdigest()
        made_at = _FIRST + timedelta(seconds=int(digest[-8:], 16) % 100_000)
        message_id = f"{int(made_at.timestamp() * 1_000_000):014x}-{digest[:18]}"
        message = new_message(self.message_class, body, record_count=1, message_id=message_id)
        return with_identity(message, self.publisher)


_NAMES = ("hostName", "siteName", "groupName", "downtimeId")


def random_worlds(
    seed: int,
    count: int,
    publishers: Sequence[str],
    *,
    numbers: Sequence[int] = (0, 0, 1),
    hosts: Sequence[str] = ("h1",),
) -> list[list[Statement]]:
    """Worlds of what these publishers say about these hosts; the same seed gives the same worlds.

    They are short, so that of many worlds one is nearly as short as hypothesis could make it.
    """
    chance = random.Random(seed)

    def statement(classes: Sequence[str]) -> Statement:
        message_class = chance.choice(classes)
        record = {
            key: chance.choice((*values, *hosts) if key == "hostName" else values)
            for key, values in _CLASSES[message_class].items()
        }
        if "" != record.get("validTo", "") < record.get("validFrom", ""):
            del record["validTo"]
        present = tuple((key, value) for key, value in record.items() if value)
        return Statement(chance.choice(publishers), message_class, present, chance.choice(numbers))

    def world() -> list[Statement]:
        classes = chance.sample(list(_CLASSES), chance.randint(1, 3))
        return [statement(classes) for _ in range(chance.randint(1, STATEMENTS))]

    return [world() for _ in range(count)]


_CLASSES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "metricOutput": {
        "hostName": (),
        "serviceFlavour": ("CE",),
        "siteName": ("", "A", "B"),
        "metricStatus": ("OK", "OK", "WARNING", "UNKNOWN", "CRITICAL"),
        "metricName": ("ping",),
        "summaryData": ("", "one", "two"),
        "performanceData": ("", "time=1s"),
        "gatheredAt": ("wn1",),
        "monitoringHost": ("", "", "m1"),
        "timestamp": (*_TIMES, *_TIMES[1:]),
        "voName": ("ops", "ops", "physics"),
        "detailsData": ("", "some", "more"),
    },
    "serviceEndpoint": {
        "siteName": ("A", "B"),
        "hostName": (),
        "serviceFlavour": ("CE",),
        "serviceURI": ("", "h1:8443"),
        "production": ("", "Y", "N"),
        "gridSite": ("", "", "G1"),
        "validFrom": (_TIMES[0], _TIMES[0], _TIMES[1]),
        "validTo": ("", *_TIMES),
        "timestamp": ("", *_TIMES),
    },
    "siteGroup": {
        "siteName": ("A", "B"),
        "groupName": ("G",),
        "groupType": ("federation",),
        "weight": ("", "1", "100"),
        "validFrom": (_TIMES[0],),
        "validTo": ("", *_TIMES),
        "timestamp": ("", *_TIMES),
    },
    "siteContact": {
        "siteName": ("A",),
        "contact": ("", "jane@example.org", "mallory@example.org"),
        "timestamp": ("", *_TIMES),
    },
    "downtime": {
        "downtimeId": ("", "D1"),
        "siteName": ("A", "A", "B"),
        "hostName": ("",),
        "startTime": _TIMES[:2],
        "endTime": _TIMES[1:],
        "classification": ("SCHEDULED", "UNSCHEDULED"),
        "severity": ("OUTAGE", "WARNING"),
        "description": ("", "cooling"),
        "timestamp": ("", *_TIMES),
    },
}
