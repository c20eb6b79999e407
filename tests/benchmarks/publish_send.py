"""How fast `sam-publish send` publishes, compared with a bare socket client on the same brokers.

    python -m tests.benchmarks.publish_send [--records N] [--rounds R] [--broker NAME]...

Both are processes that send the same records, one per message, persistent and confirmed one by one,
to a private ActiveMQ, Artemis and RabbitMQ, the bare client in the way that is fastest there. They
take turns, so that other load affects both, and the medians are compared. Then the same records are
sent signed, and packed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.records.text import write_wlcg
from tests.benchmarks.common import arguments, check, print_ratio, print_speed, seconds, software
from tests.benchmarks.road import BARE
from tests.services.brokers import BROKERS
from tests.support.builders import metric_result

BARE_BOUND = 0.5
SIGNED_BOUND = 0.6
PACKED_BOUND = 3.0
QUEUE = "/queue/bench"
TIMEOUT_S = 300
BARE_WAYS = {"activemq": "t100", "artemis": "1000", "rabbitmq": "1000"}
SAM_PUBLISH = Path(sys.executable).with_name("sam-publish")

Seconds = tuple[float, float]
"""Of the whole process, and of only the publishing."""


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, brokers=BROKERS, records=10_000, rounds=5)
    with TemporaryDirectory() as directory:
        file, key = Path(directory, "records"), Path(directory, "bench.pem")
        hosts = (f"ce{number:05}.example.org" for number in range(args.records))
        file.write_text("".join(write_wlcg(metric_result(hostName=host)) for host in hosts))
        make_key(key)
        good = [compare(name, file, key, args.records, args.rounds) for name in args.broker]
    return 0 if all(good) else 1


def compare(name: str, file: Path, key: Path, records: int, rounds: int) -> bool:
    runs: dict[str, list[Seconds]] = {"bare": [], "single": [], "signed": [], "packed": []}
    with BROKERS[name]() as broker:
        print(software(broker), flush=True)
        for turn in range(rounds + 1):
            for kind, own in runs.items():
                if kind == "bare":
                    run = bare(broker, file, BARE_WAYS[name])
                else:
                    run = sam_publish(broker, file, kind, key)
                if turn:  # the first one warms the broker up
                    own.append(run)
            empty(broker, records * 5)
    wall_s = {kind: [wall for wall, _ in own] for kind, own in runs.items()}
    inside_s = {kind: [inside for _, inside in own] for kind, own in runs.items()}
    for kind in runs:
        print_speed(
            f"{kind}, records/s as a process", [took_s / records for took_s in wall_s[kind]]
        )
    good = [
        print_ratio(f"{own} / {base}, {title}", measure[base], measure[own], bound)
        for base, own, title, measure, bound in (
            ("bare", "single", "processes", wall_s, BARE_BOUND),
            ("single", "signed", "processes", wall_s, SIGNED_BOUND),
            ("single", "signed", "publishing", inside_s, SIGNED_BOUND),
            ("single", "packed", "publishing", inside_s, PACKED_BOUND),
        )
    ]
    return all(good)


def bare(broker: Any, file: Path, way: str) -> Seconds:
    command = [sys.executable, BARE, "publish", str(broker.port), QUEUE, str(file), way]
    wall_s, output = timed(command)
    return wall_s, float(output)


def sam_publish(broker: Any, file: Path, kind: str, key: Path) -> Seconds:
    """Run it once without options, and once with --json for the seconds of the publishing."""
    command = [str(SAM_PUBLISH), "send", "--no-spool", str(file), "--broker", broker.url]
    command += ["--destination", QUEUE, "--timeout", str(TIMEOUT_S)]
    command += [] if kind == "packed" else ["--one-per-message"]
    variables = {"SAM_PUBLISHER_SIGNING_KEY_FILE": str(key)} if kind == "signed" else {}
    wall_s, _ = timed(command, **variables)
    _, output = timed([*command, "--json"], **variables)
    document = json.loads(output)
    check("unavailable, rejected", (document["unavailable"], document["rejected"]), ([], []))
    return wall_s, document["elapsed_s"]


def timed(command: Sequence[str], **variables: str) -> tuple[float, str]:
    with TemporaryDirectory() as home:  # without the configuration and state of other runs
        environment = {"PATH": os.environ["PATH"], "HOME": home, **variables}
        output: list[str] = []

        def work() -> None:
            done = subprocess.run(
                command, env=environment, cwd=home, stdout=subprocess.PIPE, check=True, text=True
            )
            output.append(done.stdout)

        return seconds(work), output[0]


def empty(broker: Any, least: int) -> None:
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
