"""What all programs share: help, outputs, -q, wrong options, bad input; and README.md."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import USAGE
from tests.acceptance.help import PROGRAMS as PROGRAMS_WITH_HELP
from tests.acceptance.help import file_of, text_of
from tests.support.commands import PROGRAMS, RESULT, Answer, Workplace, embedded
from tests.support.page import Page, shell
from tests.support.reports.stored import execute, query

PROFILE = 'name = "critical"\nvalidity_s = "off"\n[flavours.CE]\nmetrics = ["m"]\n'
RECORD = """\
hostName: ce02.example.org
serviceFlavour: CE
metricName: m
metricStatus: OK
timestamp: 2024-02-28T12:00:00Z
EOT
"""
DAY = ("--from", "2024-02-28", "--to", "2024-02-28")
TIMES = ("--start", "2024-02-28T08:00Z", "--end", "2024-02-28T12:00Z", "--reason", "power cut")
BAD_DATA, UNAVAILABLE, IO_ERROR = 65, 69, 74


@pytest.mark.parametrize("program", PROGRAMS_WITH_HELP)
def test_the_arguments_are_those_of_its_file(program: str) -> None:
    """Otherwise a command line of somebody may break; `python -m tests.acceptance.help` renews."""
    assert text_of(program) == file_of(program).read_text()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A database with only its schema, an empty spool and a file with one record."""
    workplace = embedded(tmp_path_factory.mktemp("site"))
    workplace.write("results.txt", RECORD)
    return workplace


