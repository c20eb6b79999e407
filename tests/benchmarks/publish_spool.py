"""How fast the spool is, compared with a bare loop that writes the same files.

    python -m tests.benchmarks.publish_spool [--messages N] [--drain N] [--directory D]

Writing: both write the same bytes to the same disk, in turns, so that other load affects both. The
bare loop creates, writes, fsyncs and renames; for single messages it fsyncs the directory, too. Use
a directory on a disk: in memory an fsync costs nothing.
Draining: everything but the broker, in a process of its own, whose peak memory is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message

WRITING_BOUND = 0.8
MEMORY_BOUND_MB = 100

DRAIN = """
import json, os, sys, time
from pathlib import Path
from sam_pipeline.publisher.delivery import drain
from sam_pipeline.publisher.settings.config import PublisherConfig

class Broker:
    def connect(self, *_):
        return self
    def send(self, messages, deadline):
        yield from range(len(messages))
    def close(self):
        pass

drain.kind_of = lambda _: Broker()
config = PublisherConfig(brokers=("stomp://127.0.0.1:1",), spool=Path(sys.argv[1]))
started = time.perf_counter()
sent = drain.drain(config).sent
print(json.dumps({"sent": sent, "seconds": time.perf_counter() - started}))
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2000, help="to write (default: 2000)")
    parser.add_argument("--drain", type=int, default=100_000, help="elements (default: 100000)")
    parser.add_argument("--directory", default=".", help="on the disk to measure")
    args = parser.parse_args(argv)
    with TemporaryDirectory(dir=args.directory) as directory:
        good = [
            _writing(Path(directory), args.messages, at_once=100),
            _writing(Path(directory), args.messages, at_once=1),
            _draining(Path(directory), args.drain),
        ]
    return 0 if all(good) else 1


def _writing(directory: Path, count: int, at_once: int) -> bool:
    """Compare the spool with the bare loop, which for single messages fsyncs the directory."""
    config = PublisherConfig(state=directory / "state")
    room = BoundedSpool(directory / f"spool{at_once}", config, config.shares_spool)
    bare = directory / f"bare{at_once}"
    bare.mkdir()
    ours_s, bare_s = [], []
    for _ in range(count // at_once):
        messages = [metric_message() for _ in range(at_once)]
        ours_s.append(_seconds(lambda: list(room.add_all(messages))))  # noqa: B023
        contents = [serialise(message) for message in messages]
        bare_s.append(_seconds(lambda: _bare_loop(bare, contents, at_once == 1)))  # noqa: B023
    ratio = median(base / own for own, base in zip(ours_s, bare_s, strict=True))
    print(f"writing: {count} messages of {len(contents[0])} bytes, {at_once} at once")
    print(f"  {'messages a second, bare loop':40} {count / sum(bare_s):7.0f}")
    print(f"  {'messages a second, spool':40} {count / sum(ours_s):7.0f}")
    bound = f"bound >= {WRITING_BOUND}" if at_once > 1 else "reported only: both fsync twice"
    print(f"  {'ratio, median of the turns':40} {ratio:7.2f}  {bound}")
    return at_once == 1 or ratio >= WRITING_BOUND


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _bare_loop(directory: Path, contents: Sequence[bytes], sync_directory: bool) -> None:
    for content in contents:
        path = f"{directory}/{time.time_ns()}"
        file = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(file, content)
        os.fsync(file)
        os.close(file)
        os.rename(f"{path}.tmp", path)
    if sync_directory:
        descriptor = os.open(directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _draining(directory: Path, count: int) -> bool:
    queue = DirectoryQueue(directory / "many")
    for start in range(0, count, 1000):
        share = range(start, min(start + 1000, count))
        for _ in queue.store_all([serialise(metric_message()) for _ in share]):
            pass
    process = subprocess.Popen(
        [sys.executable, "-c", DRAIN, str(queue.path)], stdout=subprocess.PIPE, text=True
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stdout
    result = json.loads(process.stdout.read())
    memory_mb = usage.ru_maxrss / 1024
    print(f"draining: {result['sent']} elements in {result['seconds']:.1f} s, without a broker")
    print(f"  {'elements a second':40} {result['sent'] / result['seconds']:7.0f}")
    print(f"  {'peak memory in MB':40} {memory_mb:7.0f}  bound < {MEMORY_BOUND_MB}")
    return result["sent"] == count and memory_mb < MEMORY_BOUND_MB


if __name__ == "__main__":
    sys.exit(main())
