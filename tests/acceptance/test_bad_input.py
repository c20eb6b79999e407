"""Bad input: one clear line, the exit code of the contract, nothing lost, no traceback.

A day without data is in test_road.py, a database that is away in test_database_away.py.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.services.process import free_ports
from tests.support.commands import PROGRAMS, Answer, Workplace, embedded, embedded_workplace
from tests.support.reports.stored import execute, query
from tests.worlds.profile_file import to_toml
from tests.worlds.small import PROFILE

USAGE, BAD_DATA, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, TRY_LATER, CONFIG = (
    64,
    65,
    66,
    69,
    73,
    75,
    78,
)

LOG = re.compile(r"\S+Z (INFO|WARNING) ")  # what happened on the way
GOOD = """\
hostName: ce01.example.org
serviceFlavour: CE
metricName: org.example.Ping
metricStatus: OK
timestamp: 2024-02-28T12:00:00Z
EOT
"""
BROKEN = GOOD.replace("metricStatus: OK", "metricStatus: SPLENDID").replace("ce01", "ce02")


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its schema, to copy: applying it takes longer than most tests here."""
    return embedded(tmp_path_factory.mktemp("empty")).directory / "sam.db"


@pytest.fixture
def place(tmp_path: Path, empty_database: Path) -> Workplace:
    shutil.copy(empty_database, tmp_path)
    return embedded_workplace(tmp_path)


def test_a_broken_record_is_refused_with_its_line_and_its_neighbours_are_sent(
    place: Workplace,
) -> None:
    file = place.write("results.txt", GOOD + BROKEN + GOOD.replace("ce01", "ce03"))

    answer = place.run("sam-publish", "send", file)

    complaint = the_complaint(answer, BAD_DATA)
    assert "results.txt:7" in complaint
    assert "SPLENDID" in complaint
    assert hosts_loaded(place) == ["ce01.example.org", "ce03.example.org"]


def test_a_broken_record_on_the_wire_becomes_a_dead_letter_and_its_neighbours_rows(
    place: Workplace,
) -> None:
    file = place.write("results.txt", GOOD + BROKEN)
    place.succeed("sam-publish", "send", "--raw", file)

    answer = place.run("sam-consume", "run", "--drain")

    assert_plain(answer, BAD_DATA)
    assert "SPLENDID" in only_dead_letter(place)["error"]
    assert hosts_loaded(place) == ["ce01.example.org"]


def test_an_unknown_class_is_the_consumers_to_refuse(place: Workplace) -> None:
    place.succeed("sam-publish", "send", "--class", "weatherReport", stdin="sky: blue\nEOT\n")

    answer = place.run("sam-consume", "run", "--drain")

    assert_plain(answer, BAD_DATA)
    letter = only_dead_letter(place)
    assert (letter["reason"], letter["message_class"]) == ("unknown-class", "weatherReport")
    assert bytes(letter["body"]) == b"sky: blue\nEOT\n"


def test_an_unknown_key_of_a_record_is_ignored_and_the_rest_is_a_row(place: Workplace) -> None:
    place.succeed("sam-publish", "send", stdin="moonPhase: full\n" + GOOD)

    place.succeed("sam-consume", "run", "--drain")

    assert hosts_loaded(place) == ["ce01.example.org"]


@pytest.mark.parametrize(
    ("section", "misspelt", "meant", "command"),
    [
        ("publisher", "broker", "brokers", ["sam-publish", "spool", "status"]),
        ("consumer", "nam", "name", ["sam-consume", "run", "--drain"]),
        ("database", "ulr", "url", ["sam-db", "check"]),
        ("report", "profile", "profiles", ["sam-report", "run", "--day", "2024-02-28"]),
    ],
)
def test_an_unknown_key_of_the_configuration_names_the_nearest(
    place: Workplace, section: str, misspelt: str, meant: str, command: list[str]
) -> None:
    database = f'[database]\nurl = "{place.database}"\n' if section != "database" else ""
    place.write("sam.toml", f'{database}[{section}]\n{misspelt} = "x"\n')

    answer = place.run(*command)

    assert_plain(answer, CONFIG)
    assert misspelt in answer.err
    assert meant in answer.err


