"""Revocations: what others said, as if the publisher had never said anything."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.program.command import NO_INPUT, OK, USAGE
from sam_pipeline.schema.times import parse_time
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.database.operations import (
    operations,
)
from sam_pipeline.sql.database.statements import HISTORIES
from sam_pipeline.sql.errors import DatabaseRefused
from sam_pipeline.sql.loading.authorise import name_publishers
from sam_pipeline.sql.loading.fold import fold_all, take_changes
from sam_pipeline.sql.removal.revoke import Revoked, revoke
from tests.oracle.databases import DIALECTS, Databases
from tests.support.builders import metric_result
from tests.support.database.dialects import only_on
from tests.support.database.letters import list_dead_letters, load_now
from tests.support.database.roles import acting_as
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import (
    EXAMPLES,
    WINNING,
    Values,
    insert,
    message_of,
    query,
    service_endpoint,
    stored,
)
from tests.support.database.statement_worlds import Act, arriving, assert_same, facts_after, without
from tests.support.waiting import eventually
from tests.worlds.statements import FORGER as FORGER_OF_WORLDS
from tests.worlds.statements import HONEST, OTHER_FORGER, PROBES, random_worlds

FORGER, OWNER, FRIEND = "broker:stomp://b:61613/forger", "key:owner", "key:friend"
SINCE = "2026-11-21T00:00:00Z"
EARLIER, LATER, LAST = "2026-11-20T23:00:00Z", "2026-11-21T01:00:00Z", "2026-11-21T02:00:00Z"
TODAY = datetime.now(UTC).date()


def say(engine: Engine, publisher: str, view: str, row: Values, at: str) -> None:
    """Insert a row as the loader does, at a certain time."""
    about = {"publisher": publisher, "messageId": f"{publisher} {at}", "receivedAt": at}
    insert(engine, view, {**row, **about})


def say_all(engine: Engine, publisher: str, at: str, forged: bool = False) -> None:
    for view, row in EXAMPLES.items():
        say(engine, publisher, view, {**row, **WINNING[view]} if forged else row, at)


def revoked(engine: Engine, publisher: str = FORGER, since: str = SINCE, **more: object) -> Revoked:
    until = more.pop("until", None)
    end = parse_time(str(until)) if until else None
    return revoke(engine, publisher, parse_time(since), end, **more)  # type: ignore[arg-type]


def state(engine: Engine) -> object:
    """What readers see of all classes, with who said it and when, and all that was said."""
    said = [f"{view} WHERE withdrawnAt IS NULL" for view in HISTORIES.values()]
    rows = {
        name: sorted(map(str, query(engine, f"SELECT * FROM {name}")))
        for name in (*EXAMPLES, *said, "result_repeat")
    }
    details = query(engine, "SELECT ordinal, details FROM metric_result_detail ORDER BY 1")
    return rows, details


def counts(result: Revoked) -> Mapping[str, tuple[int, int]]:
    """How much was removed and restored, by class."""
    return {
        name: (withdrawn.removed, withdrawn.restored) for name, withdrawn in result.classes.items()
    }


def test_what_a_forger_displaced_is_back_with_all_that_others_said(engine: Engine) -> None:
    """And a dry run counts the same and changes nothing."""
    say_all(engine, OWNER, EARLIER)
    say_all(engine, FRIEND, EARLIER)
    before = state(engine)
    say_all(engine, FORGER, LATER, forged=True)
    forged = state(engine)
    assert forged != before
    tried = revoked(engine, dry_run=True)
    assert state(engine) == forged
    assert list(operations(engine)) == []

    result = revoked(engine, until=LAST)

    assert result == tried
    assert state(engine) == before
    assert counts(result) == {view: (1, int(view != "metricOutput")) for view in EXAMPLES}
    [operation] = operations(engine)
    assert (operation.command, FORGER in operation.arguments) == ("revoke", True)


def test_what_nobody_else_said_is_gone_within_the_period_only(engine: Engine) -> None:
    say_all(engine, FORGER, EARLIER)
    before = state(engine)
    say_all(engine, FORGER, LATER, forged=True)
    revoked(engine, until=LAST)
    assert state(engine) == before

    assert counts(revoked(engine, since=EARLIER)) == dict.fromkeys(EXAMPLES, (1, 0))

    assert [stored(engine, view) for view in EXAMPLES] == [[]] * len(EXAMPLES)
    assert query(engine, "SELECT * FROM metric_result_detail") == []
    assert counts(revoked(engine)) == {}


def test_an_equal_result_passes_to_the_next_who_sent_it(engine: Engine) -> None:
    row = EXAMPLES["metricOutput"]
    for publisher, at in ((FORGER, EARLIER), (OWNER, LATER), (FRIEND, LAST)):
        say(engine, publisher, "metricOutput", row, at)
    other = {**row, "summaryData": "another"}
    say(engine, OWNER, "metricOutput", other, LAST)

    # Only what is gone changes a report; without results there is none.
    for publisher, left, due_days in (
        (FORGER, [OWNER, OWNER], 0),
        (OWNER, [FRIEND], 2),
        (FRIEND, [], 0),
    ):
        result = revoked(engine, publisher, EARLIER)
        assert query(engine, "SELECT publisher FROM metricOutput") == [(one,) for one in left]
        assert len(result.due_days) == due_days


def test_a_result_that_arrives_after_a_revocation_is_shown(engine: Engine) -> None:
    """On SQLite it takes the number of the one that was deleted."""
    for publisher, host in ((OWNER, "h1.org"), (FORGER, "h2.org")):
        say(engine, publisher, "metricOutput", metric_result(hostName=host), LATER)
        fold_all(engine)
    revoked(engine)

    say(engine, OWNER, "metricOutput", metric_result(hostName="h3.org"), LAST)
    fold_all(engine)

    shown = query(engine, "SELECT host_name FROM current_status WHERE status = 'OK' ORDER BY 1")
    assert shown == [("h1.org",), ("h3.org",)]


def test_a_revocation_is_undone_and_a_redelivery_is_not_one(engine: Engine) -> None:
    say_all(engine, OWNER, EARLIER)
    say_all(engine, FORGER, LATER, forged=True)
    forged = {view: stored(engine, view) for view in HISTORIES}
    revoked(engine)
    honest = {view: stored(engine, view) for view in HISTORIES}
    assert all(honest[view] != forged[view] for view in HISTORIES)

    say_all(engine, FORGER, LATER, forged=True)
    assert {view: stored(engine, view) for view in HISTORIES} == honest

    assert counts(revoked(engine, undo=True)) == dict.fromkeys(HISTORIES, (1, 1))
    assert {view: stored(engine, view) for view in HISTORIES} == forged
    assert counts(revoked(engine, undo=True)) == {}
    assert [each.command for each in operations(engine)] == ["revoke", *["revoke undo"] * 2]


# Days that are due ----------------------------------------------------------------------------


def due(engine: Engine) -> list[date]:
    rows = query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL ORDER BY 1")
    return [date.fromisoformat(str(day)) for (day,) in rows]


def test_exactly_the_days_that_change_are_due(engine: Engine) -> None:
    """The days from the end that was forged until today, which a run had read before."""
    end = {"validTo": "2026-11-10T12:00:00Z", "timestamp": LATER}
    first, forged = date(2026, 11, 11), service_endpoint(**end)
    result = metric_result(timestamp="2026-11-02T00:00:00Z", hostName="other.example.org")
    say(engine, OWNER, "metricOutput", result, EARLIER)
    say(engine, OWNER, "serviceEndpoint", service_endpoint(), EARLIER)
    say(engine, FORGER, "serviceEndpoint", forged, LATER)
    fold_all(engine)
    with writing(engine) as connection:
        take_changes(connection)
    assert due(engine) == []

    days = revoked(engine).due_days

    today = datetime.now(UTC).date()  # midnight may have passed since the tests began
    assert days == [first + timedelta(days=number) for number in range((today - first).days + 1)]
    fold_all(engine)
    assert due(engine) == days


# Whose, and by whom ---------------------------------------------------------------------------


def test_open_dead_letters_of_the_period_are_dropped(engine: Engine) -> None:
    for publisher, at in ((FORGER, EARLIER), (FORGER, LATER), (OWNER, LATER)):
        bad = message_of("siteContact", {"siteName": "A"}, sender=publisher)
        load_now(engine, bad, now=parse_time(at))

    assert revoked(engine).dead_letters == 1

    open_ones = [(one.publisher, one.received_at) for one in list_dead_letters(engine)]
    assert open_ones == [(FORGER, parse_time(EARLIER)), (OWNER, parse_time(LATER))]


def test_the_command_prints_what_it_restores(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    day = TODAY - timedelta(days=1)
    with writing(engine) as connection:
        name_publishers(connection, {FORGER: "forger", FRIEND: "forger", OWNER: "owner"})
    for publisher, status in ((OWNER, "OK"), (FORGER, "CRITICAL"), (FRIEND, "UNKNOWN")):
        row = metric_result(metricStatus=status, timestamp=f"{day}T12:00:00Z")
        insert(engine, "metricOutput", {**row, "publisher": publisher})
    command = ["revoke", "--since", f"{day}T00:00Z", "--publisher", "forger"]  # of both

    assert main([*command[:-1], "key:ownr"]) == NO_INPUT
    with pytest.raises(SystemExit) as caught:
        main([*command, "--until", f"{day}T00:00Z"])
    assert caught.value.code == USAGE
    assert main(command) == OK
    assert [row["metricStatus"] for row in stored(engine, "metricOutput")] == ["OK"]
    printed = capsys.readouterr().out
    assert "metricOutput: 2 records revoked" in printed
    assert f"due: {day} {TODAY}" in printed


@only_on("postgresql")
@pytest.mark.parametrize("role", ["loader", "reporter", "reader"])
def test_only_the_owner_revokes(engine: Engine, role: str) -> None:
    say(engine, FORGER, "metricOutput", metric_result(), LATER)

    with acting_as(role, engine) as acting, pytest.raises(DatabaseRefused):
        revoked(acting)

    assert len(stored(engine, "metricOutput")) == 1


@only_on("postgresql")
def test_a_statement_that_is_being_stored_is_not_lost(engine: Engine) -> None:
    forged = metric_result(metricStatus="CRITICAL", summaryData="forged")
    say(engine, FORGER, "metricOutput", forged, LATER)
    values = {**metric_result(), "publisher": OWNER, "messageId": "m-2", "receivedAt": LAST}
    names, bound = ", ".join(values), ", ".join(f":{name}" for name in values)
    loading = text(f"INSERT INTO metricOutput ({names}) VALUES ({bound})")
    waiting = """
        SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()
    """

    with ThreadPoolExecutor() as pool:
        with writing(engine) as loader:
            loader.execute(loading, values)
            revocation = pool.submit(revoked, engine)
            eventually(lambda: query(engine, waiting) != [(0,)])
        revocation.result(timeout=60)

    assert query(engine, "SELECT publisher, metricStatus FROM metricOutput") == [(OWNER, "OK")]


# Random worlds --------------------------------------------------------------------------------

WORLDS = 50


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_arrives_after_a_revocation_meets_a_world_without_the_forger(
    databases: Databases, dialect: str
) -> None:
    """And another forger can be revoked from there."""
    before = random_worlds(2, WORLDS, (*HONEST, FORGER_OF_WORLDS, OTHER_FORGER))
    after = random_worlds(3, WORLDS, (PROBES, OTHER_FORGER))
    acts = (arriving(before), revoking(FORGER_OF_WORLDS), arriving(after), revoking(OTHER_FORGER))

    found = facts_after(databases, dialect, *acts)

    honest = [without(worlds, FORGER_OF_WORLDS, OTHER_FORGER) for worlds in (before, after)]
    expected = facts_after(databases, dialect, *map(arriving, honest))
    together = [[*first, *then] for first, then in zip(before, after, strict=True)]
    assert_same(found, expected, together)


def revoking(publisher: str) -> Act:
    def act(engine: Engine) -> None:
        revoked(engine, publisher, "2000-01-01T00:00:00Z")

    return act
