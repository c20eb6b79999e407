"""docs/farm.md, to the letter: jobs of an account without home and rights, and read-only files."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from deploy.pyz.build import build
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import PRIVILEGED, missing
from tests.support.accounts import open_directory
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.page import Page

PAGE = Page("docs/farm.md")
UID = 40011
NOBODY_LISTENS = "127.0.0.1:1"
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
SECTIONS = {"Release", "Job", "Where results wait", "The end of a job", "Credentials", "Monitoring"}


@dataclass(frozen=True)
class Farm:
    """A node with the directories of the page, below one of the test's own."""

    directory: Path
    brokers: tuple[str, str] = (NOBODY_LISTENS, NOBODY_LISTENS)

    @property
    def published(self) -> Path:
        return self.directory / "cvmfs"

    @property
    def spool(self) -> DirectoryQueue:
        """That of the account on the node."""
        return DirectoryQueue(self.directory / f"node/sam-{UID}/spool")

    def here(self, script: str) -> str:
        """The script with paths and brokers of this test."""
        for name, one in {
            "/cvmfs/probes.example.org": str(self.published),
            "/shared/probes": str(self.directory / "shared"),
            "/var/tmp": str(self.directory / "node"),
            "msg1.example.org:61613": self.brokers[0],
            "msg2.example.org:61613": self.brokers[1],
        }.items():
            script = script.replace(name, one)
        return script

    def release(self) -> None:
        """Publish the release, as root on a machine that may write."""
        for script in PAGE.texts("sh", "Release"):
            command = ["bash", "-euc", self.here(script)]
            subprocess.run(command, cwd=self.directory, check=True)

    def job(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the page on the node."""
        account = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        read_only = ["unshare", "--mount", "sh", "-euc", READ_ONLY, "sh", str(self.published)]
        return subprocess.run(
            [*read_only, *account, "bash", "-euc", self.here(script)],
            cwd="/",
            env={"PATH": "/usr/bin:/bin", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def succeed(self, script: str, **variables: str) -> str:
        done = self.job(script, **variables)
        assert done.returncode == 0, f"{script}\n-> {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "sam-publish.pyz"
    build(target)
    return target


@pytest.fixture
def directory(one_file: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        missing("other accounts", PRIVILEGED)
    with open_directory() as directory:
        (directory / "build").mkdir()
        shutil.copy(one_file, directory / "build")
        for name in ("node", "shared"):
            (directory / name).mkdir()
            (directory / name).chmod(0o1777)
        yield directory


@pytest.fixture
def farm(directory: Path) -> Farm:
    """Its brokers are down."""
    farm = Farm(directory)
    farm.release()
    return farm


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


def with_broker(farm: Farm, broker: FakeBroker) -> Farm:
    """The same farm when one of its brokers is back."""
    shutil.rmtree(farm.published)
    again = Farm(farm.directory, (broker.url.removeprefix("stomp://"), NOBODY_LISTENS))
    again.release()
    return again


def bodies(broker: FakeBroker) -> str:
    return "".join(frame.body.decode() for frame in broker.taken)


def test_every_command_of_the_page_is_run_here() -> None:
    assert {block.section for block in PAGE.blocks if block.language == "sh"} == SECTIONS


def test_a_job_publishes_whatever_python_its_environment_is_for(
    farm: Farm, broker: FakeBroker
) -> None:
    [job] = PAGE.texts("sh", "Job")

    output = with_broker(farm, broker).succeed(job, PYTHONHOME="/nowhere", PYTHONPATH="/nowhere")

    assert output.startswith("LOAD OK")
    assert "metricName: org.example.WN-Load" in bodies(broker)
    assert "metricName: org.example.WN-Job" in bodies(broker)
    assert bodies(broker).count("siteName: EXAMPLE-SITE") == 2
    assert bodies(broker).count("gatheredAt: ") == 2


def test_results_wait_on_the_node_until_a_later_job_of_the_account_sends_them(
    farm: Farm, broker: FakeBroker
) -> None:
    [job], [end] = PAGE.texts("sh", "Job"), PAGE.texts("sh", "The end of a job")
    farm.succeed(job)
    assert farm.spool.count() == 2
    farm.succeed(end)
    assert farm.spool.count() == 2

    with_broker(farm, broker).succeed(end)

    assert len(broker.taken) == 2
    assert farm.spool.count() == 0


def test_the_spool_in_a_shared_directory_is_checked_and_drained(
    farm: Farm, broker: FakeBroker
) -> None:
    [job], [shared] = PAGE.texts("sh", "Job"), PAGE.texts("sh", "Where results wait")
    spool = farm.directory / "shared" / f"spool-{UID}"
    farm.succeed(job, SAM_PUBLISHER_SPOOL=str(spool))
    assert DirectoryQueue(spool).count() == 2

    output = with_broker(farm, broker).succeed(shared)

    assert "no problem found" in output
    assert len(broker.taken) == 2


def test_the_directory_of_another_account_is_refused(farm: Farm) -> None:
    [job] = PAGE.texts("sh", "Job")
    prepared = farm.directory / "node" / f"sam-{UID}" / "spool"
    prepared.mkdir(parents=True)
    for path in (prepared, prepared.parent):
        os.chown(path, UID + 1, UID + 1)
        path.chmod(0o755)

    done = farm.job(job)

    assert done.returncode == 77
    assert "belongs to another user" in done.stderr


def test_the_proxy_certificate_of_a_job_is_its_login(farm: Farm) -> None:
    [credentials] = PAGE.texts("sh", "Credentials")
    proxy = farm.directory / "x509up"
    certificate = trustme.CA().issue_cert("job.example.org")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(proxy))
    os.chown(proxy, UID, UID)
    proxy.chmod(0o600)

    assert "no problem found" in farm.succeed(credentials, X509_USER_PROXY=str(proxy))

    proxy.chmod(0o644)
    assert farm.job(credentials, X509_USER_PROXY=str(proxy)).returncode == 78


def test_a_job_prints_what_is_worth_monitoring(farm: Farm) -> None:
    [job], [monitoring] = PAGE.texts("sh", "Job"), PAGE.texts("sh", "Monitoring")
    farm.succeed(job)

    plugin, _, status = farm.succeed(monitoring).partition("\n")

    assert plugin.startswith("SAM PUBLISHER OK - 2 messages in the spool")
    assert {"messages", "oldest", "dropped", "quarantined"} <= set(json.loads(status))


def test_what_nodes_lack_has_the_exit_code_of_the_page(farm: Farm) -> None:
    program = "/cvmfs/probes.example.org/sam/1.0/sam-publish"
    options = "result --metric m --status OK --host ce01.example.org"
    config = "export SAM_CONFIG=/cvmfs/probes.example.org/sam/1.0/sam.toml"

    homeless = farm.job(f"{config}\n{program} {options}")
    no_spool = farm.job(f"{config}\n{program} {options} --no-spool")
    state = 'export SAM_PUBLISHER_STATE="/var/tmp/sam-$(id -u)"'
    farm.succeed(f"{config}\n{state}\numask 0\n{program} {options}")

    assert homeless.returncode == 77
    assert no_spool.returncode == 69
    modes = {stat.S_IMODE(path.stat().st_mode) for path in farm.spool.path.rglob("*")}
    assert modes == {0o700, 0o600}
