"""Spools of two accounts: shared by a group, or one that the other can't read."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.process import free_ports
from tests.support.accounts import Account, account, open_directory
from tests.support.commands import RESULT, Answer
from tests.support.reports.stored import query
from tests.support.waiting import eventually

GROUP, PROBES, SERVICE = 40010, 40001, 40002
SOON_S = 60.0
BAD_DATA, UNAVAILABLE, NO_PERMISSION, CONFIG = 65, 69, 77, 78
WARNING = 1


@dataclass(frozen=True)
class Host:
    """Probes and a service under accounts of their own, and a spool between them."""

    directory: Path
    probes: Account
    service: Account

    @property
    def spool(self) -> Path:
        return self.directory / "in"

    @property
    def shared_url(self) -> str:
        return f"spool://{self.spool}?umask=007"

    @property
    def database(self) -> str:
        return f"sqlite:///{self.service.home}/sam.db"

    def make(self, *names: str, owner: int, group: int, mode: int) -> None:
        for name in names:
            (self.directory / name).mkdir()
            os.chown(self.directory / name, owner, group)
            (self.directory / name).chmod(mode)

    def configure(self, *brokers: str, settings: str = "") -> None:
        """The consumer with these brokers, and an empty database."""
        text = f'[database]\nurl = "{self.database}"\n[consumer]\nname = "site-a"\n{settings}\n'
        text += f"brokers = {json.dumps(brokers or [f'spool://{self.spool}'])}\n"
        (self.service.home / "sam.toml").write_text(text)
        (self.service.home / "sam.toml").chmod(0o644)
        self.service.succeed("sam-db", "upgrade")

    def rows(self) -> int:
        return int(query(self.database, "SELECT count(*) AS n FROM metricOutput")[0]["n"])

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """The consumer's daemon, which must be alive at the end, and ends with 0."""
        process = subprocess.Popen(
            self.service.command("sam-consume", "run"),
            cwd=self.service.home,
            env=self.service.environment,
        )
        try:
            yield process
            assert process.poll() is None, "the daemon ended"
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON_S) == 0
        finally:
            process.kill()
            process.wait()

    def status(self) -> Any:
        return self.service.run("sam-consume", "status", "--json").json

    def has_state(self, state: str) -> bool:
        """Whether the daemon reports this state in its file."""
        file = self.service.home / "consume-site-a.state.json"
        if not file.exists():
            return False
        missing = [
            text for broker in json.loads(file.read_text())["brokers"] for text in broker["missing"]
        ]
        waiting = json.loads(file.read_text())["waiting_since"]
        return state == ("waiting" if waiting else "degraded" if missing else "running")


@pytest.fixture
def host() -> Iterator[Host]:
    with open_directory() as directory:
        probes = account(PROBES, directory, GROUP)
        yield Host(directory, probes, account(SERVICE, directory, GROUP, umask="027"))


def share(host: Host) -> None:
    """What the documentation says: the spool and its quarantine belong to the group."""
    host.make("in", "in.bad", owner=0, group=GROUP, mode=0o2770)


def publish(who: Account, url: str, metric: str = "m") -> Answer:
    return who.succeed(*RESULT, "--metric", metric, "--broker", url)


def test_probes_and_service_of_a_group_share_a_spool_whatever_their_umask(host: Host) -> None:
    share(host)
    host.configure()

    publish(host.probes, host.shared_url)
    (element,) = host.spool.glob("*/*")
    modes = [
        (path.stat().st_gid, stat.S_IMODE(path.stat().st_mode))
        for path in (element.parent, element)
    ]
    damaged = element.with_name("6a000000000000")
    damaged.write_text("{")
    os.chown(damaged, PROBES, GROUP)
    damaged.chmod(0o660)
    left = host.directory / f"in.bad/{damaged.parent.name}.{damaged.name}.reason"
    left.touch()  # of an account that was killed while it set the element aside
    drained = host.service.run("sam-consume", "run", "--drain")

    assert modes == [(GROUP, 0o2770), (GROUP, 0o660)]
    assert (drained.code, host.rows()) == (BAD_DATA, 1), str(drained)  # one was damaged
    assert DirectoryQueue(host.spool).count() == 0
    aside = host.probes.succeed(
        "sam-publish", "spool", "list", "--json", SAM_PUBLISHER_SPOOL=str(host.spool)
    )
    assert [row["set_aside"] for row in aside.json] == [True]


@pytest.mark.parametrize(
    ("relays", "identity"), [("", f"uid:{PROBES}"), (f'relays = ["{PROBES}"]', "key:nagios1")]
)
def test_another_account_is_a_relay_only_if_it_is_configured(
    host: Host, relays: str, identity: str
) -> None:
    share(host)
    host.make("out", owner=0, group=GROUP, mode=0o2770)
    host.configure(settings=relays)
    claim = ("--header", "samIdentity=key:nagios1")
    host.probes.succeed(*RESULT, *claim, "--broker", host.shared_url)
    out = host.directory / "out"

    relay = ("sam-consume", "run", "--drain", "--to", f"spool://{out}?umask=007")
    host.service.succeed(*relay)  # into the spool of a group

    queue = DirectoryQueue(out)
    assert [queue.read(name).headers["samIdentity"] for name in queue.names()] == [identity]
    shared = {"SAM_PUBLISHER_SPOOL": str(out), "SAM_PUBLISHER_SPOOL_MODE": "2770"}
    drain = ("sam-publish", "spool", "drain", "--broker", f"spool://{host.probes.home}/last")
    assert "drained 1 message" in host.probes.succeed(*drain, **shared).out


