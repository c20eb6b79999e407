"""The file that remembers brokers, written by several processes at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.delivery.memory import FILE, Memory
from sam_pipeline.schema.net.broker_url import parse_broker

BROKER = parse_broker("stomp://msg.example.org")


def test_concurrent_writers_never_leave_a_partial_file(tmp_path: Path) -> None:
    children = {_writer(tmp_path, BrokerAddress(BROKER, f"192.0.2.{n}")) for n in range(6)}

    reads = 0
    while children:
        children -= {child for child in children if os.waitpid(child, os.WNOHANG)[0]}
        if (tmp_path / FILE).exists():
            json.loads((tmp_path / FILE).read_text())  # raises if the file is incomplete
            reads += 1

    assert reads > 0
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def _writer(state: Path, address: BrokerAddress) -> int:
    child = os.fork()
    if child == 0:
        for _ in range(50):
            memory = Memory(state, [BROKER])
            memory.refresh()
            memory.failed(address, "refused")
            memory.save()
        os._exit(0)
    return child
