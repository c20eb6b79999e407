"""The class views as an SQL client and a loader see them: keys, and which of two rows holds."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.database.statements import HISTORIES
from sam_pipeline.sql.loading.catalogue import class_views
from sam_pipeline.sql.loading.fold import fold, fold_all, take_changes
from tests.support.builders import metric_result
from tests.support.database.letters import load_now
from tests.support.database.own_class import run
from tests.support.database.sql_rows import (
    Values,
    downtime,
    insert,
    message_of,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

Store = Callable[..., None]


def load_each(engine: Engine, view: str, *rows: Values) -> None:
    """A batch of one message for each row."""
    loaded = load_now(engine, *(message_of(view, row) for row in rows))
    assert not loaded.dead_letters


@pytest.fixture(params=[insert, load_each], ids=["row by row", "in a batch"])
def store(request: pytest.FixtureRequest) -> Store:
    """Stores rows of a view: as an SQL client, or as a loader, which takes COPY on PostgreSQL."""
    chosen: Store = request.param
    return chosen


def contents(engine: Engine, view: str) -> list[Values]:
    """The rows as texts, without the ids of messages."""
    rows = [plain({**row, "messageId": "", "monitoringHost": ""}) for row in stored(engine, view)]
    return sorted(rows, key=str)


def plain(row: Values) -> Values:
    """The values of a row as texts, in the order of their names."""
    return {key: str(row[key]) for key in sorted(row) if row[key]}


def test_every_attribute_of_a_class_is_a_column_in_any_case(engine: Engine) -> None:
    views = {view.name.lower(): view for view in class_views(engine)}

    assert views.keys() == BUILT_IN.keys()
    for name, message_class in BUILT_IN.items():
        columns = [column.lower() for column in views[name].columns]
        assert columns == [key.lower() for key in message_class.keys]
        assert views[name].message_id_column is not None
    row = {key: f"some {key}" for key in BUILT_IN["metricoutput"].keys} | {
        "hostName": "ce01.example.org",
        "metricStatus": "CRITICAL",
        "timestamp": "2026-11-20T12:00:00Z",
    }
    insert(engine, "metricOutput", row)
    assert stored(engine, "metricOutput") == [row]


T1, T2, T3 = (f"2026-11-1{day}T00:00:00Z" for day in (1, 2, 3))
IN_ANY_ORDER: Sequence[tuple[str, Sequence[Values]]] = [
    (
        "serviceEndpoint",
        [
            service_endpoint(timestamp=T1, validTo="2026-11-25T00:00:00Z"),
            service_endpoint(timestamp=T2, validTo="2026-11-30T00:00:00Z", production="N"),
            service_endpoint(timestamp=T3, monitored="N"),
        ],
    ),
    (
        "siteGroup",
        [
            site_group(timestamp=T1, validTo="2026-11-25T00:00:00Z"),
            site_group(timestamp=T2, weight="0"),
            site_group(timestamp=T3, weight=None),
        ],
    ),
    (
        "downtime",
        [
            downtime(timestamp=T1, description="long"),
            downtime(timestamp=T2, startTime="2026-11-20T01:00:00Z"),
            downtime(timestamp=T3, startTime="2026-11-20T02:00:00Z"),
        ],
    ),
    (
        "siteContact",
        [
            site_contact(contact="Bob", timestamp=T1),
            site_contact(contact="Cid", timestamp=T2),
            site_contact(contact="", timestamp=T3),
        ],
    ),
]
"""Statements about one key, of which the last one holds."""


@pytest.mark.parametrize(("view", "rows"), IN_ANY_ORDER)
def test_what_was_said_last_holds_whatever_the_order_of_arrival(
    engine: Engine, store: Store, view: str, rows: Sequence[Values]
) -> None:
    key = "hostName" if "hostName" in rows[0] else "siteName"
    orders = [
        [{**row, key: f"{number}.org"} for row in order]
        for number, order in enumerate(permutations(rows))
    ]

    store(engine, view, *(row for order in orders for row in order))

    kept = [plain({**rows[-1], key: order[0][key]}) for order in orders]
    assert contents(engine, view) == sorted(kept, key=str)
    history = query(engine, f"SELECT holds FROM {HISTORIES[view]}")
    assert (len(history), sum(holds for (holds,) in history)) == (18, 6)


def test_of_statements_of_one_time_the_larger_message_id_holds_then_the_later_one(
    engine: Engine,
) -> None:
    def said(message_id: str | None, contact: str) -> None:
        insert(engine, "siteContact", site_contact(contact=contact, messageId=message_id))

    for message_id, contact in (("b", "first"), ("a", "late"), ("b", "also in b")):
        said(message_id, contact)
    assert query(engine, "SELECT contact FROM siteContact") == [("also in b",)]

    said(None, "of a person")
    said("c", "of a message")
    assert query(engine, "SELECT contact, source FROM siteContact") == [("of a person", "hand")]


def test_different_results_of_one_key_stand_side_by_side_and_the_worst_counts(
    engine: Engine, store: Store
) -> None:
    worst = metric_result(metricStatus="CRITICAL")
    rows = [
        metric_result(),
        metric_result(detailsData="more"),
        worst,
        metric_result(summaryData="another"),
        metric_result(performanceData="time=1s"),
    ]

    store(engine, "metricOutput", *rows)
    store(engine, "metricOutput", *reversed(rows))

    assert contents(engine, "metricOutput") == sorted(map(plain, rows), key=str)
    fold_all(engine)
    assert query(engine, "SELECT status FROM current_status") == [("CRITICAL",)]


def test_an_equal_result_adds_nothing_but_its_publisher(engine: Engine) -> None:
    for publisher, message_id in (("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("c", "5")):
        row = metric_result(publisher=publisher, messageId=message_id, detailsData="x")
        insert(engine, "metricOutput", row)

    assert query(engine, "SELECT publisher, messageId FROM metricOutput") == [("a", "1")]
    others = query(engine, "SELECT message_id FROM result_repeat ORDER BY 1")
    assert others == [("3",), ("5",)]


def test_of_equal_statements_of_a_publisher_the_first_and_the_last_are_kept(
    engine: Engine, store: Store
) -> None:
    for day in range(1, 6):
        store(engine, "siteContact", site_contact(timestamp=f"2026-11-0{day}T00:00:00Z"))
    store(engine, "siteContact", site_contact(contact="x", timestamp="2026-11-06T00:00:00Z"))
    store(engine, "siteContact", site_contact(timestamp="2026-11-07T00:00:00Z"))

    times = query(engine, "SELECT timestamp FROM contact_statement ORDER BY 1")
    assert [time[8:10] for (time,) in times] == ["01", "05", "06", "07"]


def test_absent_and_empty_key_parts_are_equal_and_hosts_have_no_case(engine: Engine) -> None:
    bare = metric_result(voName=None, gatheredAt=None)
    empty = {**bare, "voName": "", "gatheredAt": None, "monitoringHost": ""}
    capitals = {**bare, "hostName": "CE01.Example.ORG"}

    insert(engine, "metricOutput", bare, empty, capitals, bare)

    assert stored(engine, "metricOutput") == [bare]


def test_downtimes_without_an_id_differ_by_their_start_and_by_what_they_cover(
    engine: Engine, store: Store
) -> None:
    store(
        engine,
        "downtime",
        downtime(downtimeId=None),
        downtime(downtimeId=None, startTime="2026-11-20T09:00:00Z"),
        downtime(downtimeId="", description="the first again"),
        downtime(serviceFlavour=None),
        downtime(hostName=None, serviceFlavour=None),
    )

    covered = query(engine, "SELECT host_name, service_flavour FROM report_downtime ORDER BY 1, 2")
    host = "ce01.example.org"
    assert covered == [("", ""), (host, ""), (host, "CE"), (host, "CE")]


def test_a_part_of_a_downtime_that_was_added_later_is_announced_then(engine: Engine) -> None:
    """Each is said on a day, and arrives on one; the parts are hours and days of arrival."""

    def parts() -> list[tuple[str, str, str]]:
        rows = query(
            engine,
            "SELECT start_time, end_time, announced_at FROM report_downtime ORDER BY start_time",
        )
        return [(start[11:13], end[11:13], at[8:10]) for start, end, at in rows]

    for start, end, said, arrived, more, expected in (
        (10, 12, 1, 1, {}, [("10", "12", "01")]),
        (10, 14, 2, 2, {}, [("10", "12", "01"), ("12", "14", "02")]),
        (9, 13, 3, 3, {}, [("09", "10", "03"), ("10", "12", "01"), ("12", "13", "02")]),
        (9, 13, 4, 4, {}, [("09", "10", "03"), ("10", "12", "01"), ("12", "13", "02")]),
        (9, 9, 5, 5, {}, []),
        (9, 13, 6, 6, {}, [(a, b, "06") for a, b in (("09", "10"), ("10", "12"), ("12", "13"))]),
        (9, 13, 7, 7, {"severity": "WARNING"}, None),
        (10, 11, 0, 8, {}, None),  # said first, and late
    ):
        times = {"startTime": f"2026-11-20T{start:02}:00:00Z"}
        times |= {"endTime": f"2026-11-20T{end:02}:00:00Z", "timestamp": f"2026-11-0{said + 1}"}
        times["timestamp"] += "T00:00:00Z"
        about = {"receivedAt": f"2026-11-0{arrived}T00:00:00Z", "messageId": f"m-{arrived}"}
        insert(engine, "downtime", downtime(**times, **about, publisher="p", **more))
        if expected is not None:
            assert parts() == expected
    assert {announced for _, _, announced in parts()} == {"07"}


def test_reports_read_neither_a_downtime_that_ends_as_it_starts_nor_an_empty_contact(
    engine: Engine,
) -> None:
    for text, at, shown in (("Bob", 18, [("Bob",)]), ("", 19, []), ("Dan", 20, [("Dan",)])):
        contact = site_contact(contact=text, timestamp=f"2026-11-{at}T00:00:00Z")
        insert(engine, "siteContact", contact)
        assert query(engine, "SELECT contact FROM report_site_contact") == shown
    insert(engine, "downtime", downtime())
    assert len(query(engine, "SELECT * FROM report_downtime")) == 1

    cancelled = downtime(endTime="2026-11-20T08:00:00Z", timestamp="2026-11-19T00:00:00Z")
    insert(engine, "downtime", cancelled)

    assert query(engine, "SELECT * FROM report_downtime") == []
    assert len(stored(engine, "downtime")) == 1


# Newest statuses and changed days -----------------------------------------------------------------

STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
START = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)

_NAMES_OF_KEY = (
    *("hostName", "metricName", "voName", "voFqan", "gatheredAt", "monitoringHost"),
    "timestamp",
)

CONTENT = ("metricStatus", "summaryData", "performanceData", "detailsData")

Key = tuple[str, str, str]
Shown = tuple[str, str, str]
"""status, since, measured_at"""


def random_results(rng: random.Random, minutes: int) -> list[Record]:
    """Results of few instances and times, so that keys repeat."""
    return [
        metric_result(
            hostName=f"host{rng.randrange(2)}.example.org",
            metricName=f"M{rng.randrange(2)}",
            voFqan=rng.choice((None, None, "/ops/Role=pilot")),
            gatheredAt=rng.choice(("a", "a", "b")),
            monitoringHost=rng.choice((None, None, "m")),
            siteName=rng.choice(("ONE", "TWO")),
            timestamp=f"{START + timedelta(minutes=rng.randrange(minutes)):%Y-%m-%dT%H:%M:%SZ}",
            metricStatus=rng.choice(("OK", "OK", "OK", *STATUSES)),
            summaryData=f"summary {rng.randrange(10**6)}",
            detailsData=rng.choice((None, "details")),
        )
        for _ in range(rng.choice((1, 3, 20)))
    ]


def announce(engine: Engine, *hosts: str) -> None:
    """Add the endpoints of results to the topology: those of others change no day that was read."""
    flavour = metric_result()["serviceFlavour"]
    valid = {"serviceFlavour": flavour, "validFrom": "2026-01-01T00:00:00Z"}
    insert(engine, "serviceEndpoint", *(service_endpoint(hostName=h, **valid) for h in hosts))


def expected_statuses(rows: Iterable[Record]) -> dict[Key, tuple[Shown, set[str]]]:
    """The row that current_status must show for each key, and the summaries it may show."""
    rows_of: dict[Key, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        key = (row["hostName"], row["metricName"], row["voName"])
        rows_of[key][row["timestamp"]].append(row)
    expected = {}
    for key, by_time in rows_of.items():
        worst = {time: max(map(rank, at_once)) for time, at_once in by_time.items()}
        newest = max(worst)
        others = [time for time in worst if worst[time] != worst[newest]]
        since = min(time for time in worst if time > max(others, default=""))
        summaries = {row["summaryData"] for row in by_time[newest] if rank(row) == worst[newest]}
        expected[key] = ((STATUSES[worst[newest]], since, newest), summaries)
    return expected


def rank(row: Record) -> int:
    return STATUSES.index(row["metricStatus"])


def shown(engine: Engine) -> dict[Key, tuple[Shown, str]]:
    rows = query(
        engine,
        """
        SELECT host_name, metric_name, vo, status, since, measured_at, summary FROM current_status
        """,
    )
    assert len({row[:3] for row in rows}) == len(rows)
    return {row[:3]: (row[3:6], row[6]) for row in rows}


def changed(engine: Engine) -> set[str]:
    """The days that changed since the last `take`."""
    if engine.dialect.name == "sqlite":  # its views include changes that are not folded yet
        before_fold = changed_now(engine)
        fold_all(engine)
        assert changed_now(engine) == before_fold
    fold_all(engine)
    return changed_now(engine)


def changed_now(engine: Engine) -> set[str]:
    return {
        str(day)
        for (day,) in query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL")
    }


def take(engine: Engine) -> int:
    with writing(engine) as connection:
        return take_changes(connection)


def days(first: str, last: str) -> set[str]:
    start, end = date.fromisoformat(first), date.fromisoformat(last)
    return {str(start + timedelta(days=n)) for n in range((end - start).days + 1)}


def set_horizon(engine: Engine, day: str) -> None:
    run(engine, f"INSERT INTO horizon (day) VALUES ('{day}')")


def results_at(engine: Engine, *times: str, **changes: str) -> None:
    insert(engine, "metricOutput", *(metric_result(timestamp=at, **changes) for at in times))


@pytest.mark.parametrize("seed", range(3))
def test_statuses_and_days_follow_the_results_in_any_order(engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    announce(engine, "host0.example.org", "host1.example.org")
    before: set[tuple[Any, ...]] = set()
    marked: set[str] = set()
    for number in range(15):
        if rng.random() < 0.3:
            take(engine)
            marked = set()

        insert(engine, "metricOutput", *random_results(rng, minutes=5 + number * 2))

        rows = stored(engine, "metricOutput")
        after = {(natural_key(row), *map(row.get, CONTENT)) for row in rows}
        for key, *_ in after - before:
            day = date.fromisoformat(key[-1][:10])
            marked |= {str(day), str(day + timedelta(days=1))}
        before = after
        if engine.dialect.name == "sqlite":  # its views include changes that are not folded yet
            check_views(engine, rows, marked)
            if rng.random() < 0.5:
                fold_some(engine, rng.randrange(1, 30))
        else:
            fold_all(engine)
        check_views(engine, rows, marked)

    fold_all(engine)
    check_views(engine, rows, marked)


def check_views(engine: Engine, rows: Iterable[Record], marked: set[str]) -> None:
    expected, actual = expected_statuses(rows), shown(engine)
    assert {key: status for key, (status, _) in actual.items()} == {
        key: status for key, (status, _) in expected.items()
    }
    assert all(actual[key][1] in summaries for key, (_, summaries) in expected.items())
    assert changed_now(engine) == marked


def fold_some(engine: Engine, at_most: int) -> None:
    run(engine, f"INSERT INTO fold_news (at_most) VALUES ({at_most})")


def natural_key(row: Record) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in _NAMES_OF_KEY)


def test_a_status_keeps_its_since_when_older_results_are_deleted(engine: Engine) -> None:
    results_at(engine, "2026-03-01T12:00:00Z", metricStatus="CRITICAL")
    results_at(engine, *(f"2026-03-0{day}T12:00:00Z" for day in (2, 3, 9)))
    fold(engine)
    time = 1_773_014_400 if engine.dialect.name == "sqlite" else "'2026-03-09T00:00:00Z'"
    run(engine, f"DELETE FROM metric_result WHERE measured_at < {time}")
    set_horizon(engine, "2026-03-09")

    # A late result at the time before `since`, which must be computed again.
    results_at(engine, "2026-03-01T12:00:00Z", gatheredAt="b")
    fold(engine)

    [(shown_status, _)] = shown(engine).values()
    assert shown_status == ("OK", "2026-03-02T12:00:00Z", "2026-03-09T12:00:00Z")


def test_current_status_is_by_vo_and_shown_at_every_present_site(engine: Engine) -> None:
    for site, valid_from, more in (
        ("ONE", 2020, {}),
        ("ONE", 2021, {"voName": "ops"}),
        ("TWO", 2020, {}),
        ("PAST", 2020, {"validTo": "2021-01-01T00:00:00Z"}),
        ("FUTURE", 2100, {}),
    ):
        start = f"{valid_from}-01-01T00:00:00Z"
        insert(engine, "serviceEndpoint", service_endpoint(siteName=site, validFrom=start, **more))
    insert(
        engine,
        "metricOutput",
        metric_result(),
        metric_result(voName="atlas", metricStatus="CRITICAL"),
        metric_result(hostName="nowhere.example.org"),
    )

    statuses = query(engine, "SELECT site, vo, status FROM current_status ORDER BY 1, 2")
    assert statuses == [
        ("", "ops", "OK"),
        ("ONE", "atlas", "CRITICAL"),
        ("ONE", "ops", "OK"),
        ("TWO", "atlas", "CRITICAL"),
        ("TWO", "ops", "OK"),
    ]


# Days that changed ----------------------------------------------------------------------------


def test_no_day_before_the_horizon_or_in_the_future_is_marked(engine: Engine) -> None:
    set_horizon(engine, "2026-03-05")
    now = datetime.now(UTC)
    recent = [f"{now + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (-1, 0, 3)]

    results_at(engine, "2026-03-03T12:00:00Z", "2026-03-04T12:00:00Z", *recent)

    assert changed(engine) == {"2026-03-05", recent[0][:10], recent[1][:10]}


@pytest.fixture
def march(engine: Engine) -> Engine:
    """A database with its first result on 1 March 2026, after a `take`."""
    results_at(engine, "2026-03-01T12:00:00Z")
    take(engine)
    return engine


def today() -> str:
    return str(datetime.now(UTC).date())


MARCH_6 = "2026-03-06T00:00:00Z"
TOPOLOGY: Mapping[str, Callable[..., Values]] = {
    "serviceEndpoint": service_endpoint,
    "siteGroup": site_group,
}


@pytest.mark.parametrize("view", TOPOLOGY)
def test_topology_marks_the_days_at_whose_midnight_it_is_valid(march: Engine, view: str) -> None:
    for start, end, expected in (
        ("2026-03-03T00:00:00Z", "2026-03-05T00:00:00Z", days("2026-03-03", "2026-03-04")),
        ("2026-03-03T00:00:01Z", "2026-03-05T00:00:01Z", days("2026-03-04", "2026-03-05")),
        ("2026-03-03T10:00:00Z", "2026-03-03T12:00:00Z", set()),
        ("2020-01-01T00:00:00Z", "2026-03-03T00:00:00Z", days("2026-03-01", "2026-03-02")),
        ("2026-03-03T00:00:02Z", "2026-03-01T00:00:00Z", set()),
        ("2026-03-03T12:00:00Z", None, days("2026-03-04", today())),
        ("2999-01-01T00:00:00Z", None, set()),
    ):
        insert(march, view, TOPOLOGY[view](validFrom=start, validTo=end))
        assert changed(march) == expected
        take(march)
    set_horizon(march, "2026-03-04")
    insert(march, view, TOPOLOGY[view](validFrom="2026-03-01T00:00:01Z", validTo=MARCH_6))
    assert changed(march) == days("2026-03-04", "2026-03-05")


@pytest.mark.parametrize("view", TOPOLOGY)
def test_a_changed_end_marks_the_days_between_both_ends(march: Engine, view: str) -> None:
    for end, expected in (
        (None, days("2026-03-02", today())),
        ("2026-03-09T00:00:00Z", days("2026-03-09", today())),
        ("2026-03-06T12:00:00Z", days("2026-03-07", "2026-03-08")),
        ("2026-03-08T00:00:00Z", {"2026-03-07"}),
        ("2026-03-08T00:00:00Z", set()),
    ):
        insert(march, view, TOPOLOGY[view](validFrom="2026-03-02T00:00:00Z", validTo=end))
        assert changed(march) == expected
        take(march)


@pytest.mark.parametrize(
    ("view", "change"),
    [
        ("serviceEndpoint", {"production": "N"}),
        ("serviceEndpoint", {"gridSite": "GRID"}),
        ("siteGroup", {"weight": "99"}),
    ],
)
def test_a_change_from_its_beginning_on_marks_all_days(
    march: Engine, view: str, change: Values
) -> None:
    period = {"validFrom": "2026-03-02T00:00:00Z", "validTo": "2026-03-05T00:00:00Z"}
    insert(march, view, TOPOLOGY[view](**period))
    take(march)

    insert(march, view, TOPOLOGY[view](**period, **change))

    assert changed(march) == days("2026-03-02", "2026-03-04")


def test_a_downtime_marks_the_days_it_touches_before_and_after_a_change(march: Engine) -> None:
    for start, end, version, expected in (
        ("03T23", "05T00", 1, days("2026-03-03", "2026-03-04")),
        ("10T00", "10T01", 2, days("2026-03-03", "2026-03-04") | {"2026-03-10"}),
        ("10T00", "10T00", 3, {"2026-03-10"}),
        ("12T00", "12T00", 2, set()),
    ):
        times = {"startTime": f"2026-03-{start}:00:00Z", "endTime": f"2026-03-{end}:00:00Z"}
        insert(march, "downtime", downtime(**times, timestamp=f"2026-02-0{version}T00:00:00Z"))
        assert changed(march) == expected
        take(march)
