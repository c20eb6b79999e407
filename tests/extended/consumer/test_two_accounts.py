"""Spools of two accounts: shared by a group, or one that the other cannot read; their senders."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sam_pipeline.schema.identity.identity import uid_identity
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.integration.consumer.core import test_forged_identities as forged
from tests.integration.consumer.core.test_forged_identities import Entrance, Outcome, outcome_of
from tests.services import PRIVILEGED, missing
from tests.services.broker import OTHER_USER, USER
from tests.support.accounts import Account, account, open_directory
from tests.support.commands import RESULT
from tests.support.reports.stored import query

GROUP, PROBES, SERVICE = 40010, 40001, 40002
BAD_DATA, UNAVAILABLE, NO_PERMISSION, CONFIG = 65, 69, 77, 78


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

    def configure(self, settings: str = "") -> None:
        """The consumer of the spool, and an empty database."""
        config = self.service.home / "sam.toml"
        config.write_text(
            f'[database]\nurl = "{self.database}"\n[consumer]\nname = "site-a"\n{settings}\n'
            f'brokers = ["spool://{self.spool}"]\n'
        )
        config.chmod(0o644)
        self.service.succeed("sam-db", "upgrade")


@pytest.fixture
def host() -> Iterator[Host]:
    with open_directory() as directory:
        probes = account(PROBES, directory, GROUP)
        yield Host(directory, probes, account(SERVICE, directory, GROUP, umask="027"))


def share(host: Host) -> None:
    """What the documentation says: the spool and its quarantine belong to the group."""
    host.make("in", "in.bad", owner=0, group=GROUP, mode=0o2770)


def test_probes_and_service_of_a_group_share_a_spool_whatever_their_umask(host: Host) -> None:
    share(host)
    host.configure()

    host.probes.succeed(*RESULT, "--broker", host.shared_url)
    (element,) = host.spool.glob("*/*")
    modes = [
        (path.stat().st_gid, stat.S_IMODE(path.stat().st_mode))
        for path in (element.parent, element)
    ]
    damaged = element.with_name("6a000000000000")
    damaged.write_text("{")
    os.chown(damaged, PROBES, GROUP)
    damaged.chmod(0o660)
    drained = host.service.run("sam-consume", "run", "--drain")

    assert modes == [(GROUP, 0o2770), (GROUP, 0o640)]
    assert drained.code == BAD_DATA, str(drained)  # one was damaged
    [row] = query(host.database, "SELECT count(*) AS n FROM metricOutput")
    assert (row["n"], DirectoryQueue(host.spool).count()) == (1, 0)
    aside = host.probes.succeed(
        "sam-publish", "spool", "list", "--json", SAM_PUBLISHER_SPOOL=str(host.spool)
    )
    assert [row["set_aside"] for row in aside.json] == [True]


def test_nobody_else_of_the_group_can_change_what_an_account_says(host: Host) -> None:
    share(host)
    host.configure(settings='policy_file = "publishers.toml"')
    rule = f'mode = "observe"\n[[publisher]]\nname = "a"\nis = ["uid:{PROBES}"]\nclasses = ["*"]\n'
    policy = host.service.home / "publishers.toml"
    policy.write_text(rule)
    policy.chmod(0o644)
    for _ in range(2):
        host.probes.succeed(*RESULT, "--broker", host.shared_url)
    mine, loose = (path for path in host.spool.glob("*/*") if path.is_file())
    loose.chmod(0o660)  # as other writers make it

    denied, changed = (
        host.service.run("sh", "-c", f"cat {element} {element} | head -c 99 >> {element}")
        for element in (mine, loose)
    )
    loose.write_bytes(mine.read_bytes().replace(b"metricName: ", b"metricName: changed"))
    checked = host.service.run("sam-consume", "check")
    host.service.succeed("sam-consume", "run", "--drain")

    assert (denied.code == 0, changed.code) == (False, 0)
    assert "1 element could be changed by other accounts" in checked.err
    rows = query(host.database, "SELECT publisher FROM metricOutput ORDER BY 1")
    assert [row["publisher"] for row in rows] == ["anonymous", f"uid:{PROBES}"]


@pytest.mark.parametrize(
    ("relays", "identity"),
    [("", f"uid:{PROBES}"), (f'trusted_relays = ["{PROBES}"]', "token:nagios1")],
)
def test_another_account_is_a_relay_only_if_it_is_configured(
    host: Host, relays: str, identity: str
) -> None:
    share(host)
    host.make("out", owner=0, group=GROUP, mode=0o2770)
    host.configure(settings=relays)
    host.probes.succeed(*RESULT, "--broker", host.shared_url)
    [element] = (path for path in host.spool.glob("*/*") if path.is_file())
    content = json.loads(element.read_bytes())
    content["header"]["samIdentity"] = "token:nagios1"  # as its owner may write it
    element.write_text(json.dumps(content))
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


UIDS = {USER: 40001, OTHER_USER: 40666}

test_foreign = (
    forged.test_a_result_of_a_foreign_host_is_a_dead_letter_whoever_its_sender_claims_to_be
)
test_signatures = forged.test_a_signed_message_is_from_its_key_and_wrong_signatures_are_dead_letters


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same messages as at the brokers, in files of two accounts."""
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    directory = tmp_path_factory.mktemp("entrance")
    box, queue = DirectoryQueue(directory / "box"), DirectoryQueue(directory / "spool")

    def send(user: str, destination: str, messages: Sequence[Message]) -> None:
        """As `user`; for a moment each element belongs to us, so the consumer may not see it."""
        for message in messages:
            box.add(Message({**message.headers, "destination": destination}, message.body))
        for name in list(box.names()):
            os.chown(box.path / name, UIDS[user], -1)
            (queue.path / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(box.path / name, queue.path / name)

    identities = {user: uid_identity(uid) for user, uid in UIDS.items()}
    database = f"sqlite:///{directory / 'sam.db'}"
    return outcome_of(Entrance(f"spool://{queue.path}", database, identities, send), directory)
