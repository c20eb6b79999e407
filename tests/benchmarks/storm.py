"""One-shot publishers: how many sessions a second a broker accepts, and what a spool does instead.

    python -m tests.benchmarks.storm [--broker NAME]... [--quick]

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

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sam_pipeline.publisher.spool.bounded import BoundedSpool
from sam_pipeline.schema.messages.message import DESTINATION
from sam_pipeline.schema.net.broker import SpoolLimits
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.benchmarks.common import arguments, print_load, processor_s, seconds, software
from tests.benchmarks.road import BARE
from tests.services.brokers import BROKERS
from tests.support.builders import metric_message

QUEUE = "/queue/storm"
SAM_PUBLISH = str(Path(sys.executable).with_name("sam-publish"))
COMMANDS_AT_A_TIME = 4


class StormSizes(NamedTuple):
    """Sessions for each number at a time, processes, and messages that one drain sends."""

    sessions: int
    at_a_time: Sequence[int]
    commands: int
    spooled: int


FULL = StormSizes(4000, (1, 8, 64, 256), 200, 20_000)
QUICK = StormSizes(1000, (1, 64), 40, 4000)


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, brokers=BROKERS, switches=["quick"])
    for kind in args.broker:
        storm(kind, QUICK if args.quick else FULL)
    print_load()
    return 0


def storm(kind: str, sizes: StormSizes) -> dict[str, Any]:
    """Measure one kind of broker; processor time is in µs for one session or result."""
    with BROKERS[kind]() as broker, TemporaryDirectory() as name:
        print(f"\n{software(broker)}", flush=True)
        sessions(broker, sizes.sessions, 64)  # warms the broker up
        home, spool = Path(name), Path(name, "spool")
        return {
            "sessions": [sessions(broker, sizes.sessions, count) for count in sizes.at_a_time],
            "result": commands(broker, sizes, home, "--broker", broker.url, "--no-spool"),
            "spooling": commands(broker, sizes, home, "--broker", f"spool://{spool}"),
            "drain": drain_loop(broker, sizes.spooled, spool),
        }


def sessions(broker: Any, count: int, at_a_time: int) -> dict[str, Any]:
    command = [sys.executable, BARE, "storm", str(broker.port), QUEUE, str(count), str(at_a_time)]

    def work() -> dict[str, Any]:
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        took_s, median_s, p99_s = map(float, output.split())
        rate = count / took_s
        return {"at_a_time": at_a_time, "rate": rate, "median_s": median_s, "p99_s": p99_s}

    return with_cost(broker, count, "sessions of the bare client", work)


def commands(broker: Any, sizes: StormSizes, home: Path, *options: str) -> dict[str, Any]:
    """Run `sam-publish result`, some at a time, each with a result of its own."""
    command = [SAM_PUBLISH, "-q", "result", "--metric", "org.example.Ping", "--status", "OK"]
    command += ["--flavour", "CE", "--summary", "answered in 12 ms", "--destination", QUEUE]
    hosts = [f"ce{number:05}.example.org" for number in range(sizes.commands)]

    def one(host: str) -> float:
        own = [*command, *options, "--host", host]
        return seconds(lambda: subprocess.run(own, check=True, env=environment(home)))

    def work() -> dict[str, Any]:
        began = time.perf_counter()
        with ThreadPoolExecutor(COMMANDS_AT_A_TIME) as pool:
            took = list(pool.map(one, hosts))
        return {"rate": len(hosts) / (time.perf_counter() - began), "median_s": median(took)}

    return with_cost(broker, len(hosts), f"sam-publish result {options[1]}", work)


def drain_loop(broker: Any, count: int, spool: Path) -> dict[str, Any]:
    """Fill the spool, and let `spool drain --loop` empty it.

    The rate is that between the first and the last message that left the spool.
    """
    room = BoundedSpool(spool, SpoolLimits(state=spool.parent / "state"), False)
    queue = DirectoryQueue(spool)
    messages = (metric_message(**{DESTINATION: QUEUE}) for _ in range(count))
    while part := list(islice(messages, 1000)):
        list(room.add_all(part))
    present = sum(1 for _ in queue.names())  # with those of the commands before
    times: list[tuple[float, int]] = []

    def work() -> dict[str, Any]:
        process = subprocess.Popen(
            [SAM_PUBLISH, "-q", "spool", "drain", "--loop", "--broker", broker.url],
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
        began, before = next(pair for pair in times if pair[1] < present)
        if not before:
            raise SystemExit("the drain was too fast to be measured: more messages are needed")
        rate = before / (times[-1][0] - began)
        return {"rate": rate, "median_s": 1 / rate}

    return with_cost(broker, present, "spool drain --loop", work)


def with_cost(
    broker: Any, count: int, title: str, work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The figures of the work, with the processor µs of the broker and of all clients."""
    broker_before, client_before = processor_s(broker.process.pid), children_s()
    figures = work()
    figures["broker_us"] = 1e6 * (processor_s(broker.process.pid) - broker_before) / count
    figures["client_us"] = 1e6 * (children_s() - client_before) / count
    print(f"  {title}:", ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return figures


def children_s() -> float:
    """The processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def environment(home: Path) -> dict[str, str]:
    """Without the configuration and state of other runs."""
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


if __name__ == "__main__":
    sys.exit(main())
