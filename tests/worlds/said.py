"""Random worlds in which publishers, feeds, files and a person speak, and an interpreter of them.

The interpreter knows the rules of docs/database.md only; it has no code of the product.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

STEPS = 9
PUBLISHERS = ("key:a", "key:b", "key:c")
FEEDS = ("gocdb", "cric")
KEYS: Mapping[str, Sequence[str]] = {
    "serviceEndpoint": ("siteName", "hostName", "serviceFlavour", "voName", "validFrom"),
    "siteGroup": ("siteName", "groupName", "groupType", "validFrom"),
    "siteContact": ("siteName",),
    "downtime": ("downtimeId", "siteName", "hostName", "serviceFlavour"),
}
_DAY1, _DAY2, _DAY3 = (f"2026-11-0{day}T00:00:00Z" for day in (1, 2, 3))
_VALUES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "serviceEndpoint": {
        "siteName": ("A",),
        "hostName": ("h1", "h2"),
        "serviceFlavour": ("CE",),
        "production": ("", "Y", "N"),
        "gridSite": ("", "", "G1"),
        "validFrom": (_DAY1,),
        "validTo": ("", _DAY2, _DAY3),
    },
    "siteGroup": {
        "siteName": ("A",),
        "groupName": ("G",),
        "groupType": ("federation",),
        "weight": ("", "0", "7"),
        "validFrom": (_DAY1, _DAY2),
    },
    "siteContact": {"siteName": ("A", "B"), "contact": ("", "jane", "mallory")},
    "downtime": {
        "downtimeId": ("D1", "D2"),
        "siteName": ("A",),
        "startTime": (_DAY1, _DAY2),
        "endTime": (_DAY2, _DAY3),
        "classification": ("SCHEDULED",),
        "severity": ("OUTAGE",),
    },
}
Record = Mapping[str, str]


def moment(step: float) -> str:
    """The time of a step."""
    return f"{datetime(2026, 11, 10, tzinfo=UTC) + timedelta(hours=step):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True)
class Said:
    """A statement as it is sent; a message has an id, other sources have none."""

    view: str
    record: Record
    source: str
    publisher: str = ""
    message_id: str | None = None


Step = Sequence[Said]
"""What is said at one time, in order."""


@dataclass
class World:
    """The steps of publishers, files and the person, and what the feeds export at each step."""

    steps: list[list[Said]]
    exports: list[Mapping[str, Mapping[str, Sequence[Record]]]]
    """By step, feed and class."""


def random_world(chance: random.Random, name: str) -> World:
    """A world whose sites have this name."""

    def record(view: str) -> Record:
        values = {key: chance.choice(values) for key, values in _VALUES[view].items()}
        values["siteName"] = f"{name}-{values['siteName']}"
        return {key: value for key, value in values.items() if value}

    sent: list[Said] = []
    steps: list[list[Said]] = []
    exports: list[Mapping[str, Mapping[str, Sequence[Record]]]] = []
    for step in range(STEPS):
        now: list[Said] = []
        for _ in range(chance.choice((0, 1, 1, 2))):
            view = chance.choice(list(KEYS))
            source = chance.choice(("message",) * 6 + ("file", "hand"))
            stamp = chance.choice(("", "", moment(step), moment(chance.randrange(-2, step + 1))))
            said = Said(view, record(view), source)
            if source == "message":
                number = f"{name}-{chance.randrange(10**9):09}"
                said = replace(said, publisher=chance.choice(PUBLISHERS), message_id=number)
            if stamp:
                said = replace(said, record={**said.record, "timestamp": stamp})
            now.append(said)
            if source == "message" and chance.random() < 0.2:  # it contradicts itself
                other = {
                    **record(view),
                    **{k: said.record[k] for k in KEYS[view] if k in said.record},
                }
                now.append(replace(said, record={**said.record, **other}))
        if sent and chance.random() < 0.4:
            now.append(chance.choice(sent))  # redelivered
        sent += [said for said in now if said.source == "message"]
        steps.append(now)
        before = exports[-1] if exports else {feed: _nothing() for feed in FEEDS}
        exports.append(
            {
                feed: _export(record, chance) if chance.random() < 0.3 else before[feed]
                for feed in FEEDS
            }
        )
    return World(steps, exports)


def _nothing() -> dict[str, Sequence[Record]]:
    return {"serviceEndpoint": (), "downtime": ()}


def _export(record: object, chance: random.Random) -> dict[str, Sequence[Record]]:
    """Endpoints without validFrom, and downtimes, one of each key."""
    export: dict[str, Sequence[Record]] = {}
    for view in _nothing():
        rows = {}
        for _ in range(chance.randrange(3)):
            row = dict(record(view))  # type: ignore[operator]
            if view == "serviceEndpoint":
                row.pop("validFrom"), row.pop("validTo", None)
            rows[tuple(row.get(key, "") for key in KEYS[view])] = row
        export[view] = tuple(rows.values())
    return export


# The interpreter ----------------------------------------------------------------------------------


@dataclass
class Kept:
    """A statement as it is kept."""

    said: Said
    content: Record
    said_at: str
    received_at: str
    number: int
    withdrawn: bool = False

    @property
    def rank(self) -> tuple[bool, str, str, int]:
        return self.said.source == "hand", self.said_at, self.said.message_id or "", self.number


@dataclass
class Interpreter:
    """All that was said, by class and key."""

    kept: dict[tuple[str, ...], list[Kept]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0

    def hear(self, said: Said, now: str) -> None:
        key = (said.view, *(said.record.get(name, "") for name in KEYS[said.view]))
        content = {name: value for name, value in said.record.items() if name != "timestamp"}
        about = self.kept[key]
        if said.source == "message":
            who = (said.publisher, said.message_id)
            if (*who, content) in [(k.said.publisher, k.said.message_id, k.content) for k in about]:
                return
        if said.source == "file":
            of_files = [k for k in about if k.said.source == "file" and not k.withdrawn]
            if of_files and max(of_files, key=lambda k: k.rank).content == content:
                return
        self.number += 1
        said_at = said.record.get("timestamp", now)
        about.append(Kept(said, content, said_at, now, self.number))

    def hear_feed(self, feed: str, view: str, exported: Sequence[Record], now: str) -> None:
        """A feed says what differs from its own last word, and ends what holds by its word."""
        source = f"feed {feed}"
        own = {}
        for key, about in self.kept.items():
            mine = [kept for kept in about if kept.said.source == source]
            if key[0] == view and mine:
                own[key] = max(mine, key=lambda kept: kept.rank)
        if view == "downtime":
            for row in exported:
                key = (view, *(row.get(name, "") for name in KEYS[view]))
                if key not in own or own[key].content != row:
                    self.hear(Said(view, {**row, "timestamp": now}, source), now)
            return
        valid = {}
        for key, kept in sorted(own.items(), key=lambda item: item[1].rank):
            if kept.content.get("validTo", "9") > now:
                valid[key[1:5]] = kept
        wanted = {tuple(row.get(n, "") for n in KEYS[view][:-1]): row for row in exported}
        for name, kept in valid.items():
            row = wanted.get(name)
            facts = {k: v for k, v in kept.content.items() if not k.startswith("valid")}
            if row != facts and self.holder(kept) is kept:
                ended = {**kept.content, "validTo": now, "timestamp": now}
                self.hear(Said(view, ended, source), now)
        for name, row in wanted.items():
            known = valid.get(name)
            facts = known and {k: v for k, v in known.content.items() if not k.startswith("valid")}
            if facts != row:
                self.hear(Said(view, {**row, "validFrom": now, "timestamp": now}, source), now)

    def withdraw(self, publisher: str, since: str, until: str, undo: bool = False) -> None:
        for about in self.kept.values():
            for kept in about:
                if kept.said.publisher == publisher and since <= kept.received_at < until:
                    kept.withdrawn = not undo

    def holder(self, one: Kept) -> Kept | None:
        [about] = [about for about in self.kept.values() if one in about]
        return _holder(about)

    def rows(self) -> Iterator[tuple[str, Record, str]]:
        """What holds: class, record and source."""
        for key, about in self.kept.items():
            if kept := _holder(about):
                yield key[0], kept.content, kept.said.source


def _holder(about: Sequence[Kept]) -> Kept | None:
    left = [kept for kept in about if not kept.withdrawn]
    return max(left, key=lambda kept: kept.rank, default=None)
