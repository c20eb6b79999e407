"""A daemon that rereads its configuration while senders post."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import PATH, wlcg
from tests.support.consumer.door import COMMITTED, REPEAT
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.consumer.site import eventually
from tests.support.http_client import NO_ANSWER

RELOADS = 3
PAUSE_S = 0.05
STARTING = "starting with"


def post_until(site: DoorSite, sender: str, done: Sequence[object]) -> int:
    """Post messages one after the other, each until it is stored; returns their number."""
    count = 0
    with site.door.client() as client:
        while not done:
            name = f"{sender}-{count}"
            while True:
                try:
                    answer = client.post(
                        PATH, wlcg(metric_result(metricName=name)), Sam_Message_Id=name
                    )
                except NO_ANSWER:  # the connection was idle when the door closed
                    continue
                if answer.status == COMMITTED:
                    break
                assert answer.status in REPEAT, answer
                time.sleep(PAUSE_S)
            count += 1
    return count


def test_senders_lose_nothing_while_the_configuration_is_read_again(tmp_path: Path) -> None:
    done: list[bool] = []
    with door_site(tmp_path) as site, ThreadPoolExecutor(4) as threads:
        senders = [threads.submit(post_until, site, f"s{number}", done) for number in range(4)]
        try:
            for number in range(1, RELOADS + 1):
                _wait_for_rows(site)
                site.daemon.process.send_signal(signal.SIGHUP)
                site.daemon.wait_for(STARTING, times=1 + number)
            _wait_for_rows(site)
        finally:
            done.append(True)
        stored = sum(sender.result() for sender in senders)

        assert site.rows() == stored > RELOADS
        assert site.letters() == 0
        assert "Traceback" not in site.daemon.log


def _wait_for_rows(site: DoorSite) -> None:
    """Wait until further messages are stored."""
    before = site.rows()
    eventually(lambda: site.rows() > before)
