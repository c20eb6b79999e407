"""A revocation leaves what others said, as if the publisher had never said anything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.times import parse_time
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import DatabaseRefused, NoSuchPublisher
from sam_pipeline.sql.loading.fold import fold_all, take_changes
from sam_pipeline.sql.loading.publishers import name_publishers, publisher_ids
from sam_pipeline.sql.operations.log import operations
from sam_pipeline.sql.removal.pruning.prune import prune
from sam_pipeline.sql.removal.pruning.request import Bounds
from sam_pipeline.sql.removal.revoking.revoke import Revoked, revoke
from tests.support.builders import metric_result
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    Values,
    downtime,
    insert,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

FORGER, OWNER, FRIEND = "broker:stomp://b:61613/forger", "key:owner", "key:friend"
SINCE = "2026-11-21T00:00:00Z"
EARLIER, LATER, LAST = "2026-11-20T23:00:00Z", "2026-11-21T01:00:00Z", "2026-11-21T02:00:00Z"
TODAY = datetime.now(UTC).date()
NEVER = date(2026, 11, 1)

KINDS: Mapping[str, tuple[Values, Values]] = {
    "metricOutput": (
        metric_result(metricStatus="OK", summaryData="fine", detailsData="all is well"),
        metric_result(metricStatus="CRITICAL", summaryData="forged", detailsData="all is lost"),
    ),
    "serviceEndpoint": (service_endpoint(), service_endpoint(validTo="2026-11-01T00:00:00Z")),
    "siteGroup": (site_group(weight="3"), site_group(weight="0", validTo="2026-11-02T00:00:00Z")),
    "siteContact": (
        site_contact(),
        site_contact(contact="forger@example.org", timestamp="2026-11-19T00:00:00Z"),
    ),
    "downtime": (
        downtime(),
        downtime(endTime="2026-11-20T08:00:00Z", timestamp="9999-12-31T00:00:00Z"),
    ),
}
"""What the owner of a row says, and what a forger says about it."""


def say(engine: Engine, publisher: str, view: str, row: Values, at: str) -> None:
    """Insert a row as the loader does, at a certain time."""
    about = {"publisher": publisher, "messageId": f"{publisher} {at}", "receivedAt": at}
    insert(engine, view, {**row, **about})


def revoked(engine: Engine, publisher: str = FORGER, since: str = SINCE, **more: object) -> Revoked:
    until = more.pop("until", None)
    end = parse_time(str(until)) if until else None
    return revoke(engine, publisher, parse_time(since), end, **more)  # type: ignore[arg-type]


def say_all(engine: Engine, publisher: str, at: str, forged: bool = False) -> None:
    for view, rows in KINDS.items():
        say(engine, publisher, view, rows[forged], at)


def state(engine: Engine) -> object:
    """What readers see of all classes, with who said it and when, and the claims."""
    rows = {view: sorted(map(str, query(engine, f"SELECT * FROM {view}"))) for view in KINDS}
    claims = query(
        engine, "SELECT class, key, message_id, record FROM claim ORDER BY class, claim_id"
    )
    return rows, claims


def counts(result: Revoked) -> set[tuple[int, int]]:
    """How much was removed and recomputed, in all classes."""
    assert set(result.classes) <= set(KINDS)
    return {(withdrawn.removed, withdrawn.recomputed) for withdrawn in result.classes.values()}


def test_what_a_forger_displaced_is_back(engine: Engine) -> None:
    say_all(engine, OWNER, EARLIER)
    before = state(engine)
    say_all(engine, FORGER, LATER, forged=True)
    assert state(engine) != before

    result = revoked(engine)

    assert state(engine) == before
    assert counts(result) == {(1, 1)}


def test_what_a_forger_squatted_belongs_to_whom_it_was_refused(engine: Engine) -> None:
    say_all(engine, FORGER, LATER, forged=True)
    say_all(engine, OWNER, LAST)

    revoked(engine)

    for view, (row, _) in KINDS.items():
        assert query(engine, f"SELECT publisher FROM {view}") == [(OWNER,)]
        weight = {"weight": 3} if view == "siteGroup" else {}
        assert stored(engine, view) == [{**row, **weight, "messageId": f"{OWNER} {LAST}"}]
    assert query(engine, "SELECT * FROM claim") == []


def test_what_nobody_else_said_is_gone(engine: Engine) -> None:
    say_all(engine, FORGER, LATER, forged=True)

    assert counts(revoked(engine)) == {(1, 0)}

    assert [stored(engine, view) for view in KINDS] == [[]] * len(KINDS)
    assert query(engine, "SELECT * FROM metric_result_detail") == []
    assert counts(revoked(engine)) == set()


def test_what_was_said_outside_of_the_period_stays(engine: Engine) -> None:
    say_all(engine, FORGER, EARLIER)
    before = state(engine)
    say_all(engine, FORGER, LATER, forged=True)
    changed = state(engine)

    assert counts(revoked(engine, since=LAST)) == set()
    assert counts(revoked(engine, until=LATER)) == set()
    assert state(engine) == changed
    revoked(engine, until=LAST)

    assert state(engine) == before


def test_others_who_contest_a_row_keep_their_claims(engine: Engine) -> None:
    say_all(engine, OWNER, EARLIER)
    say_all(engine, FRIEND, EARLIER)
    before = state(engine)
    say_all(engine, FORGER, LATER, forged=True)

    revoked(engine)

    assert state(engine) == before
    assert len(query(engine, "SELECT * FROM claim")) == 2 * len(KINDS)


def test_a_dry_run_counts_the_same_and_changes_nothing(engine: Engine) -> None:
    say_all(engine, OWNER, EARLIER)
    say_all(engine, FORGER, LATER, forged=True)
    before = state(engine)

    tried = revoked(engine, dry_run=True)

    assert state(engine) == before
    assert list(operations(engine)) == []
    assert revoked(engine) == tried


def test_the_current_status_is_that_of_the_remaining_results(engine: Engine) -> None:
    times = [f"2026-11-20T1{hour}:00:00Z" for hour in range(4)]
    for at, status in zip(times, ("CRITICAL", "OK", "OK", "OK"), strict=True):
        say(engine, OWNER, "metricOutput", metric_result(timestamp=at, metricStatus=status), at)
    fold_all(engine)
    current = "SELECT status, since, measured_at, summary FROM current_status"
    before = query(engine, current)
    forged = [
        metric_result(timestamp=times[2], metricStatus="CRITICAL"),
        metric_result(timestamp="2026-11-20T15:00:00Z", metricStatus="WARNING"),
        metric_result(timestamp="2026-11-20T15:00:00Z", metricName="org.example.Forged"),
    ]
    for row in forged:
        say(engine, FORGER, "metricOutput", row, LATER)
    fold_all(engine)
    assert len(query(engine, current)) == 2

    revoked(engine)

    assert query(engine, current) == before
    fold_all(engine)
    assert query(engine, current) == before
    later = metric_result(timestamp="2026-11-20T16:00:00Z", metricStatus="OK")
    say(engine, OWNER, "metricOutput", later, LAST)
    fold_all(engine)
    [(status, since, measured_at, _)] = query(engine, current)
    assert (status, since, measured_at) == ("OK", times[1], "2026-11-20T16:00:00Z")


def due(engine: Engine) -> list[date]:
    rows = query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL ORDER BY 1")
    return [date.fromisoformat(str(day)) for (day,) in rows]


def reported(engine: Engine) -> None:
    """Results begin on November 2, and a run has read all changes since."""
    first = metric_result(timestamp="2026-11-02T00:00:00Z", hostName="other.example.org")
    say(engine, OWNER, "metricOutput", first, EARLIER)
    fold_all(engine)
    days = [f"{date(2026, 11, 2) + timedelta(days=n)}" for n in range((TODAY - NEVER).days)]
    with writing(engine) as connection:
        for day in days:
            connection.execute(
                text("INSERT INTO changed_day (day) VALUES (:day) ON CONFLICT DO NOTHING"),
                {"day": day},
            )
    with writing(engine) as connection:
        take_changes(connection)


def all_read(engine: Engine) -> None:
    fold_all(engine)
    with writing(engine) as connection:
        take_changes(connection)


@pytest.mark.parametrize(
    ("view", "row", "forged", "expected"),
    [
        (
            "serviceEndpoint",
            service_endpoint(),
            service_endpoint(validTo="2026-11-10T12:00:00Z"),
            [
                date(2026, 11, 11) + timedelta(days=n)
                for n in range((TODAY - date(2026, 11, 10)).days)
            ],
        ),
        (
            "siteGroup",
            site_group(validTo="2026-11-10T00:00:00Z"),
            site_group(validTo="2026-11-08T00:00:00Z"),
            [date(2026, 11, 8), date(2026, 11, 9)],
        ),
        (
            "downtime",
            downtime(),
            downtime(endTime="2026-11-21T12:00:00Z", timestamp="2026-11-19T00:00:00Z"),
            [date(2026, 11, 21)],
        ),
        (
            "metricOutput",
            metric_result(timestamp="2026-11-05T10:00:00Z", metricStatus="OK"),
            metric_result(timestamp="2026-11-05T10:00:00Z", metricStatus="CRITICAL"),
            [date(2026, 11, 5), date(2026, 11, 6)],
        ),
        ("siteContact", site_contact(), KINDS["siteContact"][1], []),
    ],
)
def test_exactly_the_days_that_change_are_due(
    engine: Engine, view: str, row: Values, forged: Values, expected: list[date]
) -> None:
    reported(engine)
    say(engine, OWNER, view, row, EARLIER)
    say(engine, FORGER, view, forged, LATER)
    all_read(engine)
    assert due(engine) == []

    result = revoked(engine)

    assert result.due_days == expected
    fold_all(engine)
    assert due(engine) == expected


def test_results_begin_on_the_day_of_the_first_remaining_one(engine: Engine) -> None:
    for publisher, day in ((FORGER, "03"), (FORGER, "05"), (OWNER, "09"), (FORGER, "10")):
        row = metric_result(timestamp=f"2026-11-{day}T10:00:00Z")
        say(engine, publisher, "metricOutput", row, LATER)
    all_read(engine)

    result = revoked(engine)

    assert result.due_days == [date(2026, 11, 10), date(2026, 11, 11)]
    days = query(engine, "SELECT day FROM report_changed_day ORDER BY 1")
    assert [f"{day}" for (day,) in days] == [f"2026-11-{day}" for day in ("09", "10", "11")]


def test_a_pruned_result_does_not_come_back(engine: Engine) -> None:
    times = [f"2026-11-{day}T10:00:00Z" for day in ("05", "06", "07")]
    for at in times:
        say(engine, OWNER, "metricOutput", metric_result(timestamp=at), EARLIER)
        forged = metric_result(timestamp=at, metricStatus="CRITICAL")
        say(engine, FORGER, "metricOutput", forged, LATER)
    prune(engine, Bounds(results=date(2026, 11, 7)))

    revoked(engine)

    assert query(engine, "SELECT timestamp, publisher FROM metricOutput ORDER BY 1") == [
        (at, OWNER) for at in times[1:]
    ]


def test_marks_of_others_stay(engine: Engine) -> None:
    reported(engine)
    say(engine, FORGER, "metricOutput", metric_result(timestamp="2026-11-05T10:00:00Z"), LATER)
    all_read(engine)
    other = metric_result(timestamp="2026-11-09T10:00:00Z")
    say(engine, OWNER, "serviceEndpoint", service_endpoint(), EARLIER)
    all_read(engine)
    say(engine, OWNER, "metricOutput", other, LATER)

    revoked(engine)

    assert due(engine) == [date(2026, 11, day) for day in (5, 6, 9, 10)]


def test_a_name_stands_for_all_of_its_identities(engine: Engine) -> None:
    with writing(engine) as connection:
        name_publishers(connection, {FORGER: "forger", FRIEND: "forger", OWNER: "owner"})
    for publisher, hour in ((FORGER, "10"), (FRIEND, "11"), (OWNER, "12")):
        row = metric_result(timestamp=f"2026-11-20T{hour}:00:00Z")
        say(engine, publisher, "metricOutput", row, LATER)

    result = revoked(engine, "forger")

    assert sorted(result.identities) == [FORGER, FRIEND]
    assert query(engine, "SELECT publisher FROM metricOutput") == [(OWNER,)]


def test_an_unknown_publisher_is_refused_with_the_nearest_name(engine: Engine) -> None:
    with writing(engine) as connection:
        publisher_ids(connection, [OWNER])

    with pytest.raises(NoSuchPublisher, match="key:owner"):
        revoked(engine, "key:ownr")


def test_open_dead_letters_of_the_period_are_dropped(engine: Engine) -> None:
    with writing(engine) as connection:
        ids = publisher_ids(connection, [FORGER, OWNER])
    moments = {"sqlite": lambda t: int(parse_time(t).timestamp()), "postgresql": parse_time}
    moment = moments[engine.dialect.name]
    for number, (publisher, at) in enumerate([(FORGER, EARLIER), (FORGER, LATER), (OWNER, LATER)]):
        with writing(engine) as connection:
            connection.execute(
                text("""
                    INSERT INTO dead_letter (
                        message_id, record_number, message_class, reason, error, headers, body,
                        body_bytes, body_digest, received_at, changed_at, publisher_id
                    )
                    VALUES (:id, 0, 'c', 'r', 'e', '{}', :body, 1, :body, :at, :at, :publisher_id)
                """),
                {
                    "id": f"{number}",
                    "body": b"x",
                    "at": moment(at),
                    "publisher_id": ids[publisher],
                },
            )

    assert revoked(engine).dead_letters == 1

    rows = query(engine, "SELECT message_id FROM dead_letter WHERE state = 'dropped'")
    assert rows == [("1",)]


def test_a_revocation_is_an_operation(engine: Engine) -> None:
    say(engine, FORGER, "siteContact", site_contact(), LATER)

    revoked(engine, until=LAST)

    [operation] = operations(engine)
    assert operation.command == "revoke"
    assert FORGER in operation.arguments
    assert SINCE in operation.arguments and LAST in operation.arguments


def test_sealed_months_of_due_days_are_named(engine: Engine) -> None:
    reported(engine)
    say(engine, FORGER, "metricOutput", metric_result(timestamp="2026-11-05T10:00:00Z"), LATER)
    with writing(engine) as connection:
        for month in ("2026-10", "2026-11"):
            now = 0 if engine.dialect.name == "sqlite" else datetime.now(UTC)
            connection.execute(
                text("INSERT INTO seal VALUES ('critical', :month, 1, 'jane', :now)"),
                {"month": month, "now": now},
            )

    assert revoked(engine).sealed == [("critical", "2026-11")]


@only_on("postgresql")
@pytest.mark.parametrize("role", ["loader", "reporter", "reader"])
def test_only_the_owner_revokes(engine: Engine, role: str) -> None:
    say(engine, FORGER, "metricOutput", metric_result(), LATER)

    with acting_as(role, engine) as acting, pytest.raises(DatabaseRefused):
        revoked(acting)

    assert len(stored(engine, "metricOutput")) == 1


@only_on("postgresql")
def test_a_statement_that_is_being_stored_is_not_lost(engine: Engine) -> None:
    row, forged = KINDS["metricOutput"]
    say(engine, FORGER, "metricOutput", forged, LATER)
    about = {"publisher": OWNER, "messageId": "m-2", "receivedAt": LAST}
    values = {**row, **about}
    names, bound = ", ".join(values), ", ".join(f":{name}" for name in values)
    loading = text(f"INSERT INTO metricOutput ({names}) VALUES ({bound})")

    with ThreadPoolExecutor() as pool:
        with writing(engine) as loader:
            loader.execute(loading, values)
            revocation = pool.submit(revoked, engine)
            wait_for_lock(engine)
        revocation.result(timeout=60)

    assert query(engine, "SELECT publisher, metricStatus FROM metricOutput") == [(OWNER, "OK")]


def wait_for_lock(engine: Engine) -> None:
    """Wait until another session waits for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    deadline = time.monotonic() + 30
    while query(engine, waiting) == [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
