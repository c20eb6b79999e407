"""`sam-publish run`: whatever happens, the scheduler gets the plugin's exit code."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import PROGRAM, USER
from sam_pipeline.schema.program.command import VERSION
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import wait_for
from tests.support.commands import PROGRAMS

RUN = f"{PROGRAMS}/sam-publish run"
LOST = "the result is lost: "
CRITICAL = "-- sh -c 'echo broken; exit 2'"


class Host:
    """A host without configuration, whose broker is a directory queue."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.queue = DirectoryQueue(directory / "queue")
        self.to_queue = f"{RUN} --broker spool://{self.queue.path}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
        self.environment = {**kept, "HOME": str(directory), "STATE_DIRECTORY": f"{directory}/state"}

    def shell(self, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.directory,
            env={**self.environment, **variables},
            encoding="latin-1",
            timeout=60,
        )

    def record(self) -> dict[str, str]:
        """The values of the only record that was published."""
        [name] = self.queue.names()
        [row] = decode(self.queue.read(name), METRIC_OUTPUT.keys, datetime.now(UTC)).rows
        return dict(row.values)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("prepare", "options"),
    [
        ("echo '[publisher' > sam.toml", ""),
        ("echo '[publisher]\nbroker = 7' > sam.toml", ""),
        ("", "--config missing.toml"),
        ("", "--host 'not a host'"),
        ("", "--no-spool"),
        ("mkdir state; touch state/spool", ""),
        ("echo 'import os; os.uname = None' > sitecustomize.py", ""),
    ],
    ids=["no-toml", "bad-key", "no-file", "refused", "no-broker", "no-spool", "bug"],
)
def test_a_failure_of_ours_keeps_the_exit_code_of_the_plugin_and_says_that_the_result_is_lost(
    host: Host, prepare: str, options: str
) -> None:
    subprocess.run(["sh", "-c", prepare], cwd=host.directory, check=True)

    kept = host.shell(f"{RUN} {options} {CRITICAL}", PYTHONPATH=str(host.directory))
    unknown = host.shell(
        f"{RUN} {options} --publish-failure unknown {CRITICAL}", PYTHONPATH=str(host.directory)
    )

    assert (kept.returncode, kept.stdout) == (2, "broken\n"), kept.stderr
    assert (unknown.returncode, unknown.stdout) == (3, "broken\n"), unknown.stderr
    [line] = [line for line in kept.stderr.splitlines() if LOST in line]
    assert not line.endswith(LOST)
    assert "Traceback" not in kept.stderr


def test_a_removed_working_directory_loses_neither_the_exit_code_nor_the_result(host: Host) -> None:
    line = f"mkdir gone; cd gone; rmdir ../gone; {host.to_queue} {CRITICAL}"

    done = host.shell(line)

    assert (done.returncode, done.stdout) == (2, "broken\n"), done.stderr
    assert LOST not in done.stderr
    assert host.record()["metricStatus"] == "CRITICAL"


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "2>&-", "2>/dev/full", ">&- 2>&-"])
def test_a_closed_or_full_output_loses_neither_the_exit_code_nor_the_result(
    host: Host, redirection: str
) -> None:
    script = "sh -c 'echo broken; echo bad >&2; exit 2'"

    done = host.shell(f"{host.to_queue} -- {script} {redirection}")

    assert done.returncode == 2, done.stderr
    assert "bug" not in done.stderr
    assert LOST not in done.stderr
    record = host.record()
    assert (record["metricStatus"], record["summaryData"]) == ("CRITICAL", "broken")


def test_the_message_names_the_command_and_the_account(host: Host) -> None:
    host.shell(f"{host.to_queue} {CRITICAL}", LOGNAME="nagios")

    [name] = host.queue.names()
    headers = host.queue.read(name).headers
    assert headers[PROGRAM] == f"sam-publish/{VERSION} run"
    assert headers[USER] == "nagios"


@pytest.mark.parametrize(
    ("script", "stem"),
    [
        (r"printf 'CRIT caf\351\n'; exit 2", "not UTF-8"),
        (r"printf 'CRIT\000\n'; exit 2", "NUL"),
        ("echo CRIT; yes | head -c 2000000; exit 2", "more than"),
    ],
)
def test_the_exit_code_of_a_plugin_is_its_status_whatever_it_writes(
    host: Host, script: str, stem: str
) -> None:
    alone = host.shell(script)

    done = host.shell(f"{host.to_queue} -- sh -c {shlex.quote(script)}")

    assert (done.returncode, done.stdout) == (2, alone.stdout)
    assert stem in done.stderr
    record = host.record()
    assert record["metricStatus"] == "CRITICAL"
    assert record["summaryData"].startswith("CRIT")


def test_the_standard_error_of_a_plugin_without_output_is_recorded(host: Host) -> None:
    script = "raise ValueError(7)"

    done = host.shell(f"{host.to_queue} -- {PROGRAMS}/python -c {shlex.quote(script)}")

    record = host.record()
    assert done.returncode == 1
    assert "ValueError: 7" in done.stderr
    assert record["metricStatus"] == "WARNING"
    assert record["summaryData"].startswith("Traceback")
    assert record["detailsData"].endswith("ValueError: 7")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_a_signal_kills_the_plugin_and_publishes_unknown(host: Host, name: str) -> None:
    number = signal.Signals[name]
    process, plugin = start(host, "")

    process.send_signal(number)

    assert process.wait(20) == 128 + number
    assert not Path(f"/proc/{plugin}").exists()
    record = host.record()
    assert record["metricStatus"] == "UNKNOWN"
    assert name in record["summaryData"]


def test_a_signal_that_was_ignored_at_the_start_does_not_stop_the_plugin(host: Host) -> None:
    process, plugin = start(host, "trap '' HUP;")

    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{plugin}").exists()
    assert "SIGTERM" in host.record()["summaryData"]


def start(host: Host, before: str) -> tuple[subprocess.Popen[bytes], int]:
    """A run whose plugin sleeps, and the process id of that plugin."""
    file = host.directory / "plugin"
    script = f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 60"
    command = f"{before} exec {host.to_queue} -- sh -c {shlex.quote(script)}"
    process = subprocess.Popen(
        ["env", "--default-signal", "sh", "-c", command],  # a job in the background ignores some
        cwd=host.directory,
        env=host.environment,
    )
    wait_for(file.exists, 20)
    return process, int(file.read_text())
