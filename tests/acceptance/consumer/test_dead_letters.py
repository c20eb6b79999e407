"""Dead letters from end to end: an operator lists, shows, edits, replays and drops them."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.services.postgres import PostgresServer, as_role, fresh_database
from tests.support.commands import PROGRAMS, Answer, Workplace, embedded, embedded_workplace
from tests.support.reports.stored import execute, query

USAGE, BAD_DATA, NO_INPUT, NO_PERMISSION = 64, 65, 66, 77

GOOD = """\
hostName: ce01.example.org
serviceFlavour: CE
metricName: org.example.Ping
metricStatus: OK
timestamp: 2024-02-28T12:00:00Z
EOT
"""
BAD = GOOD.replace("metricStatus: OK", "metricStatus: SPLENDID")
ESCAPES = "\x1b[2J"


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedded(tmp_path_factory.mktemp("empty")).directory / "sam.db"


@pytest.fixture
def small(tmp_path: Path, empty_database: Path) -> Workplace:
    """A workplace with a spool and SQLite."""
    shutil.copy(empty_database, tmp_path)
    return embedded_workplace(tmp_path)


@pytest.fixture
def big(tmp_path: Path, postgres: PostgresServer) -> Workplace:
    """A workplace on PostgreSQL, with each program under its role."""
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path}/spool", database=fresh_database(postgres)
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    return workplace


@pytest.fixture(params=["small", "big"])
def workplace(request: pytest.FixtureRequest) -> Workplace:
    workplace: Workplace = request.getfixturevalue(request.param)
    return workplace


def test_a_bad_record_is_found_fixed_and_loaded(workplace: Workplace) -> None:
    file = workplace.write("message.txt", BAD)
    workplace.succeed("sam-publish", "send", "--raw", file)
    assert workplace.run("sam-consume", "run", "--drain").code == BAD_DATA
    [letter] = listed(workplace)
    number = str(letter["dead_letter_id"])
    assert (letter["message_class"], letter["reason"]) == ("metricOutput", "bad-status")
    assert "SPLENDID" in letter["error"]

    answer = dead_letter(workplace, "edit", number, "--body", "-", "--replay", "--json", stdin=GOOD)

    assert answer.code == 0, str(answer)
    edited = answer.json
    assert (edited["edited_from"], edited["replayed"]["outcome"]) == (int(number), "loaded")
    assert statuses(workplace) == ["OK"]
    assert listed(workplace) == []
    old, new = dead_letter(workplace, "show", number, str(edited["dead_letter_id"]), "--json").json
    assert (old["state"], old["edited_as"], old["body"]) == ("dropped", new["dead_letter_id"], BAD)
    assert (new["state"], new["edited_from"], new["body"]) == ("replayed", int(number), GOOD)


def test_a_repeated_replay_reports_the_outcome_of_each_letter(workplace: Workplace) -> None:
    for name in ("rain", "snow"):
        park(workplace, "sky: blue\nEOT\n", message_class=name)
    rain, snow = (str(letter["dead_letter_id"]) for letter in listed(workplace))
    make_class(workplace, "rain")

    first = dead_letter(workplace, "replay", "--all")
    again = dead_letter(workplace, "replay", rain, snow)

    assert (first.code, again.code) == (BAD_DATA, BAD_DATA)
    assert cells(first) == [[rain, "loaded"], [snow, "failed", "unknown-class"]]
    assert cells(again)[0] == [rain, "skipped", "already replayed"]
    assert "2 dead letters, 1 loaded, 1 failed" in first.err
    assert dead_letter(workplace, "replay", rain).code == 0
    assert query(workplace.database, "SELECT sky FROM kept_rain") == [{"sky": "blue"}]


def test_dropped_letters_are_counted_and_never_loaded(workplace: Workplace) -> None:
    park(workplace, BAD, BAD.replace("ce01", "ce02"))
    first, second = (str(letter["dead_letter_id"]) for letter in listed(workplace))

    by_age = dead_letter(
        workplace, "drop", "--reason", "bad-status", "--older-than", "30d", "--json"
    )
    all_dropped = dead_letter(workplace, "drop", "--all")

    assert by_age.json == {"dropped": 0, "not_open": 0}
    assert all_dropped.out == "dropped 2 dead letters\n"
    again = dead_letter(workplace, "drop", first, second)
    assert again.out.startswith("dropped 0 dead letters, 2 ")
    replayed = dead_letter(workplace, "replay", first, "--json")
    assert (replayed.code, replayed.json[0]["state"]) == (BAD_DATA, "dropped")
    assert [letter["state"] for letter in listed(workplace, "--state", "any")] == [
        "dropped",
        "dropped",
    ]


def test_a_misspelt_reason_or_class_drops_nothing_and_names_the_nearest(small: Workplace) -> None:
    park(small, BAD)

    by_reason = dead_letter(small, "drop", "--reason", "bad-satus")
    by_class = dead_letter(small, "drop", "--class", "metricOuput")

    assert (by_reason.code, by_class.code) == (USAGE, USAGE)
    assert "did you mean bad-status?" in by_reason.err
    assert "unknown-class" in by_reason.err
    assert "did you mean metricOutput?" in by_class.err
    assert [letter["state"] for letter in listed(small)] == ["open"]


def test_a_letter_that_was_dropped_by_mistake_is_restored_and_replayed(
    workplace: Workplace,
) -> None:
    park(workplace, "sky: blue\nEOT\n", message_class="rain")
    park(workplace, BAD)
    rain, bad = (str(letter["dead_letter_id"]) for letter in listed(workplace))
    dead_letter(workplace, "edit", bad, "--body", "-", stdin=GOOD)
    assert dead_letter(workplace, "drop", rain).code == 0

    restored = dead_letter(workplace, "restore", "--all", "--json")
    edited = dead_letter(workplace, "restore", bad)

    assert (restored.code, restored.json["restored"]) == (0, 1)
    assert edited.out.startswith("restored 0 dead letters, 1 ")  # another letter has replaced it
    make_class(workplace, "rain")
    assert cells(dead_letter(workplace, "replay", rain)) == [[rain, "loaded"]]


def test_a_replay_says_which_dead_letters_replace_a_message(
    workplace: Workplace,
) -> None:
    repair = break_class(workplace)
    workplace.succeed("sam-publish", "send", "--raw", workplace.write("two.txt", GOOD + BAD))
    assert workplace.run("sam-consume", "run", "--drain").code == BAD_DATA
    [parked] = listed(workplace)
    execute(workplace.database, repair)

    replayed = dead_letter(workplace, "replay", str(parked["dead_letter_id"]))

    assert replayed.code == BAD_DATA
    [new] = listed(workplace)
    assert new["reason"] == "bad-status"
    [[number, outcome, text]] = cells(replayed)
    assert (number, outcome) == (str(parked["dead_letter_id"]), "replaced")
    assert text.endswith(f" {new['dead_letter_id']}")
    assert statuses(workplace) == ["OK"]


def test_long_lists_and_letters_are_cut_unless_all_of_them_is_asked_for(small: Workplace) -> None:
    with_details = f"{BAD.removesuffix('EOT' + chr(10))}detailsData: {'x' * 50_000}\nEOT\n"
    park(small, *(with_details.replace("ce01", f"ce{number}") for number in range(6)))
    park(small, *(BAD.replace("ce01", f"wn{number}") for number in range(54)))
    assert len(listed(small)) == 60

    newest = dead_letter(small, "list")
    shown = dead_letter(small, "show", "--reason", "bad-status")

    assert len(cells(newest)) == 50
    assert "the newest 50 of 60" in newest.err
    assert len(cells(dead_letter(small, "list", "--all"))) == 60
    assert len(shown.out) < 100_000
    assert "--all" in shown.err
    assert len(dead_letter(small, "show", "--all").out) > 300_000


def test_a_list_on_a_terminal_goes_through_the_pager_unless_all_is_wanted(small: Workplace) -> None:
    park(small, *(BAD.replace("ce01", f"wn{number}") for number in range(3)))

    def on_a_terminal(*arguments: str) -> str:
        leader, follower = pty.openpty()
        command = [PROGRAMS / "sam-consume", "dead-letter", *arguments]
        environment = {**small.clean_environment(), "PAGER": "sed 's/^/paged: /'"}
        try:
            done = subprocess.run(
                command, cwd=small.directory, env=environment, stdout=follower, timeout=60
            )
            assert done.returncode == 0
            return os.read(leader, 100_000).decode()
        finally:
            os.close(leader)
            os.close(follower)

    assert on_a_terminal("list").count("paged: ") == 5
    assert on_a_terminal("show", "1").startswith("paged: dead_letter_id: 1")
    assert "paged" not in on_a_terminal("list", "--all")


def test_letters_are_counted_by_sender_and_read_in_portions(workplace: Workplace) -> None:
    workplace = replace(workplace, environment={**workplace.environment, "LOGNAME": "nagios"})
    bodies = [BAD.replace("ce01", f"wn{number}") for number in range(3)]
    files = [workplace.write(f"{number}.txt", body) for number, body in enumerate(bodies)]
    workplace.succeed("sam-publish", "send", "--raw", *files)
    assert workplace.run("sam-consume", "run", "--drain").code == BAD_DATA

    [group] = dead_letter(workplace, "list", "--by", "sender", "--json").json
    first = listed(workplace, "--after", "0", "--limit", "2")
    rest = listed(workplace, "--after", str(first[-1]["dead_letter_id"]))

    assert group["letters"] == 3
    assert (group["sender"], group["known_by"]) == (f"uid:{os.getuid()}", "established")
    ids = [letter["dead_letter_id"] for letter in [*first, *rest]]
    assert (len(first), ids[-1]) == (2, group["example_id"])
    assert ids == sorted(set(ids))
    assert {letter["claimed_user"] for letter in [*first, *rest]} == {"nagios"}
    assert {letter["claimed_host"] for letter in first} == {os.uname().nodename}
    table = dead_letter(workplace, "list").out
    assert f"uid:{os.getuid()}, nagios@{os.uname().nodename} (claimed)" in table


def test_the_daemon_loads_parked_messages_once_their_class_is_repaired(
    workplace: Workplace,
) -> None:
    repair = break_class(workplace)
    workplace.succeed("sam-publish", "send", stdin=GOOD)

    with workplace.running("sam-consume", "run"):
        eventually(lambda: count(workplace, "open") == 1)
        execute(workplace.database, repair)
        eventually(lambda: count(workplace, "replayed") == 1)
        log = workplace.directory / "running.log"
        eventually(lambda: "replaying messages" in log.read_text())  # after the commit

    assert statuses(workplace) == ["OK"]


def test_ten_thousand_parked_messages_are_replayed_in_reasonable_time(workplace: Workplace) -> None:
    """The table is filled with copies of one letter, which is quicker than loading them."""
    repair = break_class(workplace)
    park(workplace, GOOD)
    execute(workplace.database, copies(10_000))
    execute(workplace.database, repair)

    began = time.monotonic()
    answer = dead_letter(workplace, "replay", "--reason", "class-broken", "--json")

    assert answer.code == 0, str(answer)[-2000:]
    assert [replayed["outcome"] for replayed in answer.json] == ["loaded"] * 10_001
    assert time.monotonic() - began < 60  # 5 s on a busy laptop
    assert count(workplace, "open") == 0


def test_a_missing_privilege_is_reported(big: Workplace) -> None:
    park(big, BAD)
    file = big.write("history.txt", GOOD)
    execute(big.database, "REVOKE UPDATE (state) ON dead_letter FROM sam_loader")
    execute(big.database, "REVOKE UPDATE (reason) ON dead_letter FROM sam_loader")
    execute(big.database, "REVOKE UPDATE (error) ON dead_letter FROM sam_loader")
    execute(big.database, "REVOKE UPDATE (changed_at) ON dead_letter FROM sam_loader")
    execute(big.database, "REVOKE INSERT ON metricOutput FROM sam_loader")
    execute(big.database, "REVOKE EXECUTE ON FUNCTION metricOutput_load FROM sam_loader")
    as_loader = replace(big, environment={"SAM_DATABASE_URL": as_role(big.database, "loader")})

    replayed = dead_letter(big, "replay", "--all")
    dropped = dead_letter(big, "drop", "--all")
    imported = as_loader.run("sam-db", "import", "records", file)

    for answer in (replayed, dropped, imported):
        assert answer.code == NO_PERMISSION, str(answer)
        assert "permission denied" in answer.err
    assert [letter["state"] for letter in listed(big)] == ["open"]


def test_an_edited_body_becomes_a_new_letter(small: Workplace) -> None:
    park(small, BAD)
    [letter] = listed(small)
    number = str(letter["dead_letter_id"])
    small = with_editor(small, "sed -i s/SPLENDID/WARNING/")

    answer = dead_letter(small, "edit", number, "--replay")

    assert answer.code == 0, str(answer)
    assert f"dead letter {number} was replaced by" in answer.out
    assert statuses(small) == ["WARNING"]
    assert left_behind(small) == []


@pytest.mark.parametrize(
    ("editor", "stem"),
    [("true", "nothing changed"), ("false", "status 1"), ("no-such-editor", "No such file")],
)
def test_an_editor_that_changes_nothing_changes_nothing(
    small: Workplace, editor: str, stem: str
) -> None:
    park(small, BAD)
    before = listed(small, "--state", "any")

    answer = dead_letter(with_editor(small, editor), "edit", str(before[0]["dead_letter_id"]))

    assert answer.code == USAGE, str(answer)
    assert stem in answer.err
    assert listed(small, "--state", "any") == before
    assert left_behind(small) == []


def test_an_edit_that_cannot_be_stored_is_kept_in_a_file(small: Workplace) -> None:
    park(small, BAD)
    [letter] = listed(small)
    number = str(letter["dead_letter_id"])
    dropping = small.write(
        "editor",
        f"""#!/bin/sh
