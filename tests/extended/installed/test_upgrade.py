"""Upgrade, downgrade, restarts and removal of the packages, while publishers publish.

After each step, every published record is a row or a dead letter, or waits in the spool or at the
broker, and none is stored twice. The tests are one story: each goes on where the one before ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2
import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.extended.installed.installation import packages_or_missing
from tests.services import needed
from tests.services.activemq import ActiveMQServer, running_activemq
from tests.services.debian import booted_debian
from tests.services.machine import Machine
from tests.services.process import HOST
from tests.support.brokers.subscriber import backlog
from tests.support.conservation import Account, account, keys_of
from tests.support.network import own_network
from tests.support.next_packages import REMARK, next_packages
from tests.support.next_packages import VERSION as NEXT
from tests.support.page import Page
from tests.support.waiting import eventually

PAGE = Page("docs/upgrade.md")
INSTALL, UPGRADE = PAGE.texts("sh", "Packages of another release")[0].splitlines()
(DATABASE,) = Page("docs/install.md").texts("sh", "Database")
(DRAIN,) = PAGE.texts("sh", "Remove packages")
NAMES = ("sam-publish", "sam-pipeline")
CONSUMER = "site-a"
TOPIC = "/topic/grid.probe.metricOutput"
NOBODY = f"stomp://{HOST}:9"
"""Nothing listens there: what is published to it remains in the spool."""
WAIT_S = 120
STATE = "/var/lib/sam/kept"
UNITS = "/usr/lib/systemd/system/sam-*.{service,socket,timer}"
JOURNAL = "journalctl -u sam-consume --lines 50"
COMPATIBLE = "compatible (additive)"

# publisher NAME BROKER: publishes one record after the other and writes down which, until
# /run/publishing/NAME is gone. Every third one has a status that makes it a dead letter.
PUBLISHER = r"""#!/bin/bash
number=0
while [ -e /run/publishing/$1 ]; do
    number=$((number + 1)) key=$1-$number status=OK code=0
    [ $((number % 3)) -ne 0 ] || status=FINE
    printf '%s: %s\n' hostName ce01.example.org serviceFlavour CE metricName "org.sam.$1" \
        metricStatus $status timestamp "$(date -u -d "yesterday $number sec" +%FT%TZ)" \
        summaryData "$key-$status" | { cat; echo EOT; } |
        sam-publish -q send --raw --broker "$2" 2>>/var/tmp/ledger/log || code=$?
    echo "$key-$status $code" >>"/var/tmp/ledger/$1"
    sleep 0.1
done
"""
CONFIGURATION = """
[publisher]
spool = "/var/spool/sam"
spool_mode = "2770"

[database]
url = "postgresql:///sam"
"""
FRAGMENT = """
[publisher]
brokers = ["{broker}"]

[consumer]
name = "{consumer}"
brokers = ["{broker}"]

