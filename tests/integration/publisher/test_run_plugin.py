"""Running a monitoring plugin: the output that is passed on, and the record."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.publisher.probe.plugin import PluginRun, record_of, run_plugin
from tests.support.waiting import eventually

NO_END_S = 60.0
"""How long plugins would run that are stopped; a test that waits for them takes too long."""


def run(script: str, timeout_s: float = NO_END_S) -> tuple[PluginRun, bytes]:
    """Run a shell script; the outcome and the output that was passed on."""
    passed_on: list[bytes] = []
    command = ["sh", "-c", script]
    outcome = run_plugin(command, timeout_s, passed_on.append, lambda chunk: None)
    return outcome, b"".join(passed_on)


@pytest.mark.parametrize(
    ("script", "code", "status", "summary"),
    [
        ("echo fine", 0, "OK", "fine"),
        ("echo fine; exit 2", 2, "CRITICAL", "fine"),
        ("exit 1", 1, "WARNING", "no output"),
        ("echo fine; exit 3", 3, "UNKNOWN", "fine"),
        ("echo bad; exit 17", 17, "UNKNOWN", "check_it ended with exit code 17"),
        ("exit 126", 126, "UNKNOWN", "check_it can't be executed (exit code 126"),
        ("kill -9 $$", 137, "UNKNOWN", "check_it was killed by signal 9"),
        ("sleep 60 & echo fine", 0, "OK", "fine"),  # an orphan keeps the output open
        ("(while echo x; do :; done) & sleep 0.1; exit 2", 2, "CRITICAL", "x"),
    ],
)
def test_the_exit_code_is_the_status(script: str, code: int, status: str, summary: str) -> None:
    outcome, passed_on = run(script)

    record, _ = record_of(outcome, "check_it")
    assert outcome.exit_code == code
    assert passed_on.startswith(outcome.output[:100])
    assert (record["metricStatus"], record["summaryData"][: len(summary)]) == (status, summary)


@pytest.mark.parametrize(("name", "code"), [("/no/such/plugin", 127), ("/", 126)])
def test_a_plugin_that_cannot_be_run_has_the_exit_code_of_a_shell(name: str, code: int) -> None:
    outcome = run_plugin([name], NO_END_S, lambda chunk: None, lambda chunk: None)

    assert outcome.exit_code == code
    assert "cannot be run" in record_of(outcome, name)[0]["summaryData"]


@pytest.mark.parametrize(
    ("script", "begins"),
    [
        ("echo begun; trap '' TERM; wait; sleep 60", b"begun\n"),
        ("yes", b"y\n"),
        ("trap 'echo sorry; exit 2' TERM; wait", b"sorry\n"),
    ],
)
def test_a_plugin_that_takes_too_long_is_killed_with_its_children(
    tmp_path: Path, script: str, begins: bytes
) -> None:
    child = tmp_path / "child"

    outcome, passed_on = run(f"sleep 60 >/dev/null & echo $! > {child}; {script}", timeout_s=0.5)

    assert (outcome.exit_code, "took longer than 0.5 s" in outcome.trouble) == (3, True)
    assert outcome.output.startswith(begins) and passed_on.startswith(begins)
    eventually(lambda: not running(int(child.read_text())))


def running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
