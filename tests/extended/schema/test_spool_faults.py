"""The spool under faults: kills at each system call, full and failing disks, many processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage, rmtree
from tempfile import mkdtemp

import pytest

from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.spool import bounded
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import ServiceMissing, missing
from tests.services.strace import strace
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message
from tests.support.conservation import conserved, grow_old, leftovers
from tests.support.small_disk import small_disk

SAM_PUBLISH = Path(sys.executable).with_name("sam-publish")
RESULT = ["--metric", "org.example.Ping", "--status", "OK", "--host", "ce01.example.org"]
PUBLISH = [SAM_PUBLISH, "result", *RESULT, "--flavour", "CE", "--json"]
Done = subprocess.CompletedProcess[str]
KILLED = -signal.SIGKILL
CHECK = [SAM_PUBLISH.with_name("check_sam_publisher")]
MAX_CALLS = 60
ROOM_FOR_MANY = 2 * 1024**3
ROOT = Path(__file__).parents[3]


class Site:
    """A worker node with a spool and `sam-publish`."""

    def __init__(self, directory: Path, spool: Path | None = None) -> None:
        self.queue = DirectoryQueue(spool or directory / "spool")
        self.environment = {
            "HOME": str(directory),
            "SAM_CONFIG": "",
            "SAM_PUBLISHER_SPOOL": str(self.queue.path),
            "SAM_PUBLISHER_STATE_DIR": str(directory / "state"),
        }

    def fill(self, count: int) -> list[str]:
        """Spool this many messages; their ids."""
        messages = [metric_message() for _ in range(count)]
        for message in messages:
            self.queue.add(message)
        return [message.message_id for message in messages]

    def publish(self) -> Done:
        environment = {**os.environ, **self.environment}
        return subprocess.run(PUBLISH, env=environment, capture_output=True, text=True, timeout=60)

    def traced(
        self, call: str, fault: str, when: int | str, command: Sequence[str | Path] = PUBLISH
    ) -> Done:
        try:
            return strace(command, call, fault, when, self.environment)
        except ServiceMissing as reason:
            missing(reason.name, reason.how_to_get_it)

    def ids(self) -> set[str]:
        return {self.queue.read(name).message_id for name in self.queue.names()}

    def drain_to(self, broker: FakeBroker) -> None:
        result = drain(PublisherConfig(brokers=(broker.url,), spool=self.queue.path))
        assert result.complete


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def accepted_ids(done: Done) -> list[str]:
    """The ids that the command reported as stored."""
    if not done.stdout:
        return []
    return [message["message_id"] for message in json.loads(done.stdout)["messages"]]


@pytest.mark.parametrize("call", ["fsync", "linkat", "unlinkat", "mkdir", "write"])
def test_a_publisher_killed_at_any_system_call_loses_no_accepted_message(
    site: Site, call: str
) -> None:
    accepted, killed = [], 0

    for when in range(1, MAX_CALLS):
        done = site.traced(call, "signal=SIGKILL", when)
        accepted += accepted_ids(done)
        conserved(accepted, (), site.queue, uncertain=site.ids())
        if done.returncode != KILLED:
            break
        killed += 1

    assert done.returncode == 0
    assert killed > 0
    grow_old(site.queue)
    with FakeBroker() as broker:
        site.drain_to(broker)
    assert set(accepted) <= set(broker.ids)
    assert len(broker.ids) == len(set(broker.ids)) <= len(accepted) + killed
    assert (leftovers(site.queue), site.queue.count()) == ([], 0)


@pytest.mark.parametrize("call", ["sendto", "linkat", "unlinkat", "recvfrom"])
def test_a_drain_killed_at_any_system_call_delivers_every_message_with_its_id(
    tmp_path: Path, call: str
) -> None:
    killed = 0

    for when in range(1, MAX_CALLS):
        site = Site(tmp_path, tmp_path / f"spool-{when}")
        accepted = site.fill(3)
        with FakeBroker() as broker:
            command = [SAM_PUBLISH, "spool", "drain", "--broker", broker.url]
            done = site.traced(call, "signal=SIGKILL", when, command)
            conserved(accepted, broker.ids, site.queue)
            grow_old(site.queue)
            site.drain_to(broker)
        assert set(broker.ids) == set(accepted)
        assert (leftovers(site.queue), site.queue.count()) == ([], 0)
        if done.returncode != KILLED:
            break
        killed += 1

    assert done.returncode == 0
    assert killed > 0


@pytest.mark.parametrize(
    ("options", "stem"),
    [("size=64k", "No space left on device"), ("nr_inodes=12", "no inodes")],
)
def test_a_full_disk_refuses_and_works_again_once_freed(
    tmp_path: Path, options: str, stem: str
) -> None:
    with small_disk(tmp_path / "disk", options) as disk:
        site = Site(tmp_path, disk / "spool")
        accepted = site.fill(2)
        ballast = [*_fill_up(disk)]
        refused = site.publish()
        kept = leftovers(site.queue), site.ids()
        for path in ballast:
            path.unlink()
        later = site.publish()

        assert refused.returncode == 74
        assert "bytes to the spool" in refused.stderr
        assert stem in refused.stderr
        assert kept == ([], set(accepted))
        assert later.returncode == 0
        conserved([*accepted, *accepted_ids(later)], (), site.queue)


def _fill_up(disk: Path) -> Iterator[Path]:
    """New files, until there is no space or no inode left."""
    with suppress(OSError):
        while True:
            path = disk / f"file{len(list(disk.iterdir()))}"
            with open(path, "wb", buffering=0) as file:
                yield path
                file.write(b"\0" * 4096)


A_PUBLISHER = """
import sys
from pathlib import Path
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.publisher.spool.bounded import BoundedSpool
from tests.support.builders import metric_message

