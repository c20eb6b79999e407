"""What a door answers 2xx is stored, however many senders there are, and however full a disk is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from tests.support.commands import Workplace
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.door import KEPT, PATH, listening, new_door, servlet_site
from tests.support.consumer.site import eventually
from tests.support.small_disk import small_disk

ONE_SHOTS = 300
DISK, BALLAST_BYTES, ON_THE_DISK = "2m", 1_500_000, 300
"""The disk has room for all messages, but not beside the ballast."""
REFUSALS = 5
AT_ONCE_S = 2.0
"""An answer that does not wait for room on the disk."""


ALL_AT_ONCE = """
import os, sys
from sam_pipeline.publisher import cli
from sam_pipeline.publisher.brokers.rest import door
cli.main(["send", "--dry-run", sys.argv[1]])  # imports the rest
reader, writer = os.pipe()
def one_shot(file):
    os.close(writer)
    os.read(reader, 1)
    os._exit(cli.main(["send", "--no-spool", "--timeout", "60", file]))
for file in sys.argv[1:]:
    if not os.fork():
        one_shot(file)
os.close(writer)
sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in sys.argv[1:]))
"""
"""A process of `sam-publish` for each file, which all begin to send when the last one has started.

To start as many interpreters would take longer, and their senders would come one after the other.
"""


def test_three_hundred_publishers_at_once_are_all_stored_once(
    tmp_path: Path, postgres_url: str
) -> None:
    door = new_door()
    site = site_of(tmp_path, [door.listen_url], Subscription("/topic/door"), database=postgres_url)
    place = Workplace(tmp_path / "publisher", door.url, "").write_configuration()
    messages = numbered("shot", range(ONE_SHOTS))
    files = [place.write(f"{number}.txt", m.body.decode()) for number, m in enumerate(messages)]

    with listening(site, door) as daemon:
        published = subprocess.run(
            [sys.executable, "-c", ALL_AT_ONCE, *map(str, files)],
            cwd=place.directory,
            env=place.clean_environment(),
            stdout=subprocess.DEVNULL,
        )
        rows = row_keys(site)
        stopped = daemon.stop()

    assert published.returncode == 0
    consumed([key_of(message.body) for message in messages], rows)
    assert (stopped.code, stopped.messages) == (0, ONE_SHOTS), "no publisher had to repeat"


def test_a_full_disk_behind_a_door_is_answered_at_once_and_loses_nothing(tmp_path: Path) -> None:
    door = new_door()
    servlet = servlet_site(tmp_path / "servlet", door)
    messages = numbered("disk", range(ON_THE_DISK))
    waiting = deque(messages)
    refused_after_s = []
    with small_disk(tmp_path / "disk", f"size={DISK}") as disk:
        spool = f"spool://{disk / 'spool'}"
        (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
        with listening(servlet, door, "--to", spool) as daemon, door.client() as client:

            def post_next() -> bool:
                """Whether the next message was kept; otherwise it remains the next one."""
                began = time.monotonic()
                names = {"Sam_Message_Id": waiting[0].message_id}
                answer = client.post(f"{PATH}/metricOutput", waiting[0].body, **names)
                if answer.status == KEPT:
                    waiting.popleft()
                    return True
                assert answer.status == 503 and "retry-after" in answer.headers, answer
                refused_after_s.append(time.monotonic() - began)
                return False

            while post_next():
                pass
            kept_on_the_full_disk = len(messages) - len(waiting)
            assert not any(post_next() for _ in range(REFUSALS))
            (disk / "ballast").unlink()
            eventually(post_next)
            while waiting:
                eventually(post_next)
            daemon.stop()
        site = site_of(tmp_path, [spool], Subscription("/topic/door"))
        drained = site.drain()
        rows = row_keys(site)

    assert 0 < kept_on_the_full_disk < len(messages)
    assert max(refused_after_s) < AT_ONCE_S
    assert drained.code == 0, drained.log
    consumed([key_of(message.body) for message in messages], rows)