def test_an_empty_body_is_refused(place: Workplace) -> None:
    answer = place.run("sam-publish", "send", stdin="")

    assert "empty" in the_complaint(answer, BAD_DATA)


def test_an_empty_body_on_the_wire_becomes_a_dead_letter(place: Workplace) -> None:
    place.succeed("sam-publish", "send", "--raw", place.write("nothing", ""))

    answer = place.run("sam-consume", "run", "--drain")

    assert_plain(answer, BAD_DATA)
    assert only_dead_letter(place)["reason"] == "empty"


def test_a_file_that_is_not_there_is_named_and_nothing_is_sent(place: Workplace) -> None:
    good = place.write("good.txt", GOOD)

    answer = place.run("sam-publish", "send", good, "missing.txt")

    assert "missing.txt" in the_complaint(answer, NO_INPUT)
    assert place.spooled("spool") == 0


def test_what_no_broker_takes_is_spooled(place: Workplace) -> None:
    answer = place.run("sam-publish", "send", "--broker", dead_broker(), stdin=GOOD)

    assert_plain(answer, 0)
    assert place.spooled("outbox") == 1


@pytest.mark.parametrize(
    ("option", "code", "spooled"),
    [("--require-broker", TRY_LATER, 1), ("--no-spool", UNAVAILABLE, 0)],
)
def test_an_unreachable_broker_is_told(
    place: Workplace, option: str, code: int, spooled: int
) -> None:
    answer = place.run("sam-publish", "send", option, "--broker", dead_broker(), stdin=GOOD)

    assert_plain(answer, code)
    assert answer.err.count("connection refused") == 1
    assert place.spooled("outbox") == spooled


def test_a_drain_of_an_unreachable_broker_loads_the_others_and_says_so(place: Workplace) -> None:
    place.succeed("sam-publish", "send", stdin=GOOD)
    configuration = (place.directory / "sam.toml").read_text()
    both = f'brokers = ["spool://{place.directory}/spool", "{dead_broker()}"]'
    one = f'brokers = ["spool://{place.directory}/spool"]'
    subscription = '[[consumer.subscription]]\ndestination = "/topic/x"\n'
    place.write("sam.toml", configuration.replace(one, both) + subscription)

    answer = place.run("sam-consume", "run", "--drain", "--timeout", "1")

    assert "127.0.0.1" in the_complaint(answer, UNAVAILABLE)
    assert hosts_in(place) == ["ce01.example.org"]


def test_an_unwritable_spool_is_told_and_the_record_stays_with_the_caller(
    place: Workplace,
) -> None:
    place.write("outbox", "a file where the spool should be")

    answer = place.run("sam-publish", "send", "--broker", dead_broker(), stdin=GOOD)

    complaint = the_complaint(answer, CANNOT_CREATE)
    assert "outbox" in complaint
    assert "send them again" in complaint


