"""Run a monitoring plugin and turn its result into a record.

The plugin's output and exit code are passed on unchanged, so that any scheduler can call this
instead of the plugin; standard input is inherited. Its exit code is the status, whatever its output
looks like. A run without a valid exit code is published as UNKNOWN, with the reason.
"""

from __future__ import annotations

import codecs
import os
import select
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import NamedTuple

from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.records.normalise import STATUSES
from sam_pipeline.schema.records.plugin_output import Output, split_output
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

PassOn = Callable[[bytes], object]


class PluginRun(NamedTuple):
    """`exit_code` is to be passed on; `trouble` says why it is not a status ("" if it is)."""

    started_at: datetime
    exit_code: int
    output: bytes = b""
    errors: bytes = b""
    """What it wrote to standard error."""
    trouble: str = ""


def run_plugin(
    command: Sequence[str],
    timeout_s: float,
    pass_on: PassOn,
    pass_on_errors: PassOn,
    received: Sequence[int] = (),
) -> PluginRun:
    """Run the plugin in its own process group, which is killed after the timeout.

    It is also killed once `received` has an entry: the signals that end this program.
    """
    started_at = datetime.now(timezone.utc)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return PluginRun(started_at, code, trouble=f"cannot be run: {error.strerror or error}")
    output = _PluginPipes(process, pass_on, pass_on_errors)
    try:
        _follow(process, output, Deadline.after(timeout_s), received)
        returncode = process.poll()
    finally:
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            _follow(process, output, Deadline.after(GRACE_S))
            _signal_group(process, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        output.close()
    code, trouble = UNKNOWN if returncode is None else returncode, ""
    if returncode is None and received:
        code = KILLED + received[0]
        trouble = f"was killed: sam-publish received {signal.Signals(received[0]).name}"
    elif returncode is None:
        trouble = f"was killed: it took longer than {timeout_s:g} s"
    elif returncode < 0:
        code, trouble = KILLED - returncode, f"was killed by signal {-returncode}"
    elif returncode > UNKNOWN:
        trouble = TROUBLE.get(code, f"ended with exit code {code}, which is not a status")
    return PluginRun(started_at, code, bytes(output.head), bytes(output.error_head), trouble)


def record_of(run: PluginRun, name: str) -> tuple[Record, list[str]]:
    """The keys of the record that follow from the run, and warnings.

    If the plugin wrote nothing to standard output, its standard error is the text.
    """
    has_output = bool(run.output.strip())
    text, warnings = readable(run.output if has_output else run.errors)
    if has_output:
        output = split_output(text)
    else:
        output = Output(text.strip().partition("\n")[0].strip(), text.strip("\n").rstrip(), "")
    summary, details = output.summary or "no output", output.details
    if run.trouble:
        summary, details = f"{name} {run.trouble}", text.rstrip()
        warnings = [run.trouble, *warnings]
    if len(run.output if has_output else run.errors) > MAX_OUTPUT_BYTES:
        details = f"{details}\n[cut: {name} wrote more than {MAX_OUTPUT_BYTES} bytes]"
    record = {
        "metricStatus": STATUSES[UNKNOWN if run.trouble else run.exit_code],
        "summaryData": summary,
        "performanceData": output.performance_data,
        "detailsData": details,
        "timestamp": format_time(run.started_at),
    }
    return record, warnings


def readable(output: bytes) -> tuple[str, list[str]]:
    """The output as text that a record can hold, and a note of cuts and replacements."""
    changes = []
    is_cut = len(output) > MAX_OUTPUT_BYTES
    if is_cut:
        changes.append(f"wrote more than {MAX_OUTPUT_BYTES} bytes: the rest is not in the record")
        # Not inside a word: half a number of the performance data would be another number.
        output = (output[:MAX_OUTPUT_BYTES].rsplit(maxsplit=1) or [b""])[0]
    try:
        text, _ = codecs.utf_8_decode(output, "strict", not is_cut)
    except UnicodeDecodeError:
        text, _ = codecs.utf_8_decode(output, "replace", not is_cut)
        changes.append("wrote bytes that are not UTF-8: replaced by U+FFFD in the record")
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
        changes.append("wrote NUL bytes: replaced by U+FFFD in the record")
    return text.removeprefix("\ufeff").replace("\r\n", "\n"), changes


class _PluginPipes:
    """Both outputs of a plugin: everything is passed on, and their beginnings stored."""

    def __init__(
        self, process: subprocess.Popen[bytes], pass_on: PassOn, pass_on_errors: PassOn
    ) -> None:
        assert process.stdout and process.stderr, "opened as pipes"
        self.head, self.error_head = bytearray(), bytearray()
        self._pipes = (process.stdout, process.stderr)
        self._open = {
            process.stdout.fileno(): (self.head, pass_on),
            process.stderr.fileno(): (self.error_head, pass_on_errors),
        }
        self._readable = select.poll()
        for descriptor in self._open:
            self._readable.register(descriptor, select.POLLIN)

    @property
    def complete(self) -> bool:
        return not self._open

    def take(self, wait_s: float) -> bool:
        """Pass on the bytes that have arrived; False if none did in time."""
        ready = self._readable.poll(wait_s * 1000) if self._open else []
        for descriptor, _ in ready:
            head, pass_on = self._open[descriptor]
            chunk = os.read(descriptor, CHUNK_BYTES)
            if not chunk:
                self._readable.unregister(descriptor)
                del self._open[descriptor]
                continue
            pass_on(chunk)
            head += chunk[: MAX_OUTPUT_BYTES + 1 - len(head)]
        return bool(ready)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def _follow(
    process: subprocess.Popen[bytes],
    output: _PluginPipes,
    deadline: Deadline,
    received: Sequence[int] = (),
) -> None:
    """Pass on output until the plugin ends, the deadline passes, or we receive a signal."""
    while process.poll() is None and not deadline.expired and not received:
        wait_s = min(POLL_S, deadline.remaining())
        if not output.complete:
            output.take(wait_s)
            continue
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
    # A child process may outlive the plugin, keep a pipe open, or even write forever.
    rest = Deadline.after(POLL_S)
    while not rest.expired and output.take(0):
        pass


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
