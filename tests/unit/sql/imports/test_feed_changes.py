"""Changes by a snapshot of GOCDB, applied to a small model of the class views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, MessageClass
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import (
    FeedChanges,
    FeedSnapshot,
    Window,
    downtime_changes,
    topology_changes,
)
from sam_pipeline.sql.topology.view_rows import Row, key_of

DAY1, DAY2, DAY3, DAY4, DAY5 = (f"2026-11-0{day}T06:00:00Z" for day in (1, 2, 3, 4, 5))
NOW = "2026-11-20T00:00:00Z"
NOVEMBER = Window("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")


def endpoint(host: str = "ce01", **details: str) -> Row:
    row = {"siteName": "A", "hostName": host, "serviceFlavour": "CE", "production": "Y"}
    return {**row, "monitored": "Y", **details}


def downtime(downtime_id: str = "1G0", start: str = DAY1, end: str = DAY2, **more: str) -> Row:
    row = {"downtimeId": downtime_id, "siteName": "A", "hostName": "ce01", "startTime": start}
    return {**row, "endTime": end, "classification": "SCHEDULED", "severity": "OUTAGE", **more}


class View:
    """Merges rows as the class views do (docs/database.md)."""

    def __init__(self, message_class: MessageClass, rows: Iterable[Row] = ()) -> None:
        self.message_class = message_class
        self.rows: dict[tuple[str, ...], Row] = {}
        self.insert(rows)

    def insert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = key_of(row, self.message_class.natural_key)
            known = self.rows.get(key)
            if known is None:
                self.rows[key] = row
            elif self.message_class is DOWNTIME:
                if row["timestamp"] > known.get("timestamp", ""):
                    self.rows[key] = row
            elif "validTo" in row:
                end = min(row["validTo"], known.get("validTo", "9"))
                self.rows[key] = {**known, "validTo": end}

    def at(self, moment: str) -> dict[str, Row]:
        """Topology: the row that is valid at a moment, by host."""
        valid = [
            row
            for row in self.rows.values()
            if row["validFrom"] <= moment and row.get("validTo", "9") > moment
        ]
        return {row["hostName"]: row for row in sorted(valid, key=lambda row: row["validFrom"])}


def take(
    view: View,
    at: str,
    *exported: Row,
    accept_shrinking: bool = True,
    since: str | None = None,
    now: str = NOW,
) -> FeedChanges:
    """Compare and insert."""
    snapshot = FeedSnapshot("gocdb", at, now, since, NOVEMBER, accept_shrinking)
    stored = list(view.rows.values())
    if view.message_class is DOWNTIME:
        changes = downtime_changes(exported, stored, snapshot)
    else:
        changes = topology_changes("endpoints", SERVICE_ENDPOINT, exported, stored, snapshot)
    view.insert(changes.rows)
    return changes


def counts(changes: FeedChanges) -> tuple[int, ...]:
    """new, changed, ended, unchanged, kept"""
    return changes.new, changes.changed, changes.ended, changes.unchanged, changes.kept


def flags(rows: Mapping[str, Row]) -> dict[str, tuple[str, ...]]:
    keys = ("serviceURI", "production", "monitored")
    return {host: key_of(row, keys) for host, row in rows.items()}


# Topology


def test_more_than_a_fifth_does_not_vanish_without_accept_shrinking() -> None:
    view = View(SERVICE_ENDPOINT)
    hosts = [endpoint(f"h{number}") for number in range(10)]
    take(view, DAY1, *hosts)

    for gone in (3, 10):
        with pytest.raises(BadInput, match=f"{gone} of 10 rows from GOCDB"):
            take(view, DAY2, *hosts[gone:], accept_shrinking=False)
    assert take(view, DAY2, *hosts[2:], accept_shrinking=False).ended == 2
    assert take(view, DAY3, *hosts[9:]).ended == 7


def test_another_snapshot_of_the_same_time_or_an_older_one_is_refused() -> None:
    view = View(SERVICE_ENDPOINT)
    take(view, DAY1, endpoint("a"))
    take(view, DAY3, endpoint("a"), endpoint("b"))

    for at in (DAY3, DAY2):
        with pytest.raises(BadInput, match=f"{at} differs from .* {DAY3}"):
            take(view, at, endpoint("a"))


def test_endpoints_of_messages_are_never_closed_and_count_again_after_gocdb() -> None:
    message: Row = {**endpoint("a", monitored="N"), "validFrom": DAY1, "messageId": "m-1"}
    view = View(SERVICE_ENDPOINT, [message])

    take(view, DAY2, endpoint("a"), accept_shrinking=False)
    monitored = [view.at(day)["a"]["monitored"] for day in (DAY1, DAY2)]
    changes = take(view, DAY3, endpoint("b"))

    assert monitored == ["N", "Y"]
    assert counts(changes) == (1, 0, 1, 0, 0)
    assert view.at(DAY3)["a"] == message


def test_an_end_announced_by_another_source_is_kept() -> None:
    view = View(SERVICE_ENDPOINT)
    take(view, DAY1, endpoint("a"), endpoint("b"))
    view.insert([{**row, "validTo": DAY4} for row in view.rows.values() if row["hostName"] == "a"])

    before = counts(take(view, DAY3, endpoint("a"), endpoint("b"), endpoint("c"), now=DAY3))
    after = counts(take(view, DAY5, endpoint("a"), endpoint("b"), endpoint("c"), now=DAY5))

    assert (before, after) == ((1, 0, 0, 2, 0), (1, 0, 0, 2, 0))
    assert "a" not in view.at(DAY4)
    assert view.at(DAY5)["a"]["validFrom"] == DAY5


def test_a_row_with_the_key_of_another_source_is_refused() -> None:
    view = View(SERVICE_ENDPOINT, [{**endpoint(), "validFrom": DAY1, "messageId": "m-1"}])

    with pytest.raises(BadInput, match=r"A ce01 CE 2026.* was announced already \(message m-1"):
        take(view, DAY2, endpoint(), since=DAY1)


endpoints = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {"production": st.sampled_from("YN"), "monitored": st.sampled_from("YN")},
        optional={"serviceURI": st.sampled_from(["x", "y"])},
    ),
)


@given(st.lists(endpoints, max_size=6), endpoints)
def test_the_topology_matches_each_snapshot_and_the_past_is_kept(
    snapshots: Sequence[Mapping[str, Mapping[str, str]]], foreign: Mapping[str, Mapping[str, str]]
) -> None:
    others = {f"other-{host}": details for host, details in foreign.items()}
    message = {"validFrom": "2026-01-01T00:00:00Z", "messageId": "m-1"}
    view = View(SERVICE_ENDPOINT, ({**endpoint(h, **d), **message} for h, d in others.items()))
    times = [format_time(datetime(2026, 11, 1 + day, tzinfo=UTC)) for day in range(6)]
    steps = list(zip(times, snapshots, strict=False))

    for at, hosts in steps:
        exported = [endpoint(host, **details) for host, details in hosts.items()]
        changes = take(view, at, *exported)
        assert changes.read == len(exported) == changes.new + changes.changed + changes.unchanged
        assert take(view, at, *exported).rows == ()

    for at, hosts in steps:
        expected = {**hosts, **others}
        assert flags(view.at(at)) == flags({h: endpoint(h, **d) for h, d in expected.items()})


# Downtimes


def intervals(view: View) -> dict[str, tuple[str, str]]:
    return {row["downtimeId"]: (row["startTime"], row["endTime"]) for row in view.rows.values()}


def test_vanished_downtimes_of_the_window_are_cancelled_ended_or_kept_by_their_time() -> None:
    view = View(DOWNTIME)
    stored = {
        "past": (DAY1, DAY2),
        "running": (DAY1, DAY4),
        "coming": (DAY4, NOW),
        "at the end": ("2026-11-30T23:59:59Z", "2026-12-02T00:00:00Z"),
        "after the window": ("2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"),
    }
    listed = downtime("listed")
    take(view, DAY1, *(downtime(name, *times) for name, times in stored.items()), listed)

    changes = take(view, DAY3, listed, accept_shrinking=False)

    assert counts(changes) == (0, 0, 3, 1, 0)
    ended = {"running": (DAY1, DAY3), "coming": (DAY4, DAY4), "listed": (DAY1, DAY2)}
    ended["at the end"] = ("2026-11-30T23:59:59Z", "2026-11-30T23:59:59Z")
    assert intervals(view) == {**stored, **ended}
    assert take(view, DAY4, listed).rows == ()


def test_a_downtime_is_new_moved_lacks_a_service_vanishes_and_returns() -> None:
    view = View(DOWNTIME)
    coming = downtime(start=DAY4, end=DAY5)
    of_two = [coming, {**coming, "hostName": "b"}]
    counted = [
        counts(take(view, DAY1, *of_two)),
        counts(take(view, DAY2, downtime(start=DAY3, end=DAY5), downtime("2G0"))),
    ]
    vanished = downtime_changes([], list(view.rows.values()), FeedSnapshot("gocdb", DAY3, NOW))
    with pytest.raises(BadInput, match="no downtimes, but 1 from GOCDB"):
        take(view, DAY3, accept_shrinking=False)
    counted += [counts(take(view, DAY3)), counts(take(view, DAY4, coming))]

    assert counted == [(2, 0, 0, 0, 0), (1, 1, 1, 0, 0), (0, 0, 1, 0, 0), (0, 1, 0, 0, 0)]
    assert vanished.rows == ()  # without a window
    ends = {(row["downtimeId"], row["hostName"]): row["endTime"] for row in view.rows.values()}
    assert ends == {("1G0", "ce01"): DAY5, ("1G0", "b"): DAY4, ("2G0", "ce01"): DAY2}
    for at in (DAY4, DAY1):
        with pytest.raises(BadInput, match="must be newer"):
            take(view, at, coming, downtime("3G0"))


@pytest.mark.parametrize(
    ("sent", "announced", "kept"),
    [("m-1", DAY1, 0), ("m-1", DAY2, 1), ("m-1", DAY3, 1), (f"by-hand:{DAY1}", DAY1, 1)],
)
def test_of_messages_and_gocdb_the_newest_wins_and_a_change_by_hand_is_kept(
    sent: str, announced: str, kept: int
) -> None:
    other: Row = {**downtime(), "timestamp": announced, "messageId": sent}
    view = View(DOWNTIME, [other])

    changes = take(view, DAY2, downtime(end=DAY4))

    assert (changes.kept, changes.changed) == (kept, 1 - kept)
    assert list(view.rows.values()) == [other] or not kept
    missing = View(DOWNTIME, [{**other, "startTime": DAY4, "endTime": DAY5}])
    assert take(missing, DAY3, downtime("2G0")).ended == 0


downtimes = st.dictionaries(
    st.sampled_from(["1G0", "2G0", "3G0"]),
    st.tuples(st.integers(0, 200), st.integers(0, 100)),
    min_size=1,
)


@given(st.lists(downtimes, max_size=6))
def test_future_downtimes_match_each_snapshot(
    snapshots: Sequence[Mapping[str, tuple[int, int]]],
) -> None:
    view = View(DOWNTIME)
    first = datetime(2026, 11, 2, tzinfo=UTC)

    for number, snapshot in enumerate(snapshots):
        at = format_time(first + timedelta(hours=24 * number))
        exported = {
            downtime_id: (
                format_time(first + timedelta(hours=start)),
                format_time(first + timedelta(hours=start + hours)),
            )
            for downtime_id, (start, hours) in snapshot.items()
        }
        rows = [downtime(downtime_id, *interval) for downtime_id, interval in exported.items()]
        take(view, at, *rows)
        assert take(view, at, *rows).rows == ()
        stored = intervals(view)
        assert {known: stored[known] for known in exported} == exported
        assert all(stored[gone][1] <= max(at, stored[gone][0]) for gone in stored.keys() - exported)