[[consumer.subscription]]
destination = "{topic}"
class = "metricOutput"
"""
TEST_LOGIN = """
su - postgres -c "psql --quiet sam" <<< "CREATE ROLE test LOGIN SUPERUSER PASSWORD 'test'"
"""
ROWS = "SELECT summarydata FROM metricoutput"
DEAD_LETTERS = "SELECT body FROM dead_letter"
LOCK = "LOCK TABLE metric_result"
WAITING = "SELECT pid FROM pg_locks WHERE NOT granted"


@dataclass
class Host:
    """A host with the packages, a database and a consumer; the broker is its neighbour."""

    machine: Machine
    broker: ActiveMQServer
    steps: int = 0

    def install(self, release: str) -> None:
        """As the page says, in the directory with the packages of this release."""
        self.machine.succeed(f"cd /mnt/{release}\n{INSTALL}")

    def select(self, statement: str) -> list[Any]:
        """The first column."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()]

    def connect(self) -> Any:
        return psycopg2.connect(host=HOST, user="test", password="test", dbname="sam")

    def property(self, name: str) -> str:
        return self.machine.succeed(f"systemctl show -P {name} sam-consume").strip()

    def program_versions(self) -> set[str]:
        return {
            self.machine.succeed(f"{program} --version").split()[-1]
            for program in ("sam-publish", "sam-consume", "sam-db")
        }

    def as_owner(self, command: str) -> str:
        return self.machine.succeed(f"runuser -u sam-admin -- {command}")

    def read(self, path: str) -> str:
        return (self.machine.files / path).read_text()

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Three publishers publish from before the block until after it.

        One of them reaches no broker. The others publish what it has spooled; it is the last to
        end, so something remains in the spool.
        """
        self.steps += 1
        urls = (self.broker.url, self.broker.url, NOBODY)
        names = [f"p{self.steps}x{number}" for number in range(len(urls))]
        switches = [self.machine.files / "run/publishing" / name for name in names]
        for switch in switches:
            switch.touch()
        with ThreadPoolExecutor(len(urls)) as beside:
            running = [
                beside.submit(self.machine.succeed, f"runuser -u probe -- publisher {name} {url}")
                for name, url in zip(names, urls, strict=True)
            ]
            try:
                self.wait_for_more(names)
                yield
                self.wait_for_more(names)
                for switch, publisher in zip(switches[:-1], running[:-1], strict=True):
                    switch.unlink()
                    publisher.result(WAIT_S)
                self.wait_for_more(names[-1:])
            finally:
                for switch in switches:
                    switch.unlink(missing_ok=True)
        for publisher in running:
            publisher.result()

    def wait_for_more(self, names: Sequence[str]) -> None:
        """Until each of these publishers has published something."""
        for name in names:
            before = len(self.ledger(name))
            eventually(lambda: len(self.ledger(name)) > before, WAIT_S)  # noqa: B023

    def ledger(self, pattern: str = "p*") -> dict[str, str]:
        """The exit code of `sam-publish` for each key."""
        files = (self.machine.files / "var/tmp/ledger").glob(pattern)
        return dict(line.split() for file in files for line in file.read_text().splitlines())

    def spooled(self) -> list[str]:
        queue = DirectoryQueue(self.machine.files / "var/spool/sam")
        return [key for name in queue.names() for key in keys_of(queue.read(name).body)]

    def stored(self) -> tuple[list[str], list[str]]:
        """The keys of the rows, and of the dead letters."""
        letters = [bytes(body) for body in self.select(DEAD_LETTERS)]
        return self.select(ROWS), [key for body in letters for key in keys_of(body)]

    def check(self) -> None:
        """Wait until everything published is where it should be, and fail if that does not happen.

        The consumer, while it runs, gets all that is not in the spool; otherwise the broker has it.
        """
        ledger = self.ledger()
        assert {key for key, code in ledger.items() if code != "0"} == set(), self.log()
        try:
            eventually(lambda: self.account().is_balanced, WAIT_S)
        except TimeoutError:
            pytest.fail(f"{self.account()}\n{self.machine.succeed(JOURNAL)}")
        rows, letters = self.stored()
        assert {key.rpartition("-")[2] for key in rows} == {"OK"}
        assert {key.rpartition("-")[2] for key in letters} == {"FINE"}

    def account(self) -> Account:
        rows, letters = self.stored()
        waiting = self.spooled()
        if self.property("ActiveState") == "inactive":
            waiting += keys_at(self.broker)
        return account({*self.ledger()}, [], stored=[*rows, *letters], waiting=waiting)

    def log(self) -> str:
        return (self.machine.files / "var/tmp/ledger/log").read_text()

    @contextmanager
    def batch_in_progress(self) -> Iterator[Any]:
        """The consumer waits in the middle of a batch, until the connection is closed."""
        with closing(self.connect()) as connection:
            connection.cursor().execute(LOCK)
            eventually(lambda: bool(self.select(WAITING)), WAIT_S)
            yield connection


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Where the packages of this release are installed, and the consumer runs."""
    shared = {}
    for release, build in (("release", packages_or_missing), ("next", next_packages)):
        shared[release] = tmp_path_factory.mktemp(release)
        packages = build(*NAMES)
        for name in NAMES:
            shutil.copy(packages[name, "deb"], shared[release])
    with ExitStack() as stack:
        stack.enter_context(own_network())
        broker = stack.enter_context(needed(running_activemq()))
        machine = stack.enter_context(needed(booted_debian(shared)))
        host = Host(machine, broker)
        machine.succeed("apt-get install -y --no-install-recommends postgresql")
        host.install("release")
        with (machine.files / "etc/sam/sam.toml").open("a") as configuration:
            configuration.write(CONFIGURATION)
        machine.succeed(DATABASE + TEST_LOGIN)
        fragment = FRAGMENT.format(consumer=CONSUMER, broker=broker.url, topic=TOPIC)
        (machine.files / "etc/sam/conf.d/consumer.toml").write_text(fragment)
        publisher = machine.files / "usr/local/bin/publisher"
        publisher.write_text(PUBLISHER)
        publisher.chmod(0o755)
        machine.succeed(
            f"""
            useradd --system --groups sam probe
            install -d -o probe /var/tmp/ledger /run/publishing
            echo state | install -o sam /dev/stdin {STATE}
            systemctl enable --now sam-consume
            """
        )
        yield host


