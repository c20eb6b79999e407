"""`sam-consume check` and `sam-consume dead-letter`, called with command lines."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from sam_pipeline.consumer.cli import main
from sam_pipeline.schema.identity.identity import IDENTITY, uid_identity
from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.records.text import write_wlcg
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.site import Site, fill_spool, make_site

UNKNOWN = new_message("fireDrill", write_wlcg(metric_result()))
BAD = metric_message(metric_result(), metric_result(metricStatus="MAYBE"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site on SQLite that reads one spool."""
    return make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{tmp_path}/spool"])


@pytest.fixture
def with_dead_letters(site: Site, tmp_path: Path) -> Site:
    """The site after an unknown class (1) and a bad record (2)."""
    fill_spool(tmp_path / "spool", [UNKNOWN, BAD])
    assert site.drain().code == 65
    return site


def sam_consume(site: Site, *arguments: str) -> int:
    return main(["--config", str(site.config), *arguments])


def test_dead_letters_are_listed_with_class_and_reason(
    with_dead_letters: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code = sam_consume(with_dead_letters, "dead-letter", "list", "--json")

    letters = json.loads(capsys.readouterr().out)
    assert code == 0
    assert {(letter["message_class"], letter["reason"]) for letter in letters} == {
        ("fireDrill", "unknown-class"),
        ("metricOutput", "bad-status"),
    }


def test_dead_letters_are_listed_by_reason_as_a_table(
    with_dead_letters: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    sam_consume(with_dead_letters, "dead-letter", "list", "--reason", "unknown-class")

    header, _, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "time", "class", "reason", "sender", "broker", "error"]
    assert "fireDrill" in line
    assert uid_identity(os.getuid()) in line


def test_no_dead_letters_are_an_empty_array(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert sam_consume(site, "dead-letter", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_dead_letter_is_shown_with_its_bytes_and_headers(
    with_dead_letters: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    sam_consume(with_dead_letters, "dead-letter", "list", "--json")
    letters = json.loads(capsys.readouterr().out)
    (bad_status,) = (letter for letter in letters if letter["reason"] == "bad-status")

    sam_consume(
        with_dead_letters, "dead-letter", "show", str(bad_status["dead_letter_id"]), "--json"
    )

    shown = json.loads(capsys.readouterr().out)
    assert "metricStatus: MAYBE" in shown["body"]
    assert shown["publisher"] == uid_identity(os.getuid())
    assert shown["headers"] == {**BAD.headers, IDENTITY: uid_identity(os.getuid())}
    assert shown["record_number"] == 2


def test_a_dead_letter_whose_replay_fails_stays_open(
    with_dead_letters: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code = sam_consume(with_dead_letters, "dead-letter", "replay", "--all", "--json")

    outcomes = json.loads(capsys.readouterr().out)
    assert code == 65
    assert [outcome["state"] for outcome in outcomes] == ["open", "open"]


def test_a_replay_loads_a_dead_letter_once_its_class_exists(
    with_dead_letters: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    with_dead_letters.execute("CREATE TABLE drill (host text)")
    with_dead_letters.execute("CREATE VIEW fireDrill AS SELECT host AS hostName FROM drill")
    with_dead_letters.execute(
        "CREATE TRIGGER fireDrill_insert INSTEAD OF INSERT ON fireDrill"
        " BEGIN INSERT INTO drill VALUES (NEW.hostName); END"
    )

    code = sam_consume(with_dead_letters, "dead-letter", "replay", "--class", "firedrill")

    assert code == 0
    assert with_dead_letters.scalar("SELECT hostName FROM fireDrill") == "ce01.example.org"


@pytest.mark.parametrize(
    ("typed", "stem"),
    [
        ("replay", "select letters by"),
        ("drop", "select letters by"),
        ("show", "select letters by"),
        ("drop 1 --all", "select letters by"),
        ("list 1 --reason empty", "select letters by"),
        ("drop --older-than 30", "1d to 99999d"),
        ("show 0", "is not a whole number"),
        ("show 9223372036854775808", "is not a whole number"),
        ("edit 1 --header x", "NAME=VALUE"),
        ("list --limit 0", "is not a whole number"),
        ("drop --reason tpyo", "is not a reason"),
        ("list --reason to-old", "did you mean too-old?"),
        ("list --reason ''", "the reasons are bad-frame"),
        ("list --class metricOuput", "did you mean metric"),
        ("drop --class ''", "no dead letter has this class"),
        ("list --state closed", "invalid choice"),
    ],
)
def test_an_invalid_selection_is_refused(
    site: Site, typed: str, stem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = sam_consume(site, "dead-letter", *shlex.split(typed))
    except SystemExit as ended:  # the parser exits
        code = ended.code

    assert code == 64
    assert stem in capsys.readouterr().err


@pytest.mark.parametrize("action", ["show", "list", "drop", "restore", "replay", "edit --body -"])
def test_an_unknown_id_exits_66(
    site: Site, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sam_consume(site, "dead-letter", *action.split(), "4711") == 66

    assert "no dead letter 4711" in capsys.readouterr().err


def test_check_accepts_a_valid_configuration(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sam_consume(site, "check") == 0
    assert capsys.readouterr().out == "no problem found\n"


def test_check_notes_passwords_that_are_sent_in_plain_text(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    text = site.config.read_text()
    plain = ('"stomp://sam@msg.example.org"', "insecure = true\n[[consumer.subscription]]")
    text = text.replace("brokers = [", f"brokers = [{plain[0]}, ", 1)
    site.config.write_text(text.replace("[[consumer.subscription]]", plain[1], 1))

    assert sam_consume(site, "check") == 0
    assert "61613: the password of sam is sent in plain text" in capsys.readouterr().err
    assert sam_consume(site, "check", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 2  # and that there is no policy


POLICY = """
mode = "enforce"
[[publisher]]
name = "nagios-cern"
is = ["broker:*/nagios1"]
classes = ["metricOutput"]
sites = ["CERN-*"]
"""


@pytest.mark.parametrize(
    ("policy", "settings", "stems"),
    [
        (None, "", ["publishers: there is no policy"]),
        (POLICY, 'vouches = ["stomp://msg.example.org"]', []),
        (POLICY, "", ["1 publisher, first nagios-cern, can't be recognised"]),
        (
            POLICY.replace("enforce", "observe"),
            'vouches = ["stomp://msg.example.org"]',
            ["observe"],
        ),
    ],
)
def test_check_notes_why_the_policy_refuses_nothing_or_knows_no_sender(
    site: Site,
    policy: str | None,
    settings: str,
    stems: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    if policy is not None:
        (site.config.parent / "publishers.toml").write_text(policy)
        settings += '\npublishers = "publishers.toml"'
    text = site.config.read_text().replace("brokers = [", 'brokers = ["stomp://msg.example.org", ')
    site.config.write_text(text.replace("[[consumer", f"{settings}\n[[consumer"))

    assert sam_consume(site, "check", "--json") == 0

    notes = json.loads(capsys.readouterr().out)["notes"]
    assert [stem for stem, note in zip(stems, notes, strict=True) if stem not in note] == []


def test_check_reports_the_problems_of_the_policy(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = site.config.parent / "publishers.toml"
    policy.write_text(POLICY.replace("classes", "clases").replace("enforce", "inforce"))
    text = site.config.read_text()
    site.config.write_text(text.replace("[[consumer", 'publishers = "publishers.toml"\n[[consumer'))

    code = sam_consume(site, "check")

    problems = capsys.readouterr().err
    assert code == 78
    assert f"{policy}:" in problems
    assert ("clases" in problems, "inforce" in problems) == (True, True)


def test_check_names_a_class_of_the_policy_that_the_database_does_not_have(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = POLICY.replace('"metricOutput"', '"METRICOUTPUT", "site*", "serviceEndpiont"')
    (site.config.parent / "publishers.toml").write_text(policy)
    text = site.config.read_text()
    site.config.write_text(text.replace("[[consumer", 'publishers = "publishers.toml"\n[[consumer'))

    assert sam_consume(site, "check", "--json") == 78

    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "class serviceEndpiont" in problem
    assert "did you mean serviceEndpoint?" in problem


def test_check_reports_every_problem_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "sam.toml"
    config.write_text(
        '[consumer]\nbroker = ["x"]\nbatch_size = 0\n[database]\nurl = "sqlite:///none.db"\n'
    )

    code = main(["--config", str(config), "check"])

    output = capsys.readouterr().err
    assert code == 78
    for problem in ("did you mean brokers?", "batch_size", "none.db: no such database"):
        assert problem in output


def test_check_names_a_class_that_cannot_be_loaded(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.execute("DROP TRIGGER downtime_insert")

    assert sam_consume(site, "check", "--json") == 78
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert ": class downtime: view downtime has no" in problem


def test_check_names_a_spool_that_is_a_file(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spool").write_text("")

    assert sam_consume(site, "check", "--json") == 78
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "not a directory" in problem