config = PublisherConfig(brokers=(sys.argv[2],), spool=Path(sys.argv[1]), state=Path(sys.argv[3]))
room = BoundedSpool(config.spool, config.spool_limits, config.shares_spool)
for _ in range(10):
    message = metric_message()
    print(message.message_id, room.add(message), flush=True)
drain(config)
"""
A_HOLDER = """
import sys, time
from sam_pipeline.schema.spool.queue import DirectoryQueue

queue = DirectoryQueue(sys.argv[1])
print(next(name for name in queue.names() if queue.lock(name)), flush=True)
time.sleep(60)
"""


def script(text: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_twenty_publishers_share_a_spool_with_the_lock_of_a_killed_process(
    site: Site, tmp_path: Path
) -> None:
    accepted, element_names = set(site.fill(1)), []
    target = DirectoryQueue(tmp_path / "target")
    holder = script(A_HOLDER, site.queue.path)
    assert holder.stdout
    held = holder.stdout.readline().strip()
    holder.kill()
    holder.communicate(timeout=30)

    crowd = [
        script(A_PUBLISHER, site.queue.path, f"spool://{target.path}", tmp_path / "state")
        for _ in range(20)
    ]
    for process in crowd:
        out, _ = process.communicate(timeout=120)
        accepted |= {line.split()[0] for line in out.splitlines()}
        element_names += [line.split()[1] for line in out.splitlines()]
    while_locked = list(site.queue.names())
    grow_old(site.queue)
    drain(PublisherConfig(brokers=(f"spool://{target.path}",), spool=site.queue.path))

    delivered = [target.read(name).message_id for name in target.names()]
    assert [process.returncode for process in crowd] == [0] * 20
    assert len(element_names) == len(set(element_names)) == 200
    assert held in while_locked
    assert sorted(delivered) == sorted(accepted)
    assert (leftovers(site.queue), site.queue.count()) == ([], 0)


A_LONG_DRAIN = """
import sys, time
from pathlib import Path
from sam_pipeline.publisher.delivery import drain
from sam_pipeline.publisher.settings import PublisherConfig

class Broker:
    last = count = 0
    def __call__(self, *_):
        return self
    def send(self, messages, deadline):
        for position, message in enumerate(messages):
            assert int(message.body) == self.count, "not oldest first"
            self.count += 1
            yield position
    def close(self):
        pass

broker = Broker()
drain.kind_of = lambda _: broker
config = PublisherConfig(brokers=("stomp://127.0.0.1:1",), spool=Path(sys.argv[1]))
result = drain.drain(config)
# The peak from /proc, because that of wait4 includes the test process before exec.
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(result.sent, broker.count, peak.split()[1])
"""


def test_a_hundred_thousand_elements_are_drained_oldest_first_in_little_memory(
    many: DirectoryQueue,
) -> None:
    process = script(A_LONG_DRAIN, many.path)
    out, _ = process.communicate(timeout=300)

    assert process.returncode == 0
    sent, counted, peak_kb = map(int, out.split())
    assert sent == counted == 100_000
    assert peak_kb < 100 * 1024
    assert not many.has_elements()


@pytest.fixture
def many(tmp_path: Path) -> Iterator[DirectoryQueue]:
    """100 000 elements of five minutes, numbered in their bodies; in /dev/shm if it has space."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and disk_usage(memory).free > ROOM_FOR_MANY
    queue = DirectoryQueue(Path(mkdtemp(dir=memory)) / "many" if roomy else tmp_path / "many")
    start = int(time.time()) // 60 * 60 - 3600
    for minute in range(5):
        directory = queue.path / f"{start + minute * 60:08x}"
        directory.mkdir(parents=True, mode=0o700)
        for number in range(minute * 20_000, (minute + 1) * 20_000):
            name = f"{start + minute * 60:08x}{number:05x}0"
            (directory / name).write_text(f'{{"header": {{}}, "body": "{number}"}}')
    yield queue
    rmtree(queue.path.parent, ignore_errors=True)


@pytest.mark.parametrize("fault", ["size=64k", "nr_inodes=4", "ro"])
def test_a_node_whose_spool_takes_nothing_is_critical_and_its_losses_are_counted(
    tmp_path: Path, fault: str
) -> None:
    with small_disk(tmp_path / "disk", "size=1m" if fault == "ro" else fault) as disk:
        site = Site(disk, disk / "spool")
        site.environment["SAM_PUBLISHER_BROKERS"] = "stomp://127.0.0.1:1"
        site.queue.path.mkdir(0o700)
        if fault == "ro":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        else:
            with suppress(OSError):
                (disk / "ballast").write_bytes(bytes(1_000_000))
        codes = [site.publish().returncode for _ in range(2)]
        environment = {**os.environ, **site.environment}
        checked = subprocess.run(CHECK, env=environment, capture_output=True, text=True)
        found = subprocess.run([SAM_PUBLISH, "check"], env=environment, capture_output=True)
    for directory in bounded.ELSEWHERE:  # or check_sam_publisher is critical for a day
        Path(f"{directory}/sam-publish-losses-{os.geteuid()}").unlink(missing_ok=True)

    assert codes == [74, 74]
    assert checked.returncode == 2
    assert re.search(r"\d+ results? lost", checked.stdout)
    assert "nothing can be written" in checked.stdout
    assert found.returncode == 78
