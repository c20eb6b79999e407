"""What holds of all that was said, against an interpreter that has no code of ours."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, column, insert, table, text

from sam_pipeline.schema.program.command import OK
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, STATEMENTS
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.database.statements import HISTORIES, TABLES, settle
from sam_pipeline.sql.imports.feed_changes import FeedSnapshot, apply_snapshot
from sam_pipeline.sql.imports.feed_rows import FeedRows
from sam_pipeline.sql.loading.fold import take_changes
from sam_pipeline.sql.removal.revoke import revoke
from tests.oracle.databases import DIALECTS, Databases
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import query, stored
from tests.worlds.said import FEEDS, STEPS, Interpreter, Record, Said, World, moment, random_world

WORLDS = 1_000
"""On each of the databases."""
REVOKED = {3: ("key:c", 1, 3, False), 5: ("key:b", 0, 6, False), 7: ("key:b", 0, 6, True)}
"""After which step: whose, received since and until which step, and whether it is undone."""


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_holds_is_what_was_said_last_and_not_withdrawn(
    databases: Databases, dialect: str
) -> None:
    chance = random.Random(38 + DIALECTS.index(dialect))
    worlds = [random_world(chance, f"w{number}") for number in range(WORLDS)]
    expected = [interpreted(world) for world in worlds]

    with databases.empty(dialect) as engine:
        for step in range(STEPS):
            hear(engine, [world.steps[step] for world in worlds], step)
            for feed in FEEDS:
                take(engine, feed, [world.exports[step][feed] for world in worlds], step)
            if step in REVOKED:
                publisher, since, until, undo = REVOKED[step]
                times = (parse_time(moment(since)), parse_time(moment(until)))
                revoke(engine, publisher, *times, undo=undo)
        found = contents(engine)
        with writing(engine) as connection:
            assert [settle(connection, each) for each in TABLES] == [0, 0, 0, 0]
        one_each = "SELECT count(*) FROM {} WHERE holds"
        for known in STATEMENTS:
            [(held,)] = query(engine, one_each.format(HISTORIES[known.name]))
            assert held == len(stored(engine, known.name))

    different = [n for n in range(WORLDS) if found[f"w{n}"] != expected[n]]
    if different:
        shortest = min(different, key=lambda n: sum(map(len, worlds[n].steps)))
        said = "\n".join(f"{n}: {step}" for n, step in enumerate(worlds[shortest].steps))
        exports = "\n".join(f"{n}: {each}" for n, each in enumerate(worlds[shortest].exports))
        wrong, right = found[f"w{shortest}"], expected[shortest]
        pytest.fail(
            f"{len(different)} worlds differ, w{shortest}:\n{said}\n{exports}\n"
            f"too much: {sorted(wrong - right)}\nmissing: {sorted(right - wrong)}"
        )


def test_an_older_file_that_is_imported_again_counts_again(
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    header = "siteName,groupName,groupType,weight,validFrom\n"
    for name, weight in (("old", 1), ("new", 2)):
        (tmp_path / name).write_text(f"{header}A,G,federation,{weight},2026-11-01\n")

    for name in ("old", "new", "new", "old", "old"):
        assert main(["import", "csv", "--class", "siteGroup", str(tmp_path / name)]) == OK
    capsys.readouterr()
    assert main(["class", "history", "siteGroup", "--site", "A", "--json"]) == OK

    said = json.loads(capsys.readouterr().out)
    assert [(each["weight"], each["holds"]) for each in said] == [
        ("1", False),
        ("2", False),
        ("1", True),
    ]
    assert {each["source"] for each in said} == {"file"}
    assert main(["downtime", "list", "--history"]) == OK
    assert main(["class", "history", "siteContact"]) == OK

    operator = said[0]["publisher"]
    assert main(["revoke", "--publisher", operator, "--since", "2026-11-01T00:00Z"]) == OK
    assert stored(engine, "siteGroup") == []
    assert main(["import", "csv", "--class", "siteGroup", str(tmp_path / "old")]) == OK
    assert [row["weight"] for row in stored(engine, "siteGroup")] == [1]


def test_each_day_is_due_on_which_what_is_read_of_a_downtime_has_changed(engine: Engine) -> None:
    """When it counts as announced included, which statements that do not hold change too."""
    chance = random.Random(8)
    today, last = datetime.now(UTC).date(), datetime.now(UTC) - timedelta(days=20)

    def day(number: int) -> str:
        return (today + timedelta(days=number)).isoformat()

    with writing(engine) as connection:
        insert_day = "INSERT INTO changed_day (day) VALUES (:day)"
        connection.execute(text(insert_day), {"day": day(-30)})
    before: dict[str, list[object]] = {}
    for step in range(100):
        with writing(engine) as connection:
            take_changes(connection)
        received = last + timedelta(minutes=step)
        if step % 9 == 8:
            since = received - timedelta(minutes=chance.randrange(1, 12))
            undo = step % 27 == 26
            revoke(engine, chance.choice(["key:a", "key:b"]), since, received, undo=undo)
        else:
            start = chance.choice([-6, -5])
            row = {
                "siteName": "A",
                "downtimeId": "1",
                "startTime": f"{day(start)}T00:00:00Z",
                "endTime": f"{day(chance.choice([-3, -2]))}T12:00:00Z",
                "classification": "SCHEDULED",
                "severity": chance.choice(["OUTAGE", "OUTAGE", "WARNING"]),
                "timestamp": format_time(received - timedelta(hours=chance.randrange(30))),
                "announcedAt": format_time(received - timedelta(days=chance.randrange(5))),
                "publisher": chance.choice(["key:a", "key:b"]),
                "messageId": f"m{step}",
                "receivedAt": format_time(received),
            }
            target = table("downtime", *(column(name.lower()) for name in row))
            with writing(engine) as connection:
                values = {name.lower(): value for name, value in row.items()}
                connection.execute(insert(target), values)
        after: dict[str, list[object]] = defaultdict(list)
        read = "SELECT start_s, end_s, classification, severity, announced_s FROM report_downtime"
        for begin, end, *facts in query(engine, f"{read} ORDER BY start_s"):
            for number in range(-6, 0):
                midnight = parse_time(f"{day(number)}T00:00:00Z").timestamp()
                overlap = max(begin, midnight), min(end, midnight + 86_400)
                if overlap[0] < overlap[1]:
                    after[day(number)].append((*overlap, *facts))
        changed = {each for each in {*before, *after} if before.get(each) != after.get(each)}
        marked = query(engine, "SELECT day FROM report_changed_day WHERE change_no IS NULL")
        assert changed <= {str(each) for (each,) in marked}, step
        before = after


Fact = tuple[str, str, str]


def interpreted(world: World) -> set[Fact]:
    model = Interpreter()
    for step in range(STEPS):
        for said in world.steps[step]:
            model.hear(said, moment(step))
        for feed in FEEDS:
            for view, rows in world.exports[step][feed].items():
                model.hear_feed(feed, view, rows, moment(step))
        if step in REVOKED:
            publisher, since, until, undo = REVOKED[step]
            model.withdraw(publisher, moment(since), moment(until), undo)
    return {fact(view, record, source) for view, record, source in model.rows()}


def fact(view: str, record: Record, source: str) -> Fact:
    return view, repr(sorted(record.items())), source


def hear(engine: Engine, steps: Sequence[Sequence[Said]], step: int) -> None:
    """Insert what all worlds say at one step, in the order of each world."""
    by_view: dict[str, list[Mapping[str, str | None]]] = defaultdict(list)
    for said in (said for of_world in steps for said in of_world):
        facts = {"publisher": said.publisher or None, "messageId": said.message_id}
        about = {**facts, "receivedAt": moment(step), "source": said.source}
        by_view[said.view].append({**said.record, **about})
    keys = {known.name: known.keys for known in STATEMENTS}
    for view, rows in by_view.items():
        names = (*keys[view], "publisher", "messageId", "receivedAt", "source")
        target = table(view.lower(), *(column(name.lower()) for name in names))
        values = [{name.lower(): row.get(name) for name in names} for row in rows]
        with writing(engine) as connection:
            connection.execute(insert(target), values)


def take(
    engine: Engine, feed: str, exports: Sequence[Mapping[str, Sequence[Record]]], step: int
) -> None:
    """Import a snapshot of all worlds' exports."""
    rows = {
        known: [row for export in exports for row in export[known.name]]
        for known in (SERVICE_ENDPOINT, DOWNTIME)
    }
    snapshot = FeedSnapshot(feed, moment(step), accept_shrinking=True)
    apply_snapshot(
        engine, FeedRows("gocdb", rows[SERVICE_ENDPOINT], downtimes=rows[DOWNTIME]), snapshot
    )


def contents(engine: Engine) -> Mapping[str, set[Fact]]:
    """What the views show of each world, without times of statements."""
    found: dict[str, set[Fact]] = defaultdict(set)
    for known in STATEMENTS:
        names = [key for key in known.keys if key != "timestamp"]
        for *values, source in query(
            engine, f"SELECT {', '.join(names)}, source FROM {known.name}"
        ):
            record = {n: str(v) for n, v in zip(names, values, strict=True) if v is not None}
            world = record["siteName"].partition("-")[0]
            found[world].add(fact(known.name, record, source))
    return found
