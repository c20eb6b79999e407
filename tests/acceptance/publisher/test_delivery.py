"""Processes that publish: quick starts, open pipes, signals, the library, and `run`."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.publisher.delivery.route import FILE, Memory
from sam_pipeline.schema import VERSION
from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.messages.message import PROGRAM, USER
from sam_pipeline.schema.net.broker import Target, parse_broker
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.builders import metric_result
from tests.support.commands import PROGRAMS, RESULT, Workplace
from tests.support.waiting import eventually


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    broker = f"stomp://127.0.0.1:{closed_port()}"
    return Workplace(tmp_path, broker=broker, database="sqlite://").write_configuration()


@contextmanager
def started(place: Workplace, *command: str) -> Iterator[subprocess.Popen[str]]:
    """`sam-publish` with pipes; its outputs are read by `communicate`."""
    process = subprocess.Popen(
        [str(PROGRAMS / "sam-publish"), *command],
        cwd=place.directory,
        env=place.clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=0,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    process.stdin.write(text)
    process.stdin.flush()


def test_spooling_a_result_imports_no_slow_module(place: Workplace) -> None:
    slow = {
        *("stomp", "ssl", "http", "urllib.request", "subprocess", "tempfile", "random", "shutil"),
        *("logging", "dataclasses", "inspect", "threading", "hashlib", "decimal", "tomllib"),
        "sam_pipeline.schema.identity.keys",
    }
    script = (
        "import sys; before = set(sys.modules); from sam_pipeline.publisher.cli import main;"
        f"code = main(sys.argv[1:]); print(sorted({slow} & (set(sys.modules) - before)))"
    )
    (place.directory / "sam.toml").unlink()

    done = subprocess.run(
        [sys.executable, "-c", script, *RESULT[1:], "--gathered-at", "wn1.example.org"],
        env=place.clean_environment(),
        cwd=place.directory,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ["no broker is configured" in line for line in done.stderr.splitlines()] == [True]
    assert done.stdout.startswith("spooled ")
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_open_pipe_is_published_from(place: Workplace) -> None:
    with (
        FakeBroker() as broker,
        started(place, "send", "--broker", broker.url, "--flush-s", "0.1") as process,
    ):
        first, second = map(write_wlcg, (metric_result(), metric_result(hostName="ce02")))
        say(process, first + second[:20])
        eventually(lambda: len(broker.taken) == 1)
        say(process, second[20:])
        eventually(lambda: len(broker.taken) == 2)
        out, err = process.communicate(timeout=60)

        assert broker.connections == 1
    assert (process.returncode, err) == (0, "")
    assert out.count("published") == 2
    assert [b"ce02" in frame.body for frame in broker.taken] == [False, True]


def test_the_first_records_are_confirmed_before_the_last_ones_are_read(place: Workplace) -> None:
    record = write_wlcg(metric_result(summaryData="x" * 200))
    with (
        FakeBroker() as broker,
        started(place, "send", "--broker", broker.url, "--timeout", "60") as process,
    ):
        say(process, record * 40_000)
        eventually(lambda: len(broker.taken) > 50)
        out, _ = process.communicate(record, timeout=60)

    assert process.returncode == 0
    assert "(40001 records)" in out


def test_a_terminated_send_spools_what_it_has_read_and_names_the_rest(place: Workplace) -> None:
    record = write_wlcg(metric_result())
    with started(place, "send", "--flush-s", "60") as process:
        say(process, record + record + record[:-6])
        eventually(lambda: unread_bytes(process) == 0)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)

    assert process.returncode == 143
    assert out.startswith("spooled")
    assert f"<stdin>:{2 * record.count(chr(10)) + 1}: record refused, truncated" in err
    assert "terminated: 0 messages published, 1 spooled" in err
    queue = DirectoryQueue(place.directory / "outbox")
    assert [queue.read(name).record_count for name in queue.names()] == [2]


def unread_bytes(process: subprocess.Popen[str]) -> int:
    """The bytes in the pipe to the process."""
    assert process.stdin
    return int.from_bytes(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("command", [" ".join(RESULT[1:]), "send", "send --raw"])
def test_a_terminated_call_spools_what_is_not_confirmed(place: Workplace, command: str) -> None:
    with (
        FakeBroker(mute=True) as broker,
        started(place, *command.split(), "--broker", broker.url, "--timeout", "60") as process,
    ):
        assert process.stdin and process.stdout and process.stderr
        if command.startswith("send"):
            say(process, write_wlcg(metric_result()))
            process.stdin.close()
        eventually(lambda: broker.connections == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(50) == 143
        out, err = process.stdout.read(), process.stderr.read()

    assert out.startswith("spooled")
    assert "terminated: 0 messages published, 1 spooled" in err
    assert place.spooled("outbox") == 1


START = """
import os, sys, time
from pathlib import Path
from sam_pipeline.publisher import Publisher, PublisherConfig, publish_record
RECORD = {
    "metricName": "org.example.Ping",
    "metricStatus": 0,
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "siteName": None,
    "timestamp": time.time(),
}
spool = Path("spool") if len(sys.argv) > 1 else None
publisher = Publisher(PublisherConfig(spool=spool, brokers=("stomp://192.0.2.1",)))
publisher.add(RECORD)
"""
FORK = """
if os.fork() == 0:
    try:
        publisher.{}
    except RuntimeError:
        sys.exit(0)
os.wait()
publisher.add(RECORD)
"""


def python(directory: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize(
    ("end", "records"),
    [
        ("", 1),
        ("del publisher", 1),
        ("sys.exit()", 1),
        ("publisher.itself = publisher; del publisher", 1),
        (FORK.format("add(RECORD)"), 2),  # a child leaves the records to its parent
        (FORK.format("close()"), 2),
    ],
)
def test_what_was_not_published_is_spooled_at_exit(tmp_path: Path, end: str, records: int) -> None:
    (warning,) = python(tmp_path, START + end, "spool").stderr.splitlines()

    queue = DirectoryQueue(tmp_path / "spool")
    assert [queue.read(name).record_count for name in queue.names()] == [records]
    assert f"{records} record" in warning and "close()" in warning


def test_a_publisher_that_is_never_closed_loses_records_without_a_spool(tmp_path: Path) -> None:
    assert "1 of its 1 records are lost" in python(tmp_path, START).stderr


def test_every_exported_name_exists_and_importing_loads_no_slow_module(tmp_path: Path) -> None:
    slow = {
        "argparse",
        "dataclasses",
        "http.client",
        "logging",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
    }
    script = (
        "import sys; from sam_pipeline import publisher;"
        "[getattr(publisher, name) for name in publisher.__all__];"
        f"print(sorted({slow} & set(sys.modules)))"
    )

    assert python(tmp_path, script).stdout == "[]\n"


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


def test_processes_that_write_the_memory_never_leave_a_partial_file(tmp_path: Path) -> None:
    broker, children = parse_broker("stomp://msg.example.org"), set()
    for number in range(4):
        children.add(child := os.fork())
        if child == 0:
            for _ in range(50):
                memory = Memory(tmp_path, [Target(broker)])
                memory.refresh()
                memory.failed(Target(broker, f"192.0.2.{number}"), "refused")
                memory.save()
            os._exit(0)

    while children:
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}
        if (tmp_path / FILE).exists():
            json.loads((tmp_path / FILE).read_text())  # raises if the file is incomplete

    assert [file.name for file in tmp_path.iterdir()] == [FILE]
