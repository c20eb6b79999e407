"""The library in processes of its own: a Publisher that is never closed, forked children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue

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
def test_what_was_never_published_is_spooled_at_exit(
    tmp_path: Path, end: str, records: int
) -> None:
    (warning,) = python(tmp_path, START + end, "spool").stderr.splitlines()

    queue = DirectoryQueue(tmp_path / "spool")
    assert [queue.read(name).record_count for name in queue.names()] == [records]
    assert f"{records} record" in warning and "close()" in warning


def test_a_publisher_that_is_never_closed_loses_records_without_a_spool(tmp_path: Path) -> None:
    assert "1 of its 1 records are lost" in python(tmp_path, START).stderr


def test_every_exported_name_exists_and_importing_loads_no_slow_module(tmp_path: Path) -> None:
    slow = {"dataclasses", "http.client", "logging", "socket", "ssl", "subprocess", "tempfile"}
    script = (
        "import sys; from sam_pipeline import publisher;"
        "[getattr(publisher, name) for name in publisher.__all__];"
        f"print(sorted({slow} & set(sys.modules)))"
    )

    assert python(tmp_path, script).stdout == "[]\n"