def test_two_accounts_share_the_spool_of_their_publishers(host: Host) -> None:
    share(host)
    shared = {"SAM_PUBLISHER_SPOOL": str(host.spool), "SAM_PUBLISHER_SPOOL_MODE": "2770"}

    for who in (host.probes, host.service, host.probes):
        assert who.succeed(*RESULT, **shared).out.startswith("spooled ")
    assert (
        "no problem found" in host.service.succeed("sam-publish", "spool", "verify", **shared).out
    )
    theirs, ours, _ = host.service.succeed("sam-publish", "spool", "list", "--json", **shared).json
    host.service.succeed("sam-publish", "spool", "drop", theirs["element"], **shared)
    host.probes.succeed("sam-publish", "spool", "drop", ours["message_id"], **shared)
    check = ("sam-publish", "check", "--broker")
    checked = host.probes.succeed(*check, host.shared_url, **shared)
    half = host.probes.succeed(*check, f"spool://{host.spool}", **shared)

    assert "no problem found" in checked.out
    assert (" shares it, but " in checked.err, " shares it, but " in half.err) == (False, True)
    assert DirectoryQueue(host.spool).count() == 1


def test_a_spool_of_another_group_or_of_nobody_in_particular_is_refused(host: Host) -> None:
    host.make("in", owner=SERVICE, group=SERVICE, mode=0o2775)
    refused = host.probes.run(
        *RESULT, SAM_PUBLISHER_SPOOL=str(host.spool), SAM_PUBLISHER_SPOOL_MODE="2770"
    )
    assert (refused.code, "not in its group" in refused.err) == (NO_PERMISSION, True), str(refused)

    os.chown(host.spool, SERVICE, GROUP)
    host.spool.chmod(0o2777)
    refused = host.probes.run(*RESULT, "--no-spool", "--broker", host.shared_url)

    assert refused.code == UNAVAILABLE, str(refused)
    assert "is world-writable" in refused.err
    assert list(host.spool.iterdir()) == []
    below = f"spool://{host.service.home}/spool"  # of a directory that one may not enter
    checked = host.probes.run("sam-publish", "check", "--broker", below)
    assert (checked.code, str(host.service.home) in checked.err) == (CONFIG, True), str(checked)


def test_an_element_that_root_has_left_in_a_spool_loses_no_result_of_its_owner(host: Host) -> None:
    host.make("in", owner=PROBES, group=PROBES, mode=0o700)
    spool = {"SAM_PUBLISHER_SPOOL": str(host.spool)}
    root = Account(0, host.probes.home)
    for _ in range(2):
        assert root.succeed(*RESULT, **spool).code == 0
        assert host.probes.succeed(*RESULT, **spool).out.startswith("spooled ")

    drained = host.probes.run(
        "sam-publish", "spool", "drain", "--broker", f"spool://{host.probes.home}/out", **spool
    )

    assert drained.code == NO_PERMISSION, str(drained)
    assert "drained 2 messages" in drained.out
    assert f"1 directory in {host.spool} cannot be used" in drained.err
    checked = host.probes.run("sam-publish", "check", "--broker", "spool:///tmp/x", **spool)
    assert (checked.code, f"1 directory in {host.spool}" in checked.err) == (CONFIG, True)
    assert f"could not be set aside: {host.spool}.bad: no permission" in checked.err
    verified = host.probes.run("sam-publish", "spool", "verify", **spool)
    assert (verified.code, "unreadable: belongs to another" in verified.out) == (BAD_DATA, True)


def test_a_spool_that_cannot_be_used_is_degraded_and_the_others_are_loaded(host: Host) -> None:
    host.make("in", "away", owner=SERVICE, group=SERVICE, mode=0o700)
    away = host.directory / "away"
    (port,) = free_ports(1)
    settings = f'metrics_listen = "127.0.0.1:{port}"'
    host.configure(f"spool://{away}", f"spool://{host.spool}", settings=settings)
    publish(host.service, f"spool://{away}")
    take(away, 0)

    with host.daemon():
        publish(host.service, f"spool://{host.spool}", "other")
        eventually(lambda: host.rows() == 1, SOON_S)  # away at the start
        eventually(lambda: host.has_state("degraded"), SOON_S)
        assert str(away) in host.status()["why"]
        plugin = host.service.run("check_sam_consumer")
        assert (plugin.code, str(away) in plugin.out) == (WARNING, True), str(plugin)
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SOON_S) as metrics:
            assert f'connected{{broker="spool://{away}"}} 0.0' in metrics.read().decode()

        take(away, SERVICE)
        eventually(lambda: host.rows() == 2, SOON_S)
        eventually(lambda: host.has_state("running"), SOON_S)

        take(away, 0)  # while it runs
        publish(Account(0, host.probes.home), f"spool://{away}", "third")
        publish(host.service, f"spool://{host.spool}", "fourth")
        eventually(lambda: host.rows() == 3, SOON_S)
        eventually(lambda: host.has_state("degraded"), SOON_S)
        take(away, SERVICE)
        eventually(lambda: host.rows() == 4, SOON_S)
        eventually(lambda: host.has_state("running"), SOON_S)


def take(directory: Path, uid: int) -> None:
    """`chown -R` to another account."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, uid)
