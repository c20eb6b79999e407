"""One-shot publishers: how many sessions a second a broker accepts, and what a spool does instead.

    python -m tests.benchmarks.publish_storm [--broker NAME]... [--quick]

On a private ActiveMQ, Artemis and RabbitMQ:

    sessions   a bare client that connects, sends a message, waits for its receipt and disconnects;
               with more and more sessions at a time, until the broker has no processor time left
    result     processes of `sam-publish result`, which publish one result each
    spool      processes of `sam-publish result` that only spool, and what one
               `sam-publish spool drain --loop` then sends in a second

All are on this machine, so the rates are those of a broker that shares it with its clients. The
processor time for one result, of broker and client, does not depend on that.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.messages.message import DESTINATION
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.benchmarks.consume_road import software
from tests.benchmarks.consume_watch import processor_s
from tests.benchmarks.load import print_load
from tests.services.brokers import BROKERS
from tests.support.builders import metric_message

QUEUE = "/queue/storm"
BARE_STORM = Path(__file__).with_name("bare_storm.py")
SAM_PUBLISH = Path(sys.executable).with_name("sam-publish")


class StormSizes(NamedTuple):
    sessions: int
    """Of the bare client, for each number of sessions at a time."""
    at_a_time: Sequence[int]
    commands: int
    commands_at_a_time: int
    spooled: int
    """Messages that one drain sends."""


FULL = StormSizes(4000, (1, 8, 64, 256), 200, 4, 20_000)
QUICK = StormSizes(1000, (1, 64), 40, 4, 4000)


class Sessions(NamedTuple):
    """The bare client; times are in s, processor time in µs for one session."""

    at_a_time: int
    rate: float
    median_s: float
    p99_s: float
    broker_us: float
    client_us: float


class Commands(NamedTuple):
    """Processes of `sam-publish`, or the messages of one; processor time in µs for one result."""

    rate: float
    median_s: float
    broker_us: float
    client_us: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--broker", action="append", choices=BROKERS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a quick check")
    args = parser.parse_args(argv)
    sizes = QUICK if args.quick else FULL
    print(f"{sizes.sessions} sessions of the bare client, {sizes.commands} commands,")
    print(f"{sizes.spooled} spooled messages")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print_load()
    for kind in args.broker or BROKERS:
        storm(kind, sizes)
    print_load()
    return 0


def storm(kind: str, sizes: StormSizes) -> Mapping[str, Any]:
    """Measure one kind of broker; the document is that of measured.json."""
    with BROKERS[kind]() as broker, TemporaryDirectory() as name:
        print(f"\n{software(broker)}", flush=True)
        bare_sessions(broker, sizes.sessions, 64)  # warms the broker up
        sessions = [bare_sessions(broker, sizes.sessions, count) for count in sizes.at_a_time]
        for run in sessions:
            print(
                f"  {run.at_a_time:4} sessions at a time {run.rate:8.0f}/s, median"
                f" {run.median_s * 1000:6.1f} ms, p99 {run.p99_s * 1000:6.1f} ms, processor µs:"
                f" broker {run.broker_us:6.0f}, client {run.client_us:5.0f}",
                flush=True,
            )
        spool = Path(name, "spool")
        result = commands(broker, sizes, Path(name), ["--broker", broker.url, "--no-spool"])
        spooling = commands(broker, sizes, Path(name), ["--broker", f"spool://{spool}"])
        drained = drain_loop(broker, sizes.spooled, spool)
    lines = {
        "sam-publish result": result,
        "… that only spools": spooling,
        "spool drain --loop": drained,
    }
    for title, line in lines.items():
        print(
            f"  {title:22} {line.rate:8.0f}/s, median {line.median_s * 1000:6.1f} ms,"
            f" processor µs: broker {line.broker_us:6.0f}, client {line.client_us:7.0f}",
            flush=True,
        )
    return {
        "sessions": [run._asdict() for run in sessions],
        "result": result._asdict(),
        "spooling": spooling._asdict(),
        "drain": drained._asdict(),
    }


def bare_sessions(broker: Any, sessions: int, at_a_time: int) -> Sessions:
    command = [sys.executable, str(BARE_STORM), str(broker.port), QUEUE]
    command += [str(sessions), str(at_a_time)]
    output, broker_us, client_us = cost_of(broker, sessions, lambda: run_all([command], 1))
    seconds, median_s, p99_s = map(float, output[0].split()[:3])
    return Sessions(at_a_time, sessions / seconds, median_s, p99_s, broker_us, client_us)


def commands(broker: Any, sizes: StormSizes, home: Path, options: Sequence[str]) -> Commands:
    """Run `sam-publish result`, some at a time, each with a result of its own."""
    command = [str(SAM_PUBLISH), "-q", "result", "--metric", "org.example.Ping", "--status", "OK"]
    command += ["--flavour", "CE", "--summary", "answered in 12 ms", "--destination", QUEUE]
    hosts = [f"ce{number:05}.example.org" for number in range(sizes.commands)]
    own = [[*command, *options, "--host", host] for host in hosts]
    began = time.perf_counter()
    took, broker_us, client_us = cost_of(
        broker, len(own), lambda: run_all(own, sizes.commands_at_a_time, home)
    )
    rate = len(own) / (time.perf_counter() - began)
    return Commands(rate, median(float(line.split()[-1]) for line in took), broker_us, client_us)


def drain_loop(broker: Any, count: int, spool: Path) -> Commands:
    """Fill the spool, and let `spool drain --loop` empty it; a median of its messages is not known.

    The rate is that between the first and the last message that left the spool.
    """
    room = BoundedSpool(spool, PublisherConfig(state=spool.parent / "state"), False)
    queue = DirectoryQueue(spool)
    messages = (metric_message(**{DESTINATION: QUEUE}) for _ in range(count))
    while part := list(islice(messages, 1000)):
        for _ in room.add_all(part):
            pass
    present = sum(1 for _ in queue.names())  # with those of the commands before
    times: list[tuple[float, int]] = []

    def drain() -> Sequence[str]:
        process = subprocess.Popen(
            [str(SAM_PUBLISH), "-q", "spool", "drain", "--loop", "--broker", broker.url],
            env=environment(spool.parent) | {"SAM_PUBLISHER_SPOOL": str(spool)},
        )
        try:
            while not times or times[-1][1]:
                time.sleep(0.05)
                if process.poll() is not None:
                    raise SystemExit(f"the drain ended with {process.returncode}")
                times.append((time.perf_counter(), sum(1 for _ in queue.names())))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        return ()

    _, broker_us, client_us = cost_of(broker, present, drain)
    first = next(number for number, (_, left) in enumerate(times) if left < present)
    (began, before), (ended, _) = times[first], times[-1]
    if not before:
        raise SystemExit("the drain was too fast to be measured: more messages are needed")
    rate = before / (ended - began)
    return Commands(rate, 1 / rate, broker_us, client_us)


def cost_of(
    broker: Any, count: int, work: Callable[[], Sequence[str]]
) -> tuple[Sequence[str], float, float]:
    """The output of the work, and the processor µs of the broker and of all clients for each."""
    broker_before, client_before = processor_s(broker.process.pid), children_s()
    output = work()
    client_s = children_s() - client_before
    broker_s = processor_s(broker.process.pid) - broker_before
    return output, 1e6 * broker_s / count, 1e6 * client_s / count


def children_s() -> float:
    """The processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_all(
    own: Iterable[Sequence[str]], at_a_time: int, home: Path | None = None
) -> Sequence[str]:
    """Run processes, some at a time; of each its output, and how long it took (s)."""
    waiting = iter(own)
    running: list[tuple[subprocess.Popen[str], float]] = []
    outputs: list[str] = []
    while True:
        for command in islice(waiting, at_a_time - len(running)):
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment(home)
            )
            running.append((process, time.perf_counter()))
        if not running:
            return outputs
        time.sleep(0.001)
        for process, began in [pair for pair in running if pair[0].poll() is not None]:
            running.remove((process, began))
            assert process.stdout is not None
            with process.stdout:
                output = process.stdout.read().strip()
            if process.returncode:
                raise SystemExit(f"{process.args!r} ended with {process.returncode}")
            outputs.append(f"{output} {time.perf_counter() - began}")


def environment(home: Path | None) -> dict[str, str]:
    """Without the configuration and state of other runs."""
    return {"PATH": os.environ["PATH"], "HOME": str(home or "/nonexistent")}


if __name__ == "__main__":
    sys.exit(main())
