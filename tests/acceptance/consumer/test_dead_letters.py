"""Dead letters of every reason: an operator finds, shows, edits, replays and drops them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from docs.reasons import dead_letter_reasons
from sam_pipeline.consumer.commands.find import time_of_id
from sam_pipeline.schema.identity.identity import IDENTITY, uid_identity
from sam_pipeline.schema.messages.headers import REJECTED
from sam_pipeline.schema.messages.message import Message, new_message, new_message_id
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.services.postgres import as_role
from tests.support.brokers.fake_broker import closed_port
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS, Answer, Workplace, embedded
from tests.support.consumer.site import fill_spool
from tests.support.database.own_class import make_class
from tests.support.database.with_schema import with_schema
from tests.support.reports.stored import execute, query
from tests.support.waiting import eventually

USAGE, BAD_DATA, NO_INPUT = 64, 65, 66
OURS = uid_identity(os.getuid())
GOOD = """\
hostName: ce01.example.org
serviceFlavour: CE
metricName: org.example.Ping
metricStatus: OK
timestamp: 2024-02-28T12:00:00Z
EOT
"""
BAD = GOOD.replace("metricStatus: OK", "metricStatus: SPLENDID")
RAIN = "sky: blue\nEOT\n"


def made(directory: Path, database: str) -> Workplace:
    with_schema(database).dispose()
    spool = f"spool://{directory}/spool"
    return Workplace(directory, broker=spool, database=database).write_configuration()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return made(tmp_path, f"sqlite:///{tmp_path}/sam.db")


@pytest.fixture
def big(tmp_path: Path, postgres_url: str) -> Workplace:
    return made(tmp_path, postgres_url)


@pytest.fixture(params=["small", "big"])
def place(request: pytest.FixtureRequest) -> Workplace:
    place: Workplace = request.getfixturevalue(request.param)
    return place


def dead_letter(place: Workplace, *arguments: str, stdin: str = "") -> Answer:
    return place.run("sam-consume", "dead-letter", *arguments, stdin=stdin)


def listed(place: Workplace, *arguments: str) -> list[dict[str, Any]]:
    answer = place.succeed("sam-consume", "dead-letter", "list", *arguments, "--json")
    letters: list[dict[str, Any]] = answer.json
    return letters


def park(place: Workplace, *bodies: str, message_class: str = "metricOutput") -> list[str]:
    """Load messages that all become dead letters; the ids of all open ones."""
    engine = make_engine(as_role(place.database, "loader"))
    messages = [new_message(message_class, body) for body in bodies]
    loaded = load(engine, Catalogue(engine), messages, datetime.now(UTC))
    engine.dispose()
    assert (loaded.rows, sum(loaded.dead_letters.values())) == (0, len(bodies))
    return [str(letter["dead_letter_id"]) for letter in listed(place)]


def drained(place: Workplace, *messages: Message) -> Answer:
    """The answer of a drain that found dead letters among these messages."""
    fill_spool(place.directory / "spool", messages)
    answer = place.run("sam-consume", "run", "--drain")
    assert answer.code == BAD_DATA, str(answer)
    return answer


def statuses(place: Workplace) -> list[str]:
    rows = query(place.database, "SELECT metricStatus AS status FROM metricOutput")
    return [row["status"] for row in rows]


def cells(answer: Answer) -> list[list[str]]:
    """The rows of a table, up to the error column."""
    return [re.split(r"  +", line.strip())[:3] for line in answer.out.splitlines()[2:]]


def make_rain(place: Workplace) -> None:
    """A class of one column, `sky`."""
    engine = make_engine(place.database)
    make_class(engine, "rain", sky="text")
    engine.dispose()
    if not place.database.startswith("sqlite"):
        execute(place.database, "GRANT INSERT ON rain TO sam_loader")


def break_class(place: Workplace) -> str:
    """Drop the trigger of metricOutput; the statement that creates it again."""
    statement = "SELECT sql FROM sqlite_schema WHERE name = 'metricOutput_insert'"
    drop = "DROP TRIGGER metricOutput_insert"
    if not place.database.startswith("sqlite"):
        definition = "SELECT pg_get_triggerdef(oid) AS sql FROM pg_trigger"
        statement = f"{definition} WHERE tgname = 'metricoutput_insert'"
        drop += " ON metricOutput"
    [row] = query(place.database, statement)
    execute(place.database, drop)
    return str(row["sql"])


def test_a_bad_record_is_found_fixed_and_loaded(place: Workplace) -> None:
    assert listed(place) == []
    message = new_message("metricOutput", BAD, headers={"JMSXUserID": "probe", "samUser": "nagios"})
    answer = drained(place, message, metric_message(), metric_message())
    assert "1 row, 1 duplicate, 1 dead letter (bad-status: 1)" in answer.out
    [letter] = listed(place)
    number = str(letter["dead_letter_id"])
    shown = dead_letter(place, "show", number, "--json").json
    table = dead_letter(place, "list", "--reason", "bad-status").out

    edit = dead_letter(place, "edit", number, "--body", "-", "--replay", "--json", stdin=GOOD)

    assert (letter["message_class"], letter["reason"]) == ("metricOutput", "bad-status")
    assert (letter["login"], letter["claimed_user"]) == ("probe", "nagios")
    assert (shown["body"], shown["publisher"], shown["record_number"]) == (BAD, OURS, 1)
    assert shown["headers"] == {**message.headers, IDENTITY: OURS}
    assert f"{OURS}, nagios" in table
    assert (edit.code, edit.json["replayed"]["outcome"]) == (0, "loaded")
    assert statuses(place) == ["OK", "OK"]
    assert listed(place) == []
    new_number = edit.json["dead_letter_id"]
    old, new = dead_letter(place, "show", number, str(new_number), "--json").json
    assert (old["state"], old["edited_as"], old["body"]) == ("dropped", new_number, BAD)
    assert (new["state"], new["edited_from"], new["body"]) == ("replayed", int(number), GOOD)


def test_a_repeated_replay_reports_the_outcome_of_each_letter(place: Workplace) -> None:
    [rain] = park(place, RAIN, message_class="rain")
    [_, snow] = park(place, RAIN, message_class="snow")
    still_open = dead_letter(place, "replay", "--all")
    make_rain(place)

    first = dead_letter(place, "replay", "--all")
    again = dead_letter(place, "replay", rain, snow)

    assert [answer.code for answer in (still_open, first, again)] == [BAD_DATA] * 3
    assert cells(first) == [[rain, "loaded"], [snow, "failed", "unknown-class"]]
    assert cells(again)[0] == [rain, "skipped", "already replayed"]
    assert dead_letter(place, "replay", "--class", "RAIN").code == 0
    assert query(place.database, "SELECT sky FROM rain") == [{"sky": "blue"}]


def test_dropped_letters_are_counted_and_never_loaded_unless_they_are_restored(
    small: Workplace,
) -> None:
    [rain] = park(small, RAIN, message_class="rain")
    [_, bad] = park(small, BAD)
    dead_letter(small, "edit", bad, "--body", "-", stdin=GOOD)

    dropped = dead_letter(small, "drop", "--all")
    again = dead_letter(small, "drop", rain, bad)
    replayed = dead_letter(small, "replay", rain, "--json")
    states = [letter["state"] for letter in listed(small, "--state", "any")]
    restored = dead_letter(small, "restore", rain, bad, "--json")
    make_rain(small)

    assert dropped.out == "dropped 2 dead letters\n"
    assert again.out.startswith("dropped 0 dead letters, 2 were ")
    assert (replayed.code, states) == (BAD_DATA, ["dropped"] * 3)
    assert (restored.code, restored.json["restored"]) == (0, 1)  # another has replaced the bad one
    assert dead_letter(small, "drop", bad).out.startswith("dropped 0 dead letters, 1 was ")
    assert cells(dead_letter(small, "replay", rain)) == [[rain, "loaded"]]


def test_a_replay_says_which_dead_letters_replace_a_message(place: Workplace) -> None:
    repair = break_class(place)
    drained(place, new_message("metricOutput", GOOD + BAD, record_count=2))
    [parked] = listed(place)
    execute(place.database, repair)

    replayed = dead_letter(place, "replay", str(parked["dead_letter_id"]))

    assert (parked["reason"], replayed.code) == ("class-broken", BAD_DATA)
    [new] = listed(place)
    [[number, outcome, words]] = cells(replayed)
    assert (number, outcome) == (str(parked["dead_letter_id"]), "replaced")
    assert (new["reason"], words.endswith(f" {new['dead_letter_id']}")) == ("bad-status", True)
    assert statuses(place) == ["OK"]


def test_the_daemon_loads_parked_messages_once_their_class_is_repaired(big: Workplace) -> None:
    repair, log = break_class(big), big.directory / "running.log"
    with big.running("sam-consume", "run"):
        fill_spool(big.directory / "spool", [new_message("metricOutput", GOOD)])
        eventually(lambda: len(listed(big)) == 1)
        execute(big.database, repair)
        eventually(lambda: "replaying messages" in log.read_text())  # after the commit

    assert [letter["state"] for letter in listed(big, "--state", "any")] == ["replayed"]
    assert statuses(big) == ["OK"]
    assert [" ERROR " in line for line in log.read_text().splitlines()].count(True) == 1


def test_ten_thousand_parked_messages_are_replayed_in_reasonable_time(place: Workplace) -> None:
    """The table is filled with copies of one letter, which is quicker than loading them."""
    repair = break_class(place)
    park(place, GOOD)
    columns = (
        "record_number, message_class, reason, error, headers, body, body_bytes, body_digest,"
        " received_at, changed_at"
    )
    execute(
        place.database,
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)"
        f" INSERT INTO dead_letter (message_id, {columns})"
        f" SELECT message_id || i, {columns} FROM dead_letter CROSS JOIN n",
    )
    execute(place.database, repair)

    began = time.monotonic()
    answer = dead_letter(place, "replay", "--reason", "class-broken", "--json")

    assert [replayed["outcome"] for replayed in answer.json] == ["loaded"] * 10_001
    assert time.monotonic() - began < 60  # 5 s on a busy laptop


def with_editor(place: Workplace, editor: str) -> Workplace:
    """The workplace with this `$VISUAL`."""
    return replace(place, environment={"VISUAL": editor, "EDITOR": ""})


def left_behind(place: Workplace) -> list[Path]:
    return sorted((place.directory / "tmp").glob("sam-dead-letter-*"))


def test_a_body_or_a_header_that_is_edited_becomes_a_new_letter(small: Workplace) -> None:
    [bad] = park(small, BAD)
    [_, misnamed] = park(small, GOOD, message_class="metricoutputt")
    header = ("--header", "messageClass=metricOutput")

    in_editor = with_editor(small, "sed -i s/SPLENDID/WARNING/")
    by_hand = dead_letter(in_editor, "edit", bad, "--replay")
    by_option = dead_letter(with_editor(small, "false"), "edit", misnamed, *header, "--replay")

    assert (by_hand.code, by_option.code) == (0, 0), str(by_hand)
    assert (sorted(statuses(small)), left_behind(small)) == (["OK", "WARNING"], [])


@pytest.mark.parametrize(
    ("editor", "options", "code"),
    [
        *((editor, "", USAGE) for editor in ("true", "false", "no-such-editor", "")),
        ("", "--body absent.txt", NO_INPUT),
    ],
)
def test_an_edit_that_fails_changes_nothing(
    small: Workplace, editor: str, options: str, code: int
) -> None:
    [number] = park(small, BAD)

    answer = dead_letter(with_editor(small, editor), "edit", number, *options.split())

    assert answer.code == code, str(answer)
    assert [letter["state"] for letter in listed(small, "--state", "any")] == ["open"]
    assert left_behind(small) == []


def test_an_edit_that_cannot_be_stored_is_kept_in_a_file(small: Workplace) -> None:
    [number] = park(small, BAD)
    drop = f"sam-consume -q dead-letter drop {number}\n"
    editor = small.write("editor", f'#!/bin/sh\nsed -i s/SPLENDID/WARNING/ "$1"\n{drop}')
    editor.chmod(0o700)

    answer = dead_letter(with_editor(small, str(editor)), "edit", number)

    assert (answer.code, "is dropped" in answer.err) == (USAGE, True), str(answer)
    [file] = left_behind(small)
    assert str(file) in answer.err
    assert "WARNING" in file.read_text()


@pytest.mark.parametrize(
    ("typed", "code", "words"),
    [
        *((name, USAGE, "select letters by") for name in ("replay", "drop", "show")),
        ("drop 1 --all", USAGE, "select letters by"),
        ("list 1 --reason empty", USAGE, "select letters by"),
        ("drop --reason bad-satus", USAGE, "did you mean bad-status?"),
        ("drop --class metricOuput", USAGE, "did you mean metric"),
        *((f"{name} 4711", NO_INPUT, "4711") for name in ("show", "list", "drop", "restore")),
        ("replay 4711", NO_INPUT, "no dead letter 4711"),
        ("edit --body - 4711", NO_INPUT, "no dead letter 4711"),
    ],
)
def test_an_invalid_selection_is_refused(
    small: Workplace, typed: str, code: int, words: str
) -> None:
    park(small, BAD)

    answer = dead_letter(small, *typed.split())

    assert (answer.code, words in answer.err) == (code, True), str(answer)
    assert [letter["state"] for letter in listed(small)] == ["open"]


def test_several_messages_are_found_wherever_they_are(place: Workplace) -> None:
    queue = DirectoryQueue(place.directory / "spool")
    both = metric_message(metric_result(), metric_result(metricStatus="FINE"))
    drained(place, both)
    waiting, unknown = metric_message(), new_message_id()
    queue.add(waiting)
    down = f"--flavour CE --json --broker stomp://127.0.0.1:{closed_port()}".split()
    result = ["result", "--metric", "m", "--status", "OK", "--host", "a.example.org"]
    spooled = place.succeed("sam-publish", *result, *down).json["messages"][0]["message_id"]

    ids = [both.message_id, waiting.message_id, spooled]
    answer = place.run("sam-consume", "find", "--since", "3653d", "--json", *ids, unknown)

    assert answer.code == NO_INPUT
    first, second, third, last = answer.json
    assert first["rows"][0]["key"]["hostName"] == "ce01.example.org"
    assert [letter["reason"] for letter in first["dead_letters"]] == ["bad-status"]
    assert [element["state"] for element in second["spool"]] == ["waiting"]
    assert third["spool"][0]["headers"]["samProgram"].endswith(" result")
    assert (last["message_id"], last["found"]) == (unknown, False)
    assert str(queue.path) in last["searched"]["spools"]
    assert place.run("sam-consume", "find", *ids).code == 0
    assert queue.count() == 1


def test_a_host_without_a_database_has_only_spools(tmp_path: Path) -> None:
    place = Workplace(tmp_path, broker="", database="sqlite://")
    place.write("sam.toml", f'[consumer]\nname = "r"\nbrokers = ["spool://{tmp_path}/in"]\n')
    message = metric_message()
    rejected = tmp_path / "state" / "sam" / "consume-r.rejected"
    rejected.parent.mkdir(parents=True)
    DirectoryQueue(rejected).add(Message({**message.headers, REJECTED: "no address"}, message.body))

    answer = place.run("sam-consume", "find", message.message_id)
    missing = place.run("sam-consume", "find", new_message_id())

    assert (answer.code, missing.code) == (0, NO_INPUT)
    assert "rejected: no address" in answer.out
    assert time_of_id("sha256:0660f557bd1ea3") is None
    assert time_of_id("ffffffffffffff-3da37507d44158f917") is None


def test_a_terminal_gets_a_short_message_and_a_file_all_of_it(small: Workplace) -> None:
    fill_spool(small.directory / "spool", [metric_message(metric_result(detailsData="x" * 30_000))])
    command = [PROGRAMS / "sam-consume", "tap", "--limit", "1"]
    place: Any = {"cwd": small.directory, "env": small.clean_environment()}
    leader, follower = pty.openpty()

    subprocess.run(command, stdout=follower, timeout=60, check=True, **place)
    os.close(follower)
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    everything = small.succeed("sam-consume", "tap", "--limit", "1").out

    assert len(shown) < 2000 < 30_000 < len(everything)


RECORD = {
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "metricName": "org.example.Ping",
    "metricStatus": "OK",
    "timestamp": "2026-11-20T12:00:00Z",
}


def text_of(**changes: str) -> str:
    record = {**RECORD, **changes}
    return "".join(f"{key}: {value}\n" for key, value in record.items() if value) + "EOT\n"


def json_of(**changes: Any) -> str:
    return json.dumps({**RECORD, **changes})


JSON = {"content-type": "application/json"}
MAKES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "unknown-class": (text_of(), {"messageClass": "nosuch"}),
    "class-broken": ("hostName: a\nEOT\n", {"messageClass": "downtime"}),
    "refused-by-database": (text_of(metricName="long" * 300), {}),
    "missing-key": (text_of(metricName=""), {}),
    "bad-status": (text_of(metricStatus="SPLENDID"), {}),
    "bad-time": (text_of(timestamp="noon"), {}),
    "bad-host": (text_of(hostName="two words"), {}),
    "bad-weight": ("groupType: VO\nweight: much\nEOT\n", {"messageClass": "siteGroup"}),
    "too-old": (text_of(timestamp="2001-01-01T00:00:00Z"), {}),
    "in-the-future": (text_of(timestamp="2999-01-01T00:00:00Z"), {}),
    "too-large": (text_of(detailsData="x" * 3000), {}),
    "too-many-records": ("key: value\nEOT\n" * 31, {}),
    "truncated": (text_of(detailsData="x").removesuffix("EOT\n"), {}),
    "no-key": ("no colon\nEOT\n", {}),
    "duplicate-key": (text_of().replace("EOT", "hostName: b\nEOT"), {}),
    "empty": ("", {}),
    "not-json": ("{", JSON),
    "nested": (json_of(summaryData={"a": 1}), JSON),
    "bad-text": (json_of(summaryData="\ud800"), JSON),
    "nul-byte": (text_of(summaryData="a\0b"), {}),
    "control-character": (json_of(metricName="a\nb"), JSON),
    "unknown-format": (text_of(), {"samFormat": "xml"}),
    "bad-rename": (text_of(), {"samRename": "="}),
    "bad-frame": (text_of(), {"samRefused": "bad-frame"}),  # as a relay marks it
    "bad-signature": (text_of(), {"samRefused": "bad-signature"}),
    "signature-expired": (text_of(), {"samRefused": "signature-expired"}),
    "unsigned": (text_of(), {"samIdentity": "uid:1"}),  # as a relay has established it
    "not-authorised": (text_of(), {"samIdentity": "uid:2"}),
    "mixed": ("no colon\nEOT\n" * 20 + "key: a\nkey: b\nEOT\n", {}),
    "poison": (text_of(), {"samMessageId": "poison"}),
    "flood": ("no colon\nEOT\n", {"JMSXUserID": "other", "note": "x" * 50_000}),
}
"""A body and headers that give a dead letter of each reason."""
POLICY = f"""
mode = "enforce"
[[publisher]]
name = "this account"
is = ["uid:{os.getuid()}"]
classes = ["*"]
sites = ["*"]
hosts = ["*"]
[[publisher]]
name = "signs"
is = ["uid:1", "key:signs"]
keys = ["ed25519:MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="]
signed = true
classes = ["*"]
hosts = ["*"]
"""


def test_every_documented_reason_can_occur(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    settings = "max_message_bytes = 2000\nmax_records = 30\ndead_letter_bytes_per_hour = 40000"
    settings += f'\npolicy_file = "publishers.toml"\ntrusted_relays = ["{os.getuid()}"]'
    replace(workplace, consumer_settings=settings).write_configuration()
    workplace.write("publishers.toml", POLICY)
    execute(workplace.database, "DROP TRIGGER downtime_insert")
    execute(
        workplace.database,
        "CREATE TRIGGER strict BEFORE INSERT ON metric WHEN length(NEW.name) > 1000"
        " BEGIN SELECT RAISE(ABORT, 'the name is too long'); END",
    )
    died = {"pending": ["poison"], "deaths": {"poison": 3}}
    workplace.write("state/sam/consume-acceptance.attempts", json.dumps(died))
    fill_spool(
        workplace.directory / "spool",
        [
            Message(
                {"messageClass": "metricOutput", "samMessageId": reason, **headers}, text.encode()
            )
            for reason, (text, headers) in MAKES.items()
        ],
    )

    drained = workplace.run("sam-consume", "run", "--drain")

    letters = query(workplace.database, "SELECT message_id, reason FROM dead_letter")
    assert drained.code == 65, str(drained)
    by_id = {row["message_id"].partition(":")[0]: row["reason"] for row in letters}
    assert by_id == {name: name for name in MAKES}
    assert MAKES.keys() == dead_letter_reasons().keys()
