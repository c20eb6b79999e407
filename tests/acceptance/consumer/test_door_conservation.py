"""What a door answers 2xx is stored, however full a disk is."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.door import KEPT, PATH, listening, new_door, servlet_site
from tests.support.consumer.site import eventually
from tests.support.small_disk import small_disk

DISK, BALLAST_BYTES, ON_THE_DISK = "2m", 1_500_000, 300
"""The disk has room for all messages, but not beside the ballast."""
REFUSALS = 5
AT_ONCE_S = 2.0
"""An answer that does not wait for room on the disk."""


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
