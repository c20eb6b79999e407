"""What a door answers 2xx is stored, however many senders there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.commands import Workplace
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import Subscription, row_keys, site_of
from tests.support.consumer.door import listening, new_door

ONE_SHOTS = 100

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


def test_a_hundred_publishers_at_once_are_all_stored_once(
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