def test_the_units_need_nothing_that_a_bare_debian_lacks(host: Host) -> None:
    assert host.machine.succeed(f"systemd-analyze verify {UNITS}") == ""
    host.machine.succeed("systemctl reload sam-consume")
    eventually(lambda: host.property("ActiveState") == "active", WAIT_S)


def test_restarts_in_the_middle_of_a_batch_lose_nothing(host: Host) -> None:
    with host.publishing():
        with host.batch_in_progress() as lock:
            host.machine.succeed("systemctl restart --no-block sam-consume")
            eventually(lambda: host.property("ActiveState") == "deactivating", WAIT_S)
            lock.close()
        eventually(lambda: host.property("ActiveState") == "active", WAIT_S)

        with host.batch_in_progress():
            host.machine.succeed("systemctl restart postgresql sam-consume")

        process = host.property("MainPID")
        with host.batch_in_progress():
            host.machine.succeed("systemctl restart postgresql")

        with host.batch_in_progress():
            host.broker.restart()

    host.check()
    assert host.property("MainPID") == process


def test_an_upgrade_under_load_loses_nothing(host: Host) -> None:
    process, configured = host.property("MainPID"), host.read("etc/sam/sam.toml")
    with host.publishing():
        host.install("next")
        assert host.property("MainPID") != process
        assert host.property("ActiveState") == "active"
        assert COMPATIBLE in host.as_owner("sam-db check")
        host.machine.succeed(UPGRADE)

    host.check()
    assert COMPATIBLE not in host.as_owner("sam-db check")
    assert host.program_versions() == {NEXT}
    assert host.read("etc/sam/sam.toml") == configured
    assert REMARK in host.read("etc/sam/sam.toml.dpkg-dist")


def test_a_downgrade_under_load_loses_nothing(host: Host) -> None:
    process, configured = host.property("MainPID"), host.read("etc/sam/sam.toml")
    with host.publishing():
        host.install("release")
        assert host.property("MainPID") != process
        assert host.property("ActiveState") == "active"

    host.check()
    assert COMPATIBLE in host.as_owner("sam-db check")
    assert NEXT not in host.program_versions()
    assert host.read("etc/sam/sam.toml") == configured


def test_a_removal_leaves_the_messages_at_the_broker_and_a_reinstallation_gets_them(
    host: Host,
) -> None:
    with host.publishing():
        host.machine.succeed("apt-get remove -y sam-pipeline")

    host.check()
    assert host.property("ActiveState") == "inactive"
    assert host.machine.shell("command -v sam-consume").returncode != 0

    with host.publishing():
        host.install("release")
        assert host.property("ActiveState") == "inactive"
        host.machine.succeed("systemctl start sam-consume")
    host.check()
    assert host.machine.succeed("systemctl is-enabled sam-consume") == "enabled\n"


def test_configuration_state_and_spool_survive_the_removal_of_all_packages(host: Host) -> None:
    kept = f"find /etc/sam /var/spool/sam {STATE} -ls"
    before, spooled = host.machine.succeed(kept), host.spooled()
    assert spooled

    removed = host.machine.succeed(f"apt-get remove -y {' '.join(NAMES)}")

    assert f"{len(spooled)} unpublished messages" in removed
    host.check()
    assert host.machine.succeed(kept) == before
    assert host.machine.succeed("find /opt/sam /usr/bin/sam-* 2>/dev/null || true") == ""


def test_what_was_spooled_is_published_after_a_reinstallation(host: Host) -> None:
    host.install("release")
    host.machine.succeed("systemctl start sam-consume")

    host.machine.succeed(DRAIN)

    assert host.spooled() == []
    host.check()


def keys_at(broker: ActiveMQServer) -> list[str]:
    return [key for body in backlog(broker, CONSUMER, TOPIC) for key in keys_of(body)]
