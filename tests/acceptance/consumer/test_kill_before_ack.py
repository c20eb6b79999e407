"""Killed between the commit of a batch and its ack: the batch is redelivered without effect."""

from __future__ import annotations

import signal
import subprocess
import uuid
from pathlib import Path

from tests.services.broker import StompServer
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import subscribe

COUNT = 50

KILLED_BEFORE_THE_ACK = """
import os, signal, sys
from sam_pipeline.consumer.sources.stomp import session as stomp_session
encode = stomp_session.encode
def deadly(command, *rest):
    if command == "ACK":
        os.kill(os.getpid(), signal.SIGKILL)
    return encode(command, *rest)
stomp_session.encode = deadly
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""Killed when the ACK frame is encoded, just before it is sent."""


def test_a_batch_committed_but_not_acked_is_redelivered_and_stored_once(
    tmp_path: Path, postgres_url: str, broker: StompServer
) -> None:
    destination = f"/topic/grid.probe.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [broker.url], Subscription(destination), database=postgres_url)
    subscribe(broker, site.name, destination)
    messages = numbered("acked", range(COUNT))
    publish(broker.host, broker.port, destination, messages)
    run = site.command("run")
    module = run.index("-m")
    command = [*run[:module], "-c", KILLED_BEFORE_THE_ACK, *run[module + 2 :]]

    killed = subprocess.run(command, capture_output=True, timeout=60)
    committed = site.rows()
    drained = site.drain()

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert committed > 0
    assert (drained.code, drained.summary["messages"]) == (0, COUNT), "all of them are redelivered"
    consumed([key_of(message.body) for message in messages], row_keys(site))
    duplicates = site.scalar("SELECT sum(messages) FROM loaded_batch") - COUNT
    assert duplicates == committed, "the audit counts the duplicates"