def redirected(workplace: Workplace, redirection: str, *command: str) -> Answer:
    """Run a command in a shell that redirects its output."""
    done = subprocess.run(
        [
            *("bash", "-o", "pipefail", "-c", f'"$@" {redirection}', "bash"),
            *(str(PROGRAMS / command[0]), *command[1:]),
        ],
        cwd=workplace.directory,
        env=workplace.clean_environment(command),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Answer(command, done.returncode, done.stdout, done.stderr)


def results_of(workplace: Workplace) -> int:
    [row] = query(workplace.database, "SELECT count(*) AS n FROM metric_result")
    return int(row["n"])


@pytest.mark.parametrize("command", [RESULT, ("sam-publish", "send", "results.txt")])
def test_a_result_is_published_if_standard_output_is_full_and_the_command_exits_74(
    workplace: Workplace, command: Sequence[str]
) -> None:
    spooled = workplace.spooled("spool")

    answer = redirected(workplace, "> /dev/full", *command)

    assert answer.code == IO_ERROR, str(answer)
    [line] = answer.err.splitlines()
    assert line.startswith("sam-publish: error: standard output")
    assert workplace.spooled("spool") == spooled + 1


def test_a_drain_and_an_import_load_everything_if_standard_output_is_full(
    workplace: Workplace,
) -> None:
    workplace.succeed(*RESULT)
    before = results_of(workplace)

    drained = redirected(workplace, "> /dev/full", "sam-consume", "run", "--drain")

    assert drained.code == IO_ERROR, str(drained)
    assert results_of(workplace) > before
    record = workplace.write("other.txt", RECORD.replace("ce02", "ce03"))
    before = results_of(workplace)
    imported = redirected(workplace, ">/dev/full", "sam-db", "import", "records", str(record))
    assert imported.code == IO_ERROR, str(imported)
    assert results_of(workplace) == before + 1


def test_output_that_was_asked_for_and_could_not_be_written_is_one_error_line(
    workplace: Workplace,
) -> None:
    for command in (("sam-publish", "--help"), ("sam-report", "now")):
        answer = redirected(workplace, "> /dev/full", *command)
        assert answer.code == IO_ERROR, str(answer)
        assert len(answer.err.splitlines()) == 1
    # An error keeps its exit code if both outputs are full.
    lost = (*RESULT, "--broker", "stomp://127.0.0.1:1", "--no-spool")
    assert redirected(workplace, "> /dev/full 2> /dev/full", *lost).code == UNAVAILABLE


def test_good_records_are_published_if_errors_about_others_cannot_be_written(
    workplace: Workplace,
) -> None:
    workplace.write("mixed.txt", RECORD.replace("OK", "SPLENDID") + RECORD)
    spooled = workplace.spooled("spool")

    answer = redirected(workplace, "2> /dev/full", "sam-publish", "send", "mixed.txt")

    assert answer.code == BAD_DATA, str(answer)
    assert workplace.spooled("spool") == spooled + 1


@pytest.mark.parametrize("redirection", [">&- 2>&-", "<&- >&- 2>&-", "| true", "2> /dev/full"])
def test_a_result_is_published_with_exit_code_0_if_nobody_reads_the_output(
    workplace: Workplace, redirection: str
) -> None:
    spooled = workplace.spooled("spool")

    answer = redirected(workplace, redirection, *RESULT)

    assert (answer.code, answer.err) == (0, "")
    assert workplace.spooled("spool") == spooled + 1


QUIET = (
    ("sam-db", "-q", "upgrade"),
    ("sam-report", "-q", "run", "--profile", "profile.toml", "--due"),  # nothing is due
    ("sam-db", "repair", "-q"),
    ("sam-db", "-q", "check"),
    ("sam-publish", "-q", "check"),
    ("sam-consume", "-q", "check"),
    ("sam-db", "-q", "partition", "create"),
    ("sam-db", "-q", "prune", "--keep-results", "4000d", "--keep-details", "60d"),
    ("sam-db", "-q", "import", "records", "results.txt"),
    ("sam-db", "-q", "downtime", "add", "--site", "A", *TIMES),
    ("sam-publish", "-q", *RESULT[1:]),
    ("sam-publish", "-q", "send", "results.txt"),
    ("sam-publish", "-q", "spool", "repair"),
    ("sam-publish", "-q", "spool", "drain"),
    ("sam-consume", "-q", "run", "--drain"),
    ("sam-report", "-q", "exclusion", "add", "--site", "A", *TIMES),
    ("sam-report", "-q", "pages", *DAY, "--out", "pages"),
    ("sam-report", "-q", "export", "--format", "csv", *DAY, "--out", "export"),
)


def test_quiet_commands_print_nothing_on_success(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)
    workplace.write("results.txt", RECORD)
    workplace.write("profile.toml", PROFILE)

    answers = [workplace.succeed(*command) for command in QUIET]

    assert [f"{answer}" for answer in answers if answer.out or answer.err] == []
    assert workplace.succeed("sam-db", "-q", "downtime", "list").out
    assert workplace.succeed("sam-publish", "-q", "spool", "status").out
    assert workplace.succeed("sam-db", "-q", "prune", "--keep-audit", "1d", "--dry-run").out


EMPTY = {
    "sam-publish spool list": "no messages in the spool",
    "sam-consume dead-letter list": "no dead letters",
    "sam-consume sender list": "no records were received since ",
    "sam-consume subscription list": "no subscriptions: ",
    "sam-consume token list": "no tokens: ",
    "sam-db partition list": "no partitions; SQLite stores all days in one table",
    "sam-db downtime list": "no downtimes",
    "sam-db audit list": "no operations",
    "sam-report now": "no results, and no expected instances",
    "sam-report exclusion list": "no exclusions",
    "sam-report seal list": "no sealed months",
}


def test_an_empty_list_says_so(tmp_path: Path) -> None:
    workplace = embedded(tmp_path)

    answers = {command: workplace.succeed(*command.split()) for command in EMPTY}

    for command, answer in answers.items():
        assert EMPTY[command] in answer.out.partition("\n")[0], str(answer)


WRONG = (
    "sam-publish result --metric=m --status=OK --host=h --flavour=CE --broker=",
    "sam-publish send --header=destination=/queue/x",
    "sam-consume run --to=listen+http://127.0.0.1",
    "sam-consume run --drain --timeout=-1",
    "sam-consume dead-letter list --limit=0",
    "sam-consume dead-letter edit 1 --header==x",
    "sam-consume sender list --since=13y",
    "sam-db prune --keep-results=0d",
    "sam-db import csv results.txt --class=metricOutput",
    "sam-db downtime add --site A --reason x --start 2026-11-07T12:00Z --end=2026-11-07T08:00Z",
    "sam-db downtime add --site A --reason= --start 2026-11-07T08:00Z --end=2026-11-07T12:00Z",
    "sam-report run --day=9999-01-01",
    "sam-report run --due --conf==x",
    "sam-report show --month=2026-13",
    "sam-report explain --site= --day 2026-11-07",
    "sam-report exclusion add --site A --reason x --start 2026-11-07T08:00Z --end=08:00",
)


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_value_of_an_option_exits_64(workplace: Workplace, line: str) -> None:
    answer = workplace.run(*line.split())

    assert answer.code == USAGE, str(answer)
    assert "a bug" not in answer.err


README = Page("README.md")


def test_every_command_of_the_tour_succeeds(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path, broker="", database="")

    answer = shell(workplace, *README.texts("sh"))

    assert answer.code == 0, str(answer)
    assert (tmp_path / "pages" / "index.html").exists()


NO_INPUT, CONFIG = 66, 78
LOG = re.compile(r"\S+Z (INFO|WARNING) ")  # log lines are not error messages
GOOD, BROKEN = RECORD.replace("ce02", "ce01"), RECORD.replace("OK", "SPLENDID")
DRAIN = ("sam-consume", "run", "--drain", "--timeout", "1")


@pytest.fixture
def site(tmp_path: Path) -> Workplace:
    return embedded(tmp_path)


def only_error_line(answer: Answer, code: int) -> str:
    """The one line of stderr that is not a log line, of a program that exited with the code."""
    assert answer.code == code, str(answer)
    assert "Traceback" not in answer.out + answer.err, str(answer)
    errors = [line for line in answer.err.splitlines() if not LOG.match(line)]
    assert len(errors) == 1, str(answer)
    return errors[0]


def test_what_is_broken_is_refused_by_line_or_becomes_a_dead_letter_and_the_rest_rows(
    site: Workplace,
) -> None:
    third = "moonPhase: full\n" + GOOD.replace("ce01", "ce03")
    file = site.write("results.txt", GOOD + BROKEN + third)
    raw = site.write("raw.txt", GOOD.replace("ce01", "ce04") + BROKEN)

    error = only_error_line(site.run("sam-publish", "send", file), BAD_DATA)
    empty = only_error_line(site.run("sam-publish", "send", stdin=""), BAD_DATA)
    absent = only_error_line(site.run("sam-publish", "send", file, "no.txt"), NO_INPUT)
    site.succeed("sam-publish", "send", "--raw", raw)
    site.succeed("sam-publish", "send", "--raw", site.write("nothing", ""))
    site.succeed("sam-publish", "send", "--class", "weatherReport", stdin="sky: blue\nEOT\n")
    drained = site.run(*DRAIN)

    assert "results.txt:7" in error
    assert "SPLENDID" in error
    assert "empty" in empty
    assert "no.txt: no such file or directory; " in absent
    assert drained.code == BAD_DATA, str(drained)
    rows = query(site.database, "SELECT hostName FROM metricOutput ORDER BY hostName")
    assert [row["hostName"][:4] for row in rows] == ["ce01", "ce03", "ce04"]
    letters = {
        row["reason"]: (row["error"], row["message_class"], bytes(row["body"]))
        for row in query(site.database, "SELECT * FROM dead_letter")
    }
    assert letters.keys() == {"bad-status", "empty", "unknown-class"}
    assert "SPLENDID" in letters["bad-status"][0]
    assert letters["unknown-class"][1:] == ("weatherReport", b"sky: blue\nEOT\n")
    assert site.spooled("spool") == 0


@pytest.mark.parametrize("state", ["missing", "without a schema", "of a newer version"])
def test_an_unusable_database_is_reported_and_no_message_is_consumed(
    site: Workplace, state: str
) -> None:
    site.succeed("sam-publish", "send", stdin=GOOD)
    site.write("critical.toml", PROFILE)
    if state == "of a newer version":
        execute(site.database, "UPDATE alembic_version SET version_num = '9999'")
    else:
        for file in site.directory.glob("sam.db*"):
            file.unlink()
        if state == "without a schema":
            (site.directory / "sam.db").touch()

    for command in (
        DRAIN,
        ("sam-consume", "dead-letter", "list"),
        ("sam-db", "check"),
        ("sam-report", "run", "--day", "2024-02-28", "--profile", "critical.toml"),
        ("sam-report", "show", "--day", "2024-02-28"),
    ):
        error = only_error_line(site.run(*command), CONFIG)
        assert "sam.db" in error
        assert state != "without a schema" or "sam-db upgrade" in error
        assert site.spooled("spool") == 1