@pytest.mark.parametrize(
    "command",
    [
        ["sam-consume", "run", "--drain"],
        ["sam-consume", "dead-letter", "list"],
        ["sam-db", "check"],
        ["sam-report", "run", "--day", "2024-02-28", "--profile", "critical.toml"],
        ["sam-report", "show", "--day", "2024-02-28"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.parametrize("state", ["missing", "without a schema", "of a newer version"])
def test_a_database_that_does_not_fit_is_told_and_nothing_is_taken(
    place: Workplace, command: list[str], state: str
) -> None:
    place.succeed("sam-publish", "send", stdin=GOOD)
    place.write("critical.toml", to_toml(PROFILE))
    spoil_database(place, state)

    answer = place.run(*command)

    complaint = the_complaint(answer, CONFIG)
    assert "sam.db" in complaint
    if state == "without a schema":
        assert "sam-db upgrade" in complaint
    assert place.spooled("spool") == 1


def test_a_profile_with_an_unknown_key_names_the_nearest(place: Workplace) -> None:
    profile = place.write("p.toml", to_toml(PROFILE).replace("validity_s", "validty_s"))

    for command in (["profile", "check"], ["run", "--day", "2024-02-28", "--profile"]):
        answer = place.run("sam-report", *command, profile)

        assert_plain(answer, CONFIG)
        assert "validty_s" in answer.err
        assert "validity_s" in answer.err


def test_a_profile_that_is_not_there_is_named(place: Workplace) -> None:
    answer = place.run("sam-report", "run", "--day", "2024-02-28", "--profile", "absent.toml")

    assert "absent.toml" in the_complaint(answer, NO_INPUT)


@pytest.mark.parametrize("command", ["run", "show", "explain", "site"])
def test_a_day_in_the_future_is_refused(place: Workplace, command: str) -> None:
    tomorrow = str(datetime.now(UTC).date() + timedelta(days=1))
    profile = place.write("critical.toml", to_toml(PROFILE))
    options = {
        "run": ["--day", tomorrow, "--profile", str(profile)],
        "show": ["--day", tomorrow],
        "explain": ["--day", tomorrow, "--site", "ASTER-T1"],
        "site": ["--from", tomorrow, "--to", tomorrow, "--out", "pages"],
    }

    answer = place.run("sam-report", command, *options[command])

    assert "future" in the_complaint(answer, USAGE)


def test_a_machine_without_java_is_told_what_to_install(place: Workplace) -> None:
    place = replace(place, environment={"PATH": str(PROGRAMS), "JAVA_HOME": ""})
    profile = place.write("critical.toml", to_toml(PROFILE))

    answer = place.run("sam-report", "run", "--day", "2024-02-28", "--profile", profile)

    assert "default-jre-headless" in the_complaint(answer, UNAVAILABLE)


@pytest.mark.parametrize("program", ["sam-publish", "sam-consume", "sam-db", "sam-report"])
def test_a_word_that_is_no_command_is_a_usage_error(place: Workplace, program: str) -> None:
    answer = place.run(program, "dance")

    assert_plain(answer, USAGE)
    assert "dance" in answer.err


def assert_plain(answer: Answer, code: int) -> None:
    """The code, and no sign of a program that fell over."""
    assert answer.code == code, str(answer)
    assert "Traceback" not in answer.out + answer.err, str(answer)


def the_complaint(answer: Answer, code: int) -> str:
    """The one line that says what is wrong."""
    assert_plain(answer, code)
    complaints = [line for line in answer.err.splitlines() if not LOG.match(line)]
    assert len(complaints) == 1, str(answer)
    return complaints[0]


def dead_broker() -> str:
    (port,) = free_ports(1)
    return f"stomp://127.0.0.1:{port}"


def spoil_database(place: Workplace, state: str) -> None:
    database = place.directory / "sam.db"
    if state == "of a newer version":
        execute(place.database, "UPDATE alembic_version SET version_num = '9999'")
        return
    for file in place.directory.glob("sam.db*"):
        file.unlink()
    if state == "without a schema":
        database.touch()


def hosts_loaded(place: Workplace) -> list[str]:
    """The hosts of all rows, after loading what is there."""
    place.succeed("sam-consume", "run", "--drain")
    return hosts_in(place)


def hosts_in(place: Workplace) -> list[str]:
    rows = query(place.database, "SELECT hostName FROM metricOutput ORDER BY hostName")
    return [row["hostName"] for row in rows]


def only_dead_letter(place: Workplace) -> dict[str, Any]:
    (letter,) = query(place.database, "SELECT * FROM dead_letter")
    return dict(letter)
