"""Log lines for the journal of systemd and as JSON, of each installed program."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import new_message
from tests.support.commands import PROGRAMS, RESULT, embedded
from tests.support.consumer.site import fill_spool

CONFIG = 78


def run_in_journal(directory: Path, *command: str) -> list[str]:
    """The lines that a command writes to a file which it takes for the journal."""
    log = directory / "journal"
    with log.open("w") as stderr:
        status = os.fstat(stderr.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        subprocess.run(
            [str(PROGRAMS / command[0]), *command[1:]],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            timeout=60,
        )
    return log.read_text().splitlines()


def test_lines_in_the_journal_begin_with_their_priority(tmp_path: Path) -> None:
    embedded(tmp_path)
    fill_spool(tmp_path / "spool", [new_message("metricOutput", "garbage")])

    lines = run_in_journal(tmp_path, "sam-consume", "run", "--drain")

    assert [line[:3] for line in lines if "dead letter" in line] == ["<4>"]
    assert [line[:3] for line in lines if "starting" in line] == ["<6>"]
    assert not [line for line in lines if "Z INFO" in line]


@pytest.mark.parametrize(
    "command",
    [
        RESULT,
        ["sam-consume", "run"],
        ["sam-db", "check"],
        ["sam-report", "now"],
    ],
    ids=lambda command: command[0],
)
def test_a_refusal_at_start_has_the_priority_of_an_error_and_is_json_on_request(
    tmp_path: Path, command: Sequence[str]
) -> None:
    (tmp_path / "sam.toml").write_text("[publisher]\nbrokers = 5\n[consumer]\nbrokers = 5\n")

    [text, *_] = run_in_journal(tmp_path, *command)
    [document, *_] = run_in_journal(tmp_path, *command, "--log-format", "json")

    assert text.startswith(f"<3>{command[0]}: error: ")
    fields = json.loads(document.removeprefix("<3>"))
    assert (fields["level"], fields["logger"]) == ("ERROR", command[0])


def test_json_lines_name_the_broker(tmp_path: Path) -> None:
    embedded(tmp_path)
    garbage = new_message("metricOutput", "garbage")
    fill_spool(tmp_path / "spool", [garbage])

    lines = run_in_journal(tmp_path, "sam-consume", "--log-format", "json", "run", "--drain")

    [letter] = [json.loads(line[3:]) for line in lines if "dead letter," in line]
    assert letter["broker"] == f"spool://{tmp_path}/spool"
    assert (letter["message_id"], letter["message_class"]) == (garbage.message_id, "metricOutput")
