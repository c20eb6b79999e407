"""Bad input gives one clear line and the documented exit code; nothing is lost, no traceback.

For a day without data see test_road.py, for an unreachable database test_database_away.py.
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

LOG = re.compile(r"\S+Z (INFO|WARNING) ")  # log lines are not error messages
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
    """A database with only its schema, to copy: creating it takes longer than most tests here."""
    return embedded(tmp_path_factory.mktemp("empty")).directory / "sam.db"


@pytest.fixture
def workplace(tmp_path: Path, empty_database: Path) -> Workplace:
    shutil.copy(empty_database, tmp_path)
    return embedded_workplace(tmp_path)


def test_a_broken_record_is_refused_by_line_and_the_others_are_sent(
    workplace: Workplace,
) -> None:
    file = workplace.write("results.txt", GOOD + BROKEN + GOOD.replace("ce01", "ce03"))

    answer = workplace.run("sam-publish", "send", file)

    error = only_error_line(answer, BAD_DATA)
    assert "results.txt:7" in error
    assert "SPLENDID" in error
    assert hosts_loaded(workplace) == ["ce01.example.org", "ce03.example.org"]


def test_a_broken_record_in_a_message_becomes_a_dead_letter_and_the_others_rows(
    workplace: Workplace,
) -> None:
    file = workplace.write("results.txt", GOOD + BROKEN)
    workplace.succeed("sam-publish", "send", "--raw", file)

    answer = workplace.run("sam-consume", "run", "--drain")

    assert_exit(answer, BAD_DATA)
    assert "SPLENDID" in only_dead_letter(workplace)["error"]
    assert hosts_loaded(workplace) == ["ce01.example.org"]


def test_a_message_of_an_unknown_class_is_published_and_becomes_a_dead_letter(
    workplace: Workplace,
) -> None:
    workplace.succeed("sam-publish", "send", "--class", "weatherReport", stdin="sky: blue\nEOT\n")

    answer = workplace.run("sam-consume", "run", "--drain")

    assert_exit(answer, BAD_DATA)
    letter = only_dead_letter(workplace)
    assert (letter["reason"], letter["message_class"]) == ("unknown-class", "weatherReport")
    assert bytes(letter["body"]) == b"sky: blue\nEOT\n"


def test_an_unknown_key_of_a_record_is_ignored(workplace: Workplace) -> None:
    workplace.succeed("sam-publish", "send", stdin="moonPhase: full\n" + GOOD)

    workplace.succeed("sam-consume", "run", "--drain")

    assert hosts_loaded(workplace) == ["ce01.example.org"]


@pytest.mark.parametrize(
    ("section", "misspelt", "meant", "command"),
    [
        ("publisher", "broker", "brokers", ["sam-publish", "spool", "status"]),
        ("consumer", "nam", "name", ["sam-consume", "run", "--drain"]),
        ("database", "ulr", "url", ["sam-db", "check"]),
        ("report", "profile", "profiles", ["sam-report", "run", "--day", "2024-02-28"]),
    ],
)
def test_an_unknown_configuration_key_is_an_error_that_names_the_nearest_one(
    workplace: Workplace, section: str, misspelt: str, meant: str, command: list[str]
) -> None:
    database = f'[database]\nurl = "{workplace.database}"\n' if section != "database" else ""
    workplace.write("sam.toml", f'{database}[{section}]\n{misspelt} = "x"\n')

    answer = workplace.run(*command)

    assert_exit(answer, CONFIG)
    assert misspelt in answer.err
    assert meant in answer.err


def test_an_empty_body_is_refused(workplace: Workplace) -> None:
    answer = workplace.run("sam-publish", "send", stdin="")

    assert "empty" in only_error_line(answer, BAD_DATA)


def test_an_empty_message_becomes_a_dead_letter(workplace: Workplace) -> None:
    workplace.succeed("sam-publish", "send", "--raw", workplace.write("nothing", ""))

    answer = workplace.run("sam-consume", "run", "--drain")

    assert_exit(answer, BAD_DATA)
    assert only_dead_letter(workplace)["reason"] == "empty"


def test_a_missing_file_is_named_and_nothing_is_sent(workplace: Workplace) -> None:
    good = workplace.write("good.txt", GOOD)

    answer = workplace.run("sam-publish", "send", good, "missing.txt")

    assert "missing.txt" in only_error_line(answer, NO_INPUT)
    assert workplace.spooled("spool") == 0


def test_a_message_that_no_broker_takes_is_spooled(workplace: Workplace) -> None:
    answer = workplace.run("sam-publish", "send", "--broker", dead_broker(), stdin=GOOD)

    assert_exit(answer, 0)
    assert workplace.spooled("outbox") == 1


@pytest.mark.parametrize(
    ("option", "code", "spooled"),
    [("--require-broker", TRY_LATER, 1), ("--no-spool", UNAVAILABLE, 0)],
)
def test_an_unreachable_broker_is_reported(
    workplace: Workplace, option: str, code: int, spooled: int
) -> None:
    answer = workplace.run("sam-publish", "send", option, "--broker", dead_broker(), stdin=GOOD)

    assert_exit(answer, code)
    assert answer.err.count("connection refused") == 1
    assert workplace.spooled("outbox") == spooled


def test_a_drain_reports_an_unreachable_broker_and_loads_the_others(workplace: Workplace) -> None:
    workplace.succeed("sam-publish", "send", stdin=GOOD)
    configuration = (workplace.directory / "sam.toml").read_text()
    spool_and_dead = f'brokers = ["spool://{workplace.directory}/spool", "{dead_broker()}"]'
    only_spool = f'brokers = ["spool://{workplace.directory}/spool"]'
    subscription = '[[consumer.subscription]]\ndestination = "/topic/x"\n'
    workplace.write("sam.toml", configuration.replace(only_spool, spool_and_dead) + subscription)

    answer = workplace.run("sam-consume", "run", "--drain", "--timeout", "1")

    assert "127.0.0.1" in only_error_line(answer, UNAVAILABLE)
    assert hosts_in(workplace) == ["ce01.example.org"]


def test_an_unwritable_spool_is_reported_and_the_caller_must_send_again(
    workplace: Workplace,
) -> None:
    workplace.write("outbox", "a file where the spool should be")

    answer = workplace.run("sam-publish", "send", "--broker", dead_broker(), stdin=GOOD)

    error = only_error_line(answer, CANNOT_CREATE)
    assert "outbox" in error
    assert "send " in error
    assert "again" in error


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
def test_an_unusable_database_is_reported_and_no_message_is_consumed(
    workplace: Workplace, command: list[str], state: str
) -> None:
    workplace.succeed("sam-publish", "send", stdin=GOOD)
    workplace.write("critical.toml", to_toml(PROFILE))
    spoil_database(workplace, state)

    answer = workplace.run(*command)

    error = only_error_line(answer, CONFIG)
    assert "sam.db" in error
    if state == "without a schema":
        assert "sam-db upgrade" in error
    assert workplace.spooled("spool") == 1


def test_an_unknown_profile_key_is_an_error_that_names_the_nearest_one(
    workplace: Workplace,
) -> None:
    profile = workplace.write("p.toml", to_toml(PROFILE).replace("validity_s", "validty_s"))

    for command in (["profile", "check"], ["run", "--day", "2024-02-28", "--profile"]):
        answer = workplace.run("sam-report", *command, profile)

        assert_exit(answer, CONFIG)
        assert "validty_s" in answer.err
        assert "validity_s" in answer.err


def test_a_missing_profile_is_named(workplace: Workplace) -> None:
    answer = workplace.run("sam-report", "run", "--day", "2024-02-28", "--profile", "absent.toml")

    assert "absent.toml" in only_error_line(answer, NO_INPUT)


@pytest.mark.parametrize("command", ["run", "show", "explain", "site"])
def test_a_day_in_the_future_is_refused(workplace: Workplace, command: str) -> None:
    tomorrow = str(datetime.now(UTC).date() + timedelta(days=1))
    profile = workplace.write("critical.toml", to_toml(PROFILE))
    options = {
        "run": ["--day", tomorrow, "--profile", str(profile)],
        "show": ["--day", tomorrow],
        "explain": ["--day", tomorrow, "--site", "ASTER-T1"],
        "site": ["--from", tomorrow, "--to", tomorrow, "--out", "pages"],
    }

    answer = workplace.run("sam-report", command, *options[command])

    assert "future" in only_error_line(answer, USAGE)


def test_a_run_without_java_names_the_package_to_install(workplace: Workplace) -> None:
    without_java = {"PATH": str(PROGRAMS), "JAVA_HOME": ""}
    workplace = replace(workplace, environment=without_java)
    profile = workplace.write("critical.toml", to_toml(PROFILE))

    answer = workplace.run("sam-report", "run", "--day", "2024-02-28", "--profile", profile)

    assert "default-jre-headless" in only_error_line(answer, UNAVAILABLE)


@pytest.mark.parametrize("program", ["sam-publish", "sam-consume", "sam-db", "sam-report"])
def test_an_unknown_command_is_a_usage_error(workplace: Workplace, program: str) -> None:
    answer = workplace.run(program, "dance")

    assert_exit(answer, USAGE)
    assert "dance" in answer.err


def assert_exit(answer: Answer, code: int) -> None:
    """Check the exit code, and that there is no traceback."""
    assert answer.code == code, str(answer)
    assert "Traceback" not in answer.out + answer.err, str(answer)


def only_error_line(answer: Answer, code: int) -> str:
    """The one line of stderr that is not a log line, of a program that exited with the code."""
    assert_exit(answer, code)
    errors = [line for line in answer.err.splitlines() if not LOG.match(line)]
    assert len(errors) == 1, str(answer)
    return errors[0]


def dead_broker() -> str:
    (port,) = free_ports(1)
    return f"stomp://127.0.0.1:{port}"


def spoil_database(workplace: Workplace, state: str) -> None:
    database = workplace.directory / "sam.db"
    if state == "of a newer version":
        execute(workplace.database, "UPDATE alembic_version SET version_num = '9999'")
        return
    for file in workplace.directory.glob("sam.db*"):
        file.unlink()
    if state == "without a schema":
        database.touch()


def hosts_loaded(workplace: Workplace) -> list[str]:
    """The hosts of all rows, after loading all messages."""
    workplace.succeed("sam-consume", "run", "--drain")
    return hosts_in(workplace)


def hosts_in(workplace: Workplace) -> list[str]:
    rows = query(workplace.database, "SELECT hostName FROM metricOutput ORDER BY hostName")
    return [row["hostName"] for row in rows]


def only_dead_letter(workplace: Workplace) -> dict[str, Any]:
    (letter,) = query(workplace.database, "SELECT * FROM dead_letter")
    return dict(letter)
