"""Bad input gives one clear line and the documented exit code; nothing is lost, no traceback.

For each kind of bad record see tests/unit/schema/records, for a day without data test_road.py, for
an unreachable database test_database_away.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.commands import Answer, Workplace, embedded
from tests.support.reports.stored import execute, query
from tests.worlds.profile_file import to_toml
from tests.worlds.small import PROFILE

BAD_DATA, NO_INPUT, CONFIG = 65, 66, 78
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
DRAIN = ("sam-consume", "run", "--drain", "--timeout", "1")


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return embedded(tmp_path)


def only_error_line(answer: Answer, code: int) -> str:
    """The one line of stderr that is not a log line, of a program that exited with the code."""
    assert answer.code == code, str(answer)
    assert "Traceback" not in answer.out + answer.err, str(answer)
    errors = [line for line in answer.err.splitlines() if not LOG.match(line)]
    assert len(errors) == 1, str(answer)
    return errors[0]


def hosts_in(workplace: Workplace) -> list[str]:
    rows = query(workplace.database, "SELECT hostName FROM metricOutput ORDER BY hostName")
    return [row["hostName"] for row in rows]


def test_what_is_broken_is_refused_by_line_or_becomes_a_dead_letter_and_the_rest_rows(
    workplace: Workplace,
) -> None:
    third = "moonPhase: full\n" + GOOD.replace("ce01", "ce03")
    file = workplace.write("results.txt", GOOD + BROKEN + third)
    raw = workplace.write("raw.txt", GOOD.replace("ce01", "ce04") + BROKEN)

    error = only_error_line(workplace.run("sam-publish", "send", file), BAD_DATA)
    empty = only_error_line(workplace.run("sam-publish", "send", stdin=""), BAD_DATA)
    absent = only_error_line(workplace.run("sam-publish", "send", file, "no.txt"), NO_INPUT)
    workplace.succeed("sam-publish", "send", "--raw", raw)
    workplace.succeed("sam-publish", "send", "--raw", workplace.write("nothing", ""))
    workplace.succeed("sam-publish", "send", "--class", "weatherReport", stdin="sky: blue\nEOT\n")
    drained = workplace.run(*DRAIN)

    assert "results.txt:7" in error
    assert "SPLENDID" in error
    assert "empty" in empty
    assert "no.txt: no such file or directory; " in absent
    assert drained.code == BAD_DATA, str(drained)
    assert hosts_in(workplace) == [f"ce0{number}.example.org" for number in (1, 3, 4)]
    letters = {
        row["reason"]: (row["error"], row["message_class"], bytes(row["body"]))
        for row in query(workplace.database, "SELECT * FROM dead_letter")
    }
    assert letters.keys() == {"bad-status", "empty", "unknown-class"}
    assert "SPLENDID" in letters["bad-status"][0]
    assert letters["unknown-class"][1:] == ("weatherReport", b"sky: blue\nEOT\n")
    assert workplace.spooled("spool") == 0


@pytest.mark.parametrize("state", ["missing", "without a schema", "of a newer version"])
def test_an_unusable_database_is_reported_and_no_message_is_consumed(
    workplace: Workplace, state: str
) -> None:
    workplace.succeed("sam-publish", "send", stdin=GOOD)
    workplace.write("critical.toml", to_toml(PROFILE))
    if state == "of a newer version":
        execute(workplace.database, "UPDATE alembic_version SET version_num = '9999'")
    else:
        for file in workplace.directory.glob("sam.db*"):
            file.unlink()
        if state == "without a schema":
            (workplace.directory / "sam.db").touch()

    for command in (
        DRAIN,
        ("sam-consume", "dead-letter", "list"),
        ("sam-db", "check"),
        ("sam-report", "run", "--day", "2024-02-28", "--profile", "critical.toml"),
        ("sam-report", "show", "--day", "2024-02-28"),
    ):
        error = only_error_line(workplace.run(*command), CONFIG)
        assert "sam.db" in error
        assert state != "without a schema" or "sam-db upgrade" in error
        assert workplace.spooled("spool") == 1
