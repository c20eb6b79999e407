"""How fast `sam-publish send` publishes, compared with a bare socket client on the same brokers.

    python -m tests.benchmarks.publish_send [--records N] [--rounds R] [--broker NAME]...

Both are processes that send the same records, one per message, persistent and confirmed one by one,
to a private ActiveMQ, Artemis and RabbitMQ, the bare client in the way that is fastest there. They
take turns, so that other load affects both, and the medians are compared. Then the same records are
sent signed, and packed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.net.stomp_frame import FrameReader
from sam_pipeline.schema.records.text import write_wlcg
from tests.services import activemq, artemis, rabbitmq
from tests.support.builders import metric_result

BARE_BOUND = 0.5
SIGNED_BOUND = 0.6
PACKED_BOUND = 3.0
QUEUE = "/queue/bench"
TIMEOUT_S = 300
NOTHING: Mapping[str, str] = {}
BARE_CLIENT = Path(__file__).with_name("bare_stomp.py")
SAM_PUBLISH = Path(sys.executable).with_name("sam-publish")


@dataclass(frozen=True)
class Contestant:
    """A broker, and the way in which the bare client sends to it."""

    start: Callable[[], AbstractContextManager[Any]]
    bare_way: str


BROKERS = {
    "activemq": Contestant(activemq.running_activemq, "t100"),
    "artemis": Contestant(artemis.running_artemis, "1000"),
    "rabbitmq": Contestant(rabbitmq.running_rabbitmq, "1000"),
}


@dataclass(frozen=True)
class Run:
    """Seconds of the whole process, and of only the publishing."""

    wall_s: float
    publishing_s: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000, help="of a turn (default: 10000)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: 5)")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="default: all")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as directory:
        file = _records_file(Path(directory), args.records)
        key = Path(directory, "bench.pem")
        make_key(key)
        _print_inputs(file, args.records, args.rounds)
        chosen = args.broker or BROKERS
        good = [_compare(name, file, key, args.records, args.rounds) for name in chosen]
    return 0 if all(good) else 1


def _records_file(directory: Path, count: int) -> Path:
    file = directory / "records"
    texts = (
        write_wlcg(metric_result(hostName=f"ce{number:05}.example.org")) for number in range(count)
    )
    file.write_text("".join(texts))
    return file


def _print_inputs(file: Path, records: int, rounds: int) -> None:
    size = file.stat().st_size / records
    load = os.getloadavg()[0]
    print(f"{records} records of {size:.0f} bytes, persistent, each confirmed; {rounds} rounds")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before")


def _compare(name: str, file: Path, key: Path, records: int, rounds: int) -> bool:
    contestant = BROKERS[name]
    bare, single, signed, packed = [], [], [], []
    with contestant.start() as broker:
        print(f"{_software(broker)} (bare client: {contestant.bare_way})", flush=True)
        for turn in range(rounds + 1):
            runs = (
                _bare(broker, file, contestant.bare_way),
                _sam_publish(broker, file, "--one-per-message"),
                _sam_publish(broker, file, "--one-per-message", key=key),
                _sam_publish(broker, file),
            )
            _empty(broker, records * 5)
            if turn:  # the first one warms the broker up
                for runs_of_kind, run in zip((bare, single, signed, packed), runs, strict=True):
                    runs_of_kind.append(run)
    return _print_ratios(records, bare, single, signed, packed)


def _print_ratios(
    records: int, bare: list[Run], single: list[Run], signed: list[Run], packed: list[Run]
) -> bool:
    """Print rates and ratios; return whether the ratios are within their bounds."""
    kinds = {"bare client": bare, "one per message": single, "signed": signed, "packed": packed}
    for kind, runs in kinds.items():
        wall_s = median(run.wall_s for run in runs)
        publishing_s = median(run.publishing_s for run in runs)
        print(
            f"  {kind:16} {records / wall_s:8.0f} records/s as a process,"
            f" {records / publishing_s:8.0f} while publishing"
        )
    against_bare = _ratio(bare, single, lambda run: run.wall_s)
    publishing = _ratio(bare, single, lambda run: run.publishing_s)
    signing = _ratio(single, signed, lambda run: run.publishing_s)
    signing_wall = _ratio(single, signed, lambda run: run.wall_s)
    packing = _ratio(single, packed, lambda run: run.publishing_s)
    packing_wall = _ratio(single, packed, lambda run: run.wall_s)
    print(f"  {'one per message / bare, processes':40} {against_bare:5.2f}  bound >= {BARE_BOUND}")
    print(f"  {'one per message / bare, publishing':40} {publishing:5.2f}")
    print(f"  {'signed / one per message, publishing':40} {signing:5.2f}  bound >= {SIGNED_BOUND}")
    print(
        f"  {'signed / one per message, processes':40} {signing_wall:5.2f}  bound >= {SIGNED_BOUND}"
    )
    print(f"  {'packed / one per message, publishing':40} {packing:5.2f}  bound >= {PACKED_BOUND}")
    print(f"  {'packed / one per message, processes':40} {packing_wall:5.2f}", flush=True)
    good = against_bare >= BARE_BOUND and min(signing, signing_wall) >= SIGNED_BOUND
    return good and packing >= PACKED_BOUND


def _ratio(slow: Sequence[Run], fast: Sequence[Run], seconds: Callable[[Run], float]) -> float:
    """How many times faster the second one is: the median over the pairs of runs."""
    return median(seconds(a) / seconds(b) for a, b in zip(slow, fast, strict=True))


def _bare(broker: Any, file: Path, way: str) -> Run:
    command = [sys.executable, str(BARE_CLIENT), str(broker.port), QUEUE, str(file), way]
    wall_s, output = _timed(command)
    return Run(wall_s, float(output))


def _sam_publish(broker: Any, file: Path, *options: str, key: Path | None = None) -> Run:
    """Run it once without options, and once with --json for the seconds of the publishing."""
    command = [str(SAM_PUBLISH), "send", "--no-spool", *options, str(file)]
    command += ["--broker", broker.url, "--destination", QUEUE, "--timeout", str(TIMEOUT_S)]
    variables = {"SAM_PUBLISHER_SIGNING_KEY_FILE": str(key)} if key else {}
    wall_s, _ = _timed(command, variables)
    _, output = _timed([*command, "--json"], variables)
    document = json.loads(output)
    if document["unavailable"] or document["rejected"]:
        raise SystemExit(f"not everything was published: {document['unavailable']}")
    return Run(wall_s, document["elapsed_s"])


def _timed(command: Sequence[str], variables: Mapping[str, str] = NOTHING) -> tuple[float, str]:
    with TemporaryDirectory() as home:  # without the configuration and state of other runs
        environment = {"PATH": os.environ["PATH"], "HOME": home, **variables}
        started = time.perf_counter()
        completed = subprocess.run(
            command,
            env=environment,
            cwd=home,
            stdout=subprocess.PIPE,
            check=True,
            timeout=TIMEOUT_S,
        )
        return time.perf_counter() - started, completed.stdout.decode()


def _software(broker: Any) -> str:
    """Name and version, from the `server` header of the broker."""
    with socket.create_connection((broker.host, broker.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        (connected,) = FrameReader().feed(connection.recv(65536))
    return connected.headers["server"]


def _empty(broker: Any, least: int) -> None:
    """Read everything in the queue, which proves that at least `least` messages arrived."""
    count = 0
    with socket.create_connection((broker.host, broker.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        connection.recv(65536)
        subscribe = f"SUBSCRIBE\nid:1\ndestination:{QUEUE}\nack:auto\nconsumer-window-size:-1\n\n\0"
        connection.sendall(subscribe.encode())
        while count < least:
            count += connection.recv(1 << 20).count(b"\0")
        connection.settimeout(0.5)
        try:
            while connection.recv(1 << 20):
                pass
        except TimeoutError:
            pass


if __name__ == "__main__":
    sys.exit(main())
