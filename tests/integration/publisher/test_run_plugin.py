"""Running a monitoring plugin: the output that is passed on, and the record."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from sam_pipeline.publisher.probe.plugin import MAX_OUTPUT_BYTES, PluginRun, record_of, run_plugin
from tests.support.brokers.fake_broker import wait_for


def discard(chunk: bytes) -> None:
    """Pass nothing on."""


def run(script: str, timeout_s: float = 10.0) -> tuple[PluginRun, bytes]:
    """Run a shell script; the outcome and the output that was passed on."""
    passed_on: list[bytes] = []
    outcome = run_plugin(["sh", "-c", script], timeout_s, passed_on.append, discard)
    return outcome, b"".join(passed_on)


@pytest.mark.parametrize(
    ("code", "status"), [(0, "OK"), (1, "WARNING"), (2, "CRITICAL"), (3, "UNKNOWN")]
)
def test_the_exit_code_of_a_plugin_is_its_status(code: int, status: str) -> None:
    outcome, passed_on = run(f"echo fine; exit {code}")

    record, _ = record_of(outcome, "check_it")

    assert outcome.exit_code == code
    assert passed_on == b"fine\n"
    assert (record["metricStatus"], record["summaryData"]) == (status, "fine")


def test_output_is_summary_performance_data_and_details() -> None:
    outcome, _ = run("printf 'LOAD OK - 0.1 | load1=0.1;9;12;0\\nline one\\nline | two\\n'")

    record, _ = record_of(outcome, "check_load")

    assert record["summaryData"] == "LOAD OK - 0.1"
    assert record["performanceData"] == "load1=0.1;9;12;0"
    assert record["detailsData"] == "line one\nline | two"


def test_a_plugin_without_output_keeps_its_status() -> None:
    outcome, _ = run("exit 1")

    record, _ = record_of(outcome, "check_it")

    assert (record["metricStatus"], record["summaryData"]) == ("WARNING", "no output")


@pytest.mark.parametrize(
    ("script", "exit_code", "stem"),
    [
        ("echo bad; exit 17", 17, "exit code 17"),
        ("exit 126", 126, "exit code 126"),
        ("exit 127", 127, "exit code 127"),
        ("kill -9 $$", 137, "killed by signal 9"),
    ],
)
def test_an_invalid_plugin_result_is_unknown_with_the_reason(
    script: str, exit_code: int, stem: str
) -> None:
    outcome, _ = run(script)

    record, _ = record_of(outcome, "check_it")

    assert outcome.exit_code == exit_code
    assert record["metricStatus"] == "UNKNOWN"
    assert record["summaryData"].startswith("check_it ")
    assert stem in record["summaryData"]


@pytest.mark.parametrize(("name", "code"), [("/no/such/plugin", 127), ("/", 126)])
def test_a_plugin_that_cannot_be_run_has_the_exit_code_of_a_shell(name: str, code: int) -> None:
    outcome = run_plugin([name], 1.0, discard, discard)

    record, _ = record_of(outcome, name)

    assert outcome.exit_code == code
    assert record["metricStatus"] == "UNKNOWN"
    assert "cannot be run" in record["summaryData"]


def test_huge_output_is_passed_on_in_full_and_recorded_in_part() -> None:
    outcome, passed_on = run(f"head -c {3 * MAX_OUTPUT_BYTES} /dev/zero | tr '\\0' x")

    record, [warning] = record_of(outcome, "check_it")

    assert len(passed_on) == 3 * MAX_OUTPUT_BYTES
    assert record["metricStatus"] == "OK"
    assert "wrote more than" in warning
    assert len(record["summaryData"]) == MAX_OUTPUT_BYTES


def test_a_plugin_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    children = tmp_path / "children"
    started = time.monotonic()

    outcome, passed_on = run(
        f"echo begun; sleep 60 & echo $! > {children}; trap '' TERM; wait; sleep 60", timeout_s=0.5
    )

    assert time.monotonic() - started < 5
    assert outcome.exit_code == 3
    assert "took longer than 0.5 s" in outcome.trouble
    assert (outcome.output, passed_on) == (b"begun\n", b"begun\n")
    child = int(children.read_text())
    wait_for(lambda: not running(child))


def test_a_plugin_with_endless_output_ends_at_its_timeout() -> None:
    started = time.monotonic()

    outcome = run_plugin(["yes"], 0.5, discard, discard)

    assert time.monotonic() - started < 5
    assert "took longer" in outcome.trouble


def test_run_does_not_wait_for_an_orphan_that_keeps_the_output_open() -> None:
    started = time.monotonic()

    outcome, _ = run("sleep 20 & echo fine")

    assert time.monotonic() - started < 5
    assert (outcome.exit_code, outcome.output) == (0, b"fine\n")


def test_run_does_not_wait_for_an_orphan_with_endless_output() -> None:
    started = time.monotonic()

    outcome, _ = run("(while echo x; do :; done) & echo fine")

    assert time.monotonic() - started < 5
    assert outcome.exit_code == 0
    assert b"fine\n" in outcome.output


def test_the_last_output_of_a_terminated_plugin_is_passed_on() -> None:
    outcome, passed_on = run("trap 'echo sorry; exit 2' TERM; sleep 20 & wait", timeout_s=0.2)

    assert (outcome.exit_code, outcome.output, passed_on) == (3, b"sorry\n", b"sorry\n")
    assert "took longer" in outcome.trouble


def test_binary_output_is_passed_on_byte_for_byte() -> None:
    passed_on = bytearray()
    script = "import os; os.write(1, bytes(range(256)) * 300)"

    outcome = run_plugin([sys.executable, "-c", script], 10.0, passed_on.extend, discard)

    assert passed_on == outcome.output == bytes(range(256)) * 300


def test_standard_error_is_passed_on_beside_the_output() -> None:
    errors = bytearray()

    outcome = run_plugin(
        ["sh", "-c", "echo bad >&2; echo fine; echo worse >&2"], 10.0, discard, errors.extend
    )

    assert outcome.output == b"fine\n"
    assert errors == outcome.errors == b"bad\nworse\n"


def running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("received_before_the_start", [True, False])
def test_a_signal_kills_the_plugin_which_is_then_unknown(received_before_the_start: bool) -> None:
    received = [signal.SIGHUP] if received_before_the_start else []
    started = time.monotonic()

    outcome = run_plugin(
        ["sh", "-c", "echo begun; sleep 60"],
        60.0,
        lambda chunk: received.append(signal.SIGHUP),
        discard,
        received,
    )

    record, _ = record_of(outcome, "check_it")
    assert time.monotonic() - started < 5
    assert outcome.exit_code == 128 + signal.SIGHUP
    assert record["metricStatus"] == "UNKNOWN"
    assert "SIGHUP" in record["summaryData"]
