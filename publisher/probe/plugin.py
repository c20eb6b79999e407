"""Run a monitoring plugin and turn its result into a record.

The plugin's output and exit code are passed on unchanged, so that any scheduler can call this
instead of the plugin; standard input and standard error are inherited. A run without a valid result
is published as UNKNOWN, with the reason.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import NamedTuple

from sam_pipeline.publisher.probe.plugin_output import split_output
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.records.normalise import STATUSES
from sam_pipeline.schema.records.text import Record
from sam_pipeline.schema.times import format_time

MAX_OUTPUT_BYTES = 1024 * 1024
"""The limit on output in a record; all output is passed on."""

UNKNOWN = STATUSES.index("UNKNOWN")
NOT_EXECUTABLE = 126
NOT_FOUND = 127
KILLED = 128
"""Shells add this to the number of the signal that killed a process."""

GRACE_S = 1.0
"""The time from SIGTERM to SIGKILL, and from there until a process that does not end is ignored."""

TROUBLE = {
    NOT_FOUND: "was not found, or something it needs was not (exit code 127)",
    NOT_EXECUTABLE: "can't be executed (exit code 126)",
}

POLL_S = 0.1
CHUNK_BYTES = 65536


class PluginRun(NamedTuple):
    """`exit_code` is to be passed on; `trouble` says why the result is not valid ("" if it is)."""

    started_at: datetime
    exit_code: int
    output: bytes = b""
    trouble: str = ""


def run_plugin(
    command: Sequence[str], timeout_s: float, pass_on: Callable[[bytes], None]
) -> PluginRun:
    """Run the plugin in its own process group, which is killed after the timeout, or if we end."""
    started_at = datetime.now(timezone.utc)
    release = defer_signal(signal.SIGTERM)  # until the block that kills the plugin is entered
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        release()
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return PluginRun(started_at, code, trouble=f"cannot be run: {error.strerror or error}")
    output = _Output(process, pass_on)
    try:
        release()
        _follow(process, output, Deadline.after(timeout_s))
        returncode = process.poll()
    finally:
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            _follow(process, output, Deadline.after(GRACE_S))
            _signal_group(process, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        output.pipe.close()
    code, trouble = UNKNOWN if returncode is None else returncode, ""
    if returncode is None:
        trouble = f"was killed: it took longer than {timeout_s:g} s"
    elif returncode < 0:
        code, trouble = KILLED - returncode, f"was killed by signal {-returncode}"
    elif returncode > UNKNOWN:
        trouble = TROUBLE.get(code, f"ended with exit code {code}, which is not a status")
    return PluginRun(started_at, code, bytes(output.head), trouble)


def record_of(run: PluginRun, name: str) -> Record:
    """The keys of the record that the run determines: status, summary, details, time and so on."""
    head, trouble = run.output[:MAX_OUTPUT_BYTES], run.trouble
    if len(run.output) > MAX_OUTPUT_BYTES:
        trouble = trouble or f"wrote more than {MAX_OUTPUT_BYTES} bytes"
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = head.decode("utf-8-sig", "replace")
        trouble = trouble or "wrote output that is not UTF-8"
    text = text.replace("\0", "\ufffd").replace("\r\n", "\n")
    output = split_output(text)
    record = {
        "metricStatus": STATUSES[run.exit_code] if not trouble else STATUSES[UNKNOWN],
        "summaryData": output.summary or "no output",
        "performanceData": output.performance_data,
        "detailsData": output.details,
        "timestamp": format_time(run.started_at),
    }
    if trouble:
        record.update(summaryData=f"{name} {trouble}", detailsData=text.rstrip())
    return record


def defer_signal(number: int) -> Callable[[], None]:
    """Defer a signal until the returned function is called."""
    received: list[int] = []
    handler = signal.signal(number, lambda number, _: received.append(number))

    def release() -> None:
        signal.signal(number, handler)
        if received:
            os.kill(os.getpid(), number)

    return release


class _Output:
    """The output of a plugin: all of it is passed on, and the beginning stored."""

    def __init__(self, process: subprocess.Popen[bytes], pass_on: Callable[[bytes], None]) -> None:
        assert process.stdout is not None, "opened as a pipe"
        self.pipe = process.stdout
        self.head = bytearray()
        self.complete = False
        self._pass_on = pass_on
        self._readable = select.poll()
        self._readable.register(self.pipe, select.POLLIN)

    def take(self, wait_s: float) -> bool:
        """Pass on the next chunk; False if none arrived in time."""
        if self.complete or not self._readable.poll(wait_s * 1000):
            return False
        chunk = os.read(self.pipe.fileno(), CHUNK_BYTES)
        self.complete = not chunk
        self._pass_on(chunk)
        self.head += chunk[: MAX_OUTPUT_BYTES + 1 - len(self.head)]
        return True


def _follow(process: subprocess.Popen[bytes], output: _Output, deadline: Deadline) -> None:
    """Pass on output until the plugin ends, or the deadline passes."""
    while process.poll() is None and not deadline.expired:
        if not output.complete:
            output.take(min(POLL_S, deadline.remaining()))
            continue
        with suppress(subprocess.TimeoutExpired):
            process.wait(deadline.remaining())
    # A child process may outlive the plugin, keep the pipe open, or even write for ever.
    rest = Deadline.after(POLL_S)
    while not rest.expired and output.take(0):
        pass


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
