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
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.commands import PROGRAMS
from tests.support.waiting import eventually

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

    def start(self, command: str, before: str = "") -> subprocess.Popen[bytes]:
        """The command in the background, where none of the signals is ignored but those before."""
        return subprocess.Popen(
            ["env", "--default-signal", "sh", "-c", f"{before} exec {command}"],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.DEVNULL,
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_output_and_exit_code_are_passed_on_and_the_result_is_published(host: Host) -> None:
    script = "echo \"$0 | x=1\"; printf 'more caf\\351\\n'; yes | head -c 2000000; exit 2"

    alone = host.shell(f"sh -c {shlex.quote(script)} --broken")
    done = host.shell(f"{host.to_queue} -- sh -c {shlex.quote(script)} --broken", LOGNAME="nagios")

    assert (done.returncode, done.stdout) == (2, alone.stdout)
    assert "not UTF-8" in done.stderr and "more than" in done.stderr
    record = host.record()
    assert record["metricName"] == "org.nagios.sh"
    assert record["serviceFlavour"] == "Host"
    assert (record["metricStatus"], record["summaryData"]) == ("CRITICAL", "--broken")
    assert record["performanceData"] == "x=1"
    [name] = host.queue.names()
    headers = host.queue.read(name).headers
    assert (headers[PROGRAM], headers[USER]) == (f"sam-publish/{VERSION} run", "nagios")


def test_a_plugin_reads_the_standard_input_of_run(host: Host) -> None:
    done = host.shell(f"printf '\\0\\377 no text\\n' | {host.to_queue} -- cat")

    assert (done.returncode, done.stdout) == (0, "\0\xff no text\n")
    assert host.record()["summaryData"] == "\ufffd\ufffd no text"


@pytest.mark.parametrize(
    ("prepare", "options"),
    [
        ("echo '[publisher' > sam.toml", ""),
        ("", "--host 'not a host'"),
        ("", "--no-spool"),
        ("mkdir state; touch state/spool", "--publish-failure unknown"),
        ("echo 'import os; os.uname = None' > sitecustomize.py", ""),
    ],
)
def test_a_failure_of_ours_keeps_the_plugins_code(host: Host, prepare: str, options: str) -> None:
    done = host.shell(f"{prepare}\n{RUN} {options} {CRITICAL}", PYTHONPATH=str(host.directory))

    code = 3 if "unknown" in options else 2
    assert (done.returncode, done.stdout) == (code, "broken\n"), done.stderr
    [line] = [line for line in done.stderr.splitlines() if LOST in line]
    assert not line.endswith(LOST)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        *(
            f"RUN -- sh -c 'echo broken; echo bad >&2; exit 2' {redirection}"
            for redirection in (">&-", ">/dev/full", "2>/dev/full", ">&- 2>&-")
        ),
        f"mkdir gone; cd gone; rmdir ../gone; RUN {CRITICAL}",
    ],
)
def test_a_closed_or_full_output_or_no_directory_loses_nothing(host: Host, line: str) -> None:
    done = host.shell(line.replace("RUN", host.to_queue))

    assert done.returncode == 2, done.stderr
    assert "bug" not in done.stderr
    assert LOST not in done.stderr
    record = host.record()
    assert (record["metricStatus"], record["summaryData"]) == ("CRITICAL", "broken")


@pytest.mark.parametrize(
    ("before", "names"),
    [
        *(("", [name]) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")),
        ("trap '' HUP;", ["SIGHUP", "SIGTERM"]),  # ignored at the start, as after nohup
    ],
)
def test_a_signal_kills_it_and_publishes_unknown(host: Host, before: str, names: list[str]) -> None:
    file = host.directory / "plugin"
    script = f"echo $$ > {file}.new; mv {file}.new {file}; exec sleep 60"
    process = host.start(f"{host.to_queue} -- sh -c {shlex.quote(script)}", before)
    eventually(file.exists)

    for name in names:
        process.send_signal(signal.Signals[name])

    assert process.wait(30) == 128 + signal.Signals[names[-1]]
    assert not Path(f"/proc/{file.read_text().strip()}").exists()
    record = host.record()
    assert record["metricStatus"] == "UNKNOWN"
    assert names[-1] in record["summaryData"]


def test_terminating_run_while_it_publishes_spools_the_result(host: Host) -> None:
    with FakeBroker(mute=True) as broker:
        options = f"--broker {broker.url} --timeout 1"
        process = host.start(f"{RUN} {options} -- sh -c 'echo fine; exit 1'")
        eventually(lambda: broker.connections > 0)

        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 1
    assert DirectoryQueue(host.directory / "state" / "spool").count() == 1
