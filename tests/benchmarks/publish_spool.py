"""How fast the spool is, compared with a bare loop that writes the same files.

    python -m tests.benchmarks.publish_spool [--messages N] [--drain N]

Writing: both write the same bytes to the disk of the working directory, in turns, so that other
load affects both. The bare loop creates, writes, fsyncs and renames; for single messages it fsyncs
the directory, too. Draining: everything but the broker, in a process of its own, whose peak memory
is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.benchmarks.common import (
    arguments,
    check,
    print_figure,
    print_ratio,
    print_speed,
    seconds,
)
from tests.support.builders import metric_message

WRITING_BOUND = 0.8
MEMORY_BOUND_MB = 100

DRAIN = """
import json, sys, time
from pathlib import Path
from sam_pipeline.publisher.delivery import drain
from sam_pipeline.publisher.settings import PublisherConfig

class Broker:
    def __call__(self, *_):
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
    args = arguments(__doc__, argv, messages=2000, drain=100_000)
    with TemporaryDirectory(dir=".") as directory:
        good = [
            writing(Path(directory), args.messages, at_once=100),
            writing(Path(directory), args.messages, at_once=1),
            draining(Path(directory), args.drain),
        ]
    return 0 if all(good) else 1


def writing(directory: Path, count: int, at_once: int) -> bool:
    """Compare the spool with the bare loop; there is no bound where both fsync twice a message."""
    config = PublisherConfig(state=directory / "state")
    room = BoundedSpool(directory / f"spool{at_once}", config.spool_limits, config.shares_spool)
    bare = directory / f"bare{at_once}"
    bare.mkdir()
    ours_s, bare_s = [], []
    for _ in range(count // at_once):
        messages = [metric_message() for _ in range(at_once)]
        ours_s.append(seconds(lambda: list(room.add_all(messages))) / at_once)  # noqa: B023
        contents = [serialise(message) for message in messages]
        bare_s.append(seconds(partial(bare_loop, bare, contents, at_once == 1)) / at_once)
    print(f"writing: {count} messages of {len(contents[0])} bytes, {at_once} at once")
    print_speed("bare loop, messages/s", bare_s)
    bound = WRITING_BOUND if at_once > 1 else None
    return print_ratio("spool / bare loop", bare_s, ours_s, bound)


def bare_loop(directory: Path, contents: Sequence[bytes], sync_directory: bool) -> None:
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


def draining(directory: Path, count: int) -> bool:
    queue = DirectoryQueue(directory / "many")
    for _ in range(0, count, 1000):
        list(queue.store_all([serialise(metric_message()) for _ in range(1000)]))
    process = subprocess.Popen(
        [sys.executable, "-c", DRAIN, str(queue.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    result = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    check("sent", result["sent"], count)
    print_figure("drained without a broker, elements/s", count / result["seconds"], 0)
    return print_figure("peak memory, MB", usage.ru_maxrss / 1024, 0, most=MEMORY_BOUND_MB)


if __name__ == "__main__":
    sys.exit(main())
