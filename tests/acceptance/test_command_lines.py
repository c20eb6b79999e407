"""What all programs share: help, outputs that can't be written, logs, -q, wrong options."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.program.command import USAGE
from tests.acceptance.help import PROGRAMS as PROGRAMS_WITH_HELP
from tests.acceptance.help import file_of, text_of
from tests.support.commands import PROGRAMS, RESULT, Answer, Workplace, embedded
from tests.support.consumer.site import fill_spool
from tests.support.reports.stored import query

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


def test_lines_in_the_journal_have_a_priority_and_as_json_name_broker_message_and_class(
    workplace: Workplace,
) -> None:
    garbage = new_message("metricOutput", "garbage")
    fill_spool(workplace.directory / "spool", [garbage])

    lines = in_journal(workplace, "sam-consume", "--log-format", "json", "run", "--drain")
    [text] = in_journal(workplace, "sam-db", "--config", "missing.toml", "check")

    [letter] = [json.loads(line[3:]) for line in lines if "dead letter," in line]
    assert {line[:4] for line in lines if "dead letter," in line} == {"<4>{"}
    assert [line[:4] for line in lines if "starting" in line] == ["<6>{"]
    assert letter["broker"] == f"spool://{workplace.directory}/spool"
    assert (letter["message_id"], letter["message_class"]) == (garbage.message_id, "metricOutput")
    assert text.startswith("<3>sam-db: error: ")


def in_journal(workplace: Workplace, *command: str) -> list[str]:
    """The lines that a command writes to a file which it takes for the journal."""
    log = workplace.directory / "journal"
    with log.open("w") as stderr:
        status = os.fstat(stderr.fileno())
        stream = f"{status.st_dev}:{status.st_ino}"
        subprocess.run(
            [str(PROGRAMS / command[0]), *command[1:]],
            cwd=workplace.directory,
            env={**workplace.clean_environment(command), "JOURNAL_STREAM": stream},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            timeout=60,
        )
    return log.read_text().splitlines()


QUIET = (
    ("sam-db", "-q", "upgrade"),
    ("sam-report", "-q", "run", "--profile", "profile.toml", "--due"),  # nothing is due
    ("sam-db", "repair", "-q"),
    ("sam-db", "-q", "check"),
    ("sam-publish", "-q", "check"),
    ("sam-consume", "-q", "check"),
    ("sam-db", "-q", "partitions"),
    ("sam-db", "-q", "prune", "--keep-results", "4000d", "--keep-details", "60d"),
    ("sam-db", "-q", "import", "records", "results.txt"),
    ("sam-db", "-q", "downtime", "add", "--site", "A", *TIMES),
    ("sam-publish", "-q", *RESULT[1:]),
    ("sam-publish", "-q", "send", "results.txt"),
    ("sam-publish", "-q", "spool", "repair"),
    ("sam-publish", "-q", "spool", "drain"),
    ("sam-consume", "-q", "run", "--drain"),
    ("sam-report", "-q", "exclusion", "add", "--group", "A", *TIMES),
    ("sam-report", "-q", "site", *DAY, "--out", "site"),
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


def test_a_quiet_drain_reports_new_dead_letters(workplace: Workplace) -> None:
    workplace.succeed("sam-publish", "-q", "send", "--class", "weather", stdin="sky: blue\nEOT\n")

    answer = workplace.run("sam-consume", "-q", "run", "--drain")

    assert answer.code == 65, str(answer)
    assert "unknown-class" in answer.out


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("jinja2", ("sam-report", "site", *DAY, "--out", "site"), "reports"),
        ("sqlalchemy", ("sam-consume", "dead-letter", "list"), "consumer"),
    ],
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    workplace: Workplace, missing: str, command: Sequence[str], extra: str
) -> None:
    hook = workplace.write(
        "hook/sitecustomize.py", f"import sys\nsys.modules['{missing}'] = None\n"
    )
    path = os.pathsep.join([str(hook.parent), *filter(None, [os.environ.get("PYTHONPATH")])])

    done = subprocess.run(
        [str(PROGRAMS / command[0]), *command[1:]],
        cwd=workplace.directory,
        env={**workplace.clean_environment(command), "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )

    [line] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (69, ""), line
    assert f"{missing} is not installed" in line
    assert f"pip install '.[{extra}]'" in line


NUMBERS = "nonsense '' -1 1.5 nan inf 99999999999999999999"
SECONDS = "nonsense '' -1 nan inf"
TIMES_OF_DAY = "nonsense '' 08:00 2026-11-07T08:00 2026-11-07T25:00Z 2026-13-01T00:00Z"
DAYS = "nonsense '' yesterday 2026-02-30 20261107 9999-01-01"
MONTHS = "nonsense '' 2026-13 11/2026"
AGES = "nonsense '' 30 13m 0d -1d 1.5d"
TEXTS = "'' ' '"
ADD_DOWNTIME = "downtime add --site A --reason x --start 2026-11-07T08:00Z --end 2026-11-07T12:00Z"
EXCLUDE = "exclusion add --reason x --start 2026-11-07T08:00Z --end 2026-11-07T12:00Z"
OPTIONS = (
    ("sam-publish", "result", "--broker --class", TEXTS),
    ("sam-publish", "send", "--broker", "nonsense ftp://x stomp://"),
    ("sam-publish", "send", "--timeout", f"0 {SECONDS}"),
    ("sam-publish", "send", "--header", "nonsense =x destination=/queue/x"),
    ("sam-publish", "run", "--plugin-timeout --publish-failure", "nonsense ''"),
    ("sam-publish", "spool list", "--limit", f"0 {NUMBERS}"),
    ("sam-publish", "check", "--log-format --config", "''"),
    ("sam-consume", "run --drain", "--timeout", SECONDS),
    ("sam-consume", "run", "--to", "nonsense '' listen+http://127.0.0.1"),
    ("sam-consume", "run", "--instance", f"0 {NUMBERS}"),
    ("sam-consume", "publishers", "--since", AGES),
    ("sam-consume", "dead-letter list", "--reason --class --state", "nonsense ''"),
    ("sam-consume", "dead-letter list", "--limit", f"0 {NUMBERS}"),
    ("sam-consume", "dead-letter drop", "--older-than", AGES),
    ("sam-consume", "dead-letter edit 1", "--header", "nonsense =x"),
    ("sam-db", "prune", "--keep-results --keep-details --keep-audit --keep-dead-letters", AGES),
    ("sam-db", "partitions", "--ahead", NUMBERS),
    ("sam-db", "sql", "--from --dialect", "nonsense ''"),
    ("sam-db", "import records results.txt", "--class", "nonsense ''"),
    ("sam-db", "import records results.txt", "--age-limit", f"0 {NUMBERS}"),
    ("sam-db", "import csv results.txt", "--class", "nonsense '' metricOutput"),
    ("sam-db", "import csv results.txt --class downtime", "--delimiter", "nonsense ''"),
    ("sam-db", "import gocdb --downtimes x.xml", "--window", f"a..b {DAYS}"),
    ("sam-db", "import gocdb --downtimes x.xml", "--at --since", TIMES_OF_DAY),
    ("sam-db", ADD_DOWNTIME, "--start --end", TIMES_OF_DAY),
    ("sam-db", ADD_DOWNTIME, "--start", "2026-11-07T12:00Z"),
    ("sam-db", ADD_DOWNTIME, "--site --host --flavour --id --reason --who", TEXTS),
    ("sam-db", ADD_DOWNTIME, "--classification --severity", TEXTS),
    ("sam-db", "downtime cancel x", "--end", TIMES_OF_DAY),
    ("sam-db", "downtime list", "--from --to", DAYS.replace("9999-01-01", "")),
    ("sam-report", "run", "--day", DAYS),
    ("sam-report", "run --due", "--conf", "nonsense '' =x"),
    ("sam-report", "show", "--day", DAYS),
    ("sam-report", "show", "--month", MONTHS),
    ("sam-report", "show --day 2026-11-07", "--level --format --report", "nonsense ''"),
    ("sam-report", "now", "--format", "nonsense '' csv"),
    ("sam-report", "explain --site A", "--day", DAYS),
    ("sam-report", "explain --site A --day 2026-11-07", "--flavour --host --site --report", TEXTS),
    ("sam-report", "site --out x", "--day", DAYS),
    ("sam-report", "profile check profile.toml", "--days", f"0 {NUMBERS}"),
    ("sam-report", f"{EXCLUDE} --group A", "--start --end", TIMES_OF_DAY),
    ("sam-report", f"{EXCLUDE} --group A", "--end", "2026-11-07T07:00Z"),
    ("sam-report", EXCLUDE, "--group --metric --monitoring-host", TEXTS),
    ("sam-report", f"{EXCLUDE} --metric m", "--site --flavour --host --who --reason", TEXTS),
    ("sam-report", "exclusion remove --reason x", "", f"0 {NUMBERS}"),
    ("sam-report", "seal --who x", "--month", MONTHS),
    ("sam-report", "seal --month 2026-10", "--who", TEXTS),
    ("sam-report", "export --out x --day 2026-11-07", "--format", "nonsense ''"),
    ("sam-report", "export --out x --format csv", "--day", DAYS),
    ("sam-report", "trends --day 2026-11-07", "--top", f"0 {NUMBERS}"),
)


@pytest.mark.parametrize(
    ("program", "command", "options", "values"),
    OPTIONS,
    ids=[f"{command} {options}" for _, command, options, _ in OPTIONS],
)
def test_a_wrong_value_of_an_option_exits_64(
    workplace: Workplace, program: str, command: str, options: str, values: str
) -> None:
    required = ["--metric=m", "--status=OK", "--host=h", "--flavour=CE"]
    argv = [*shlex.split(command), *(required if command == "result" else [])]

    answers = {}
    for option in options.split() or [""]:
        for value in shlex.split(values):
            given = f"{option}={value}" if option else value
            answers[given] = workplace.run(program, *argv, given)

    assert {text: answer.code for text, answer in answers.items() if answer.code != USAGE} == {}
    assert not [answer for answer in answers.values() if "a bug" in answer.err]
    assert workplace.run(program, "dance").code == USAGE