sed -i s/SPLENDID/WARNING/ "$1"
sam-consume -q dead-letter drop {number}
""",
    )
    dropping.chmod(0o700)

    answer = dead_letter(with_editor(small, str(dropping)), "edit", number)

    assert answer.code == USAGE, str(answer)
    assert "is dropped" in answer.err
    [file] = left_behind(small)
    assert str(file) in answer.err
    assert "WARNING" in file.read_text()


def test_headers_alone_are_edited_without_an_editor(small: Workplace) -> None:
    workplace = with_editor(small, "false")
    park(workplace, GOOD, message_class="metricoutputt")
    [letter] = listed(workplace)

    answer = dead_letter(
        workplace,
        "edit",
        str(letter["dead_letter_id"]),
        "--header",
        "messageClass=metricOutput",
        "--replay",
    )

    assert answer.code == 0, str(answer)
    assert statuses(workplace) == ["OK"]


def test_a_limited_list_reports_how_many_letters_there_are(small: Workplace) -> None:
    park(small, *(BAD.replace("ce01", f"ce{at:02}") for at in range(5)))
    numbers = [letter["dead_letter_id"] for letter in listed(small)]

    answer = dead_letter(small, "list", "--limit", "2")

    assert [int(row[0]) for row in cells(answer)] == numbers[-2:]
    assert "the newest 2 of 5" in answer.err


def test_terminal_escapes_in_a_message_are_shown_escaped(small: Workplace) -> None:
    park(small, BAD.replace("SPLENDID", ESCAPES))

    shown = dead_letter(small, "show", "--all").out + dead_letter(small, "list").out

    assert "\x1b" not in shown
    assert r"\x1b[2J" in shown


def test_a_missing_body_file_and_a_missing_editor_are_reported(small: Workplace) -> None:
    park(small, BAD)
    number = str(listed(small)[0]["dead_letter_id"])

    missing = dead_letter(small, "edit", number, "--body", "absent.txt")
    nothing = dead_letter(with_editor(small, ""), "edit", number)

    assert (missing.code, nothing.code) == (NO_INPUT, USAGE)
    assert "absent.txt" in missing.err
    assert "--body" in nothing.err


def dead_letter(workplace: Workplace, *arguments: str, stdin: str = "") -> Answer:
    return workplace.run("sam-consume", "dead-letter", *arguments, stdin=stdin)


def listed(workplace: Workplace, *arguments: str) -> list[dict[str, Any]]:
    answer = workplace.succeed("sam-consume", "dead-letter", "list", *arguments, "--json")
    letters: list[dict[str, Any]] = answer.json
    return letters


def park(workplace: Workplace, *bodies: str, message_class: str = "metricOutput") -> None:
    """Load messages that all become dead letters, without a process because there are many."""
    engine = make_engine(as_role(workplace.database, "loader"))
    messages = [new_message(message_class, body) for body in bodies]
    loaded = load(engine, Catalogue(engine), messages, datetime.now(UTC))
    engine.dispose()
    assert (loaded.rows, sum(loaded.dead_letters.values())) == (0, len(bodies))


def statuses(workplace: Workplace) -> list[str]:
    rows = query(workplace.database, "SELECT metricStatus AS status FROM metricOutput")
    return [row["status"] for row in rows]


def count(workplace: Workplace, state: str) -> int:
    statement = "SELECT count(*) AS n FROM dead_letter WHERE state = :state"
    return int(query(workplace.database, statement, state=state)[0]["n"])


def cells(answer: Answer) -> list[list[str]]:
    """The rows of a table, up to the error column."""
    return [re.split(r"  +", line.strip())[:3] for line in answer.out.splitlines()[2:]]


def break_class(workplace: Workplace) -> str:
    """Drop the trigger of metricOutput; the statement that creates it again."""
    if workplace.database.startswith("sqlite"):
        statement = "SELECT sql FROM sqlite_schema WHERE name = 'metricOutput_insert'"
        drop = "DROP TRIGGER metricOutput_insert"
    else:
        statement = (
            "SELECT pg_get_triggerdef(oid) AS sql FROM pg_trigger"
            " WHERE tgname = 'metricoutput_insert'"
        )
        drop = "DROP TRIGGER metricOutput_insert ON metricOutput"
    [row] = query(workplace.database, statement)
    execute(workplace.database, drop)
    return str(row["sql"])


def make_class(workplace: Workplace, name: str) -> None:
    """A class of one column, `sky`."""
    execute(workplace.database, f"CREATE TABLE kept_{name} (sky text)")
    execute(workplace.database, f"CREATE VIEW {name} AS SELECT sky FROM kept_{name}")
    trigger = f"CREATE TRIGGER {name}_insert INSTEAD OF INSERT ON {name}"
    insert = f"INSERT INTO kept_{name} VALUES (NEW.sky);"
    if workplace.database.startswith("sqlite"):
        execute(workplace.database, f"{trigger} BEGIN {insert} END")
        return
    execute(
        workplace.database,
        f"CREATE FUNCTION {name}_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" AS $$ BEGIN {insert} RETURN NEW; END $$",
    )
    execute(workplace.database, f"{trigger} FOR EACH ROW EXECUTE FUNCTION {name}_insert()")
    execute(workplace.database, f"GRANT INSERT ON {name} TO sam_loader")


def copies(number: int) -> str:
    """The statement that copies the only letter, with a new message id for each copy."""
    series = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "
    return (
        "INSERT INTO dead_letter (message_id, record_number, message_class, reason, error, headers,"
        " body, body_bytes, body_digest, received_at, changed_at) "
        + series.format(number)
        + "SELECT message_id || i, record_number, message_class, reason, error, headers, body,"
        " body_bytes, body_digest, received_at, changed_at FROM dead_letter CROSS JOIN n"
    )


def with_editor(workplace: Workplace, editor: str) -> Workplace:
    """The workplace with this `$VISUAL` and its own directory for temporary files."""
    temporary = workplace.directory / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {"VISUAL": editor, "EDITOR": "", "TMPDIR": str(temporary)}
    return replace(workplace, environment={**workplace.environment, **environment})


def left_behind(workplace: Workplace) -> list[Path]:
    return sorted((workplace.directory / "tmp").glob("sam-dead-letter-*"))


def eventually(condition: Callable[[], bool], timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        time.sleep(0.1)
