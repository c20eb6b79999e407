"""`sam-publish run` with real monitoring plugins: same output, same exit code, matching record."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.decode import decode
from sam_pipeline.schema.records.classes import METRIC_OUTPUT
from sam_pipeline.schema.records.normalise import STATUSES
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.demo.files import HOW_TO_GET_PLUGINS, PLUGIN_DIRECTORIES
from tests.services import missing
from tests.support.brokers.fake_broker import closed_port
from tests.support.commands import PROGRAMS

# {closed} refuses connections, {fresh} is a new directory.
PLUGINS = [
    ("check_load", "-w 300,250,200 -c 900,800,700", 0),
    ("check_load", "--no-such-option", 3),
    ("check_disk", "-w 1% -c 0% -p /", 0),
    ("check_users", "-w 5000 -c 10000", 0),
    ("check_procs", "-w 0 -c 0", 2),
    ("check_dummy", "1 wärnung", 1),
    ("check_dummy", "2 'of|course'=1", 2),
    ("check_file_age", "-w 9999999999 -c 9999999999 -f /etc/passwd", 0),
    ("check_cluster", "-s -l demo -d 0,0,2 -w 0 -c 2", 1),
    ("check_log", "-F /etc/passwd -O {fresh}/log -q no-such-line", 0),
    ("check_ping", "-H 127.0.0.1 -w 5000,90% -c 5000,95% -p 1", 0),
    ("check_tcp", "-H 127.0.0.1 -p {closed}", 2),
    ("negate", "{plugins}/check_dummy 0 fine", 2),
]


@pytest.mark.parametrize(
    ("name", "arguments", "code"), [pytest.param(*case, id=" ".join(case[:2])) for case in PLUGINS]
)
def test_run_changes_nothing(name: str, arguments: str, code: int, tmp_path: Path) -> None:
    directories = [directory for directory in PLUGIN_DIRECTORIES if (directory / name).exists()]
    plugin = (directories[0] if directories else missing(name, HOW_TO_GET_PLUGINS)) / name
    queue = DirectoryQueue(tmp_path / "queue")
    values = {"closed": closed_port(), "plugins": plugin.parent}

    def command(fresh: Path) -> list[str | Path]:
        fresh.mkdir()
        return [plugin, *(word.format(fresh=fresh, **values) for word in arguments.split())]

    alone = run(command(tmp_path / "alone"), tmp_path)
    publish = [PROGRAMS / "sam-publish", "run", "--broker", f"spool://{queue.path}", "--"]
    wrapped = run([*publish, *command(tmp_path / "wrapped")], tmp_path)

    assert alone.returncode == wrapped.returncode == code
    assert without_numbers(wrapped.stdout) == without_numbers(alone.stdout)
    assert without_numbers(alone.stderr) in without_numbers(wrapped.stderr)
    [element] = queue.names()
    [row] = decode(queue.read(element), METRIC_OUTPUT.keys, datetime.now(UTC)).rows
    first, _, more = wrapped.stdout.decode().strip().partition("\n")
    summary, _, items = first.partition("|")
    details, _, more_items = more.partition("|")
    assert row.values["metricName"] == f"org.nagios.{name}"
    assert row.values["metricStatus"] == STATUSES[code]
    assert row.values["summaryData"] == summary.strip()
    assert row.values.get("performanceData", "") == " ".join(f"{items} {more_items}".split())
    assert row.values.get("detailsData", "") == details.strip()


def run(command: Sequence[str | Path], home: Path) -> subprocess.CompletedProcess[bytes]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SAM_", "XDG_"))}
    environment = {**kept, "HOME": str(home), "STATE_DIRECTORY": str(home / "state")}
    return subprocess.run(command, capture_output=True, env=environment, cwd=home, timeout=60)


def without_numbers(output: bytes) -> bytes:
    """The output without numbers, which may differ a moment later."""
    return re.sub(rb"[\d.]+", b"#", output)
