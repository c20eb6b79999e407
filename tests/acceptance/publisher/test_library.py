"""A probe in Python that forgets to close its Publisher, in a process of its own."""

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


def run(directory: Path, script: str, *arguments: str) -> str:
    """What the script wrote to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", START + script, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def spooled(directory: Path) -> list[int | None]:
    """The number of records of each message in the spool."""
    queue = DirectoryQueue(directory / "spool")
    return [queue.read(name).record_count for name in queue.names()]


@pytest.mark.parametrize(
    "end", ["", "del publisher", "sys.exit()", "publisher.itself = publisher; del publisher"]
)
def test_a_publisher_that_is_never_closed_leaves_its_records_in_the_spool_with_a_warning(
    tmp_path: Path, end: str
) -> None:
    said = run(tmp_path, end, "spool")

    assert spooled(tmp_path) == [1]
    assert said.count("\n") == 1
    assert "1 record" in said
    assert "close()" in said


def test_a_publisher_that_is_never_closed_says_that_its_records_are_lost_without_a_spool(
    tmp_path: Path,
) -> None:
    assert "1 of its 1 records are lost" in run(tmp_path, "")


def test_a_forked_child_leaves_the_records_to_its_parent(tmp_path: Path) -> None:
    fork = """
if os.fork() == 0:
    try:
        publisher.add(RECORD)
    except RuntimeError:
        sys.exit(0)
os.wait()
publisher.add(RECORD)
"""

    run(tmp_path, fork, "spool")

    assert spooled(tmp_path) == [2]
