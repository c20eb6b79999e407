"""The publisher as one file, run like on a worker node with every Python of this machine."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import trustme

from deploy.pyz.build import ROOT, build, pythons
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import missing
from tests.support.accounts import account, open_directory
from tests.support.brokers.door_stand_in import TOKEN, DoorStandIn
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_result

RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "ce01", "--flavour", "CE")
MAX_BYTES = 5_000_000

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
TOO_OLD = {
    version: python
    for version in ("2.7", "3.6", "3.7", "3.8")
    for python in PYENV.glob(f"versions/{version}.*/bin/python")
}
each_python = pytest.mark.parametrize("python", pythons().values(), ids=pythons())


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "sam-publish.pyz"
    build(target)
    return target


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[FakeBroker]:
    """A broker with a certificate for 127.0.0.1, signed by the authority in ca.pem."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with FakeBroker(tls=context) as broker:
        yield broker


class WorkerNode:
    """A separate directory without configuration and without our sources."""

    def __init__(self, directory: Path, python: str, pyz: Path) -> None:
        self.directory = directory
        self.spool = DirectoryQueue(directory / "state" / "spool")
        self.file, self.python = pyz, python
        self._command = [python, str(pyz)]
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment = {**kept, "HOME": str(directory), "STATE_DIRECTORY": f"{directory}/state"}

    def publish(
        self, *arguments: str, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.directory,
            env={**self.environment, **variables},
        )


@pytest.fixture
def node(tmp_path: Path, python: str, pyz: Path) -> WorkerNode:
    return WorkerNode(tmp_path, python, pyz)


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_there_is_more_than_one_python_to_try() -> None:
    if len(pythons()) < 2:
        missing("a second Python", "pyenv install")


@each_python
def test_the_file_prints_its_version(node: WorkerNode) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert succeeded(node.publish("--version")) == f"sam-publish {project['version']}\n"


def test_accounts_of_a_group_share_a_spool(pyz: Path) -> None:
    with open_directory() as directory:
        spool, group = directory / "spool", 40010
        spool.mkdir()
        os.chown(spool, 0, group)
        spool.chmod(0o2770)
        copy = shutil.copy(pyz, directory)
        shared = {"SAM_PUBLISHER_SPOOL": str(spool), "SAM_PUBLISHER_SPOOL_MODE": "2770"}

        for uid in (40001, 40002):
            probe = account(uid, directory, group)
            done = probe.succeed(sys.executable, copy, *RESULT, **shared)
            assert done.out.startswith("spooled "), str(done)
        done = probe.succeed(sys.executable, copy, "spool", "verify", **shared)

        assert "no problem found" in done.out
        modes = {stat.S_IMODE(path.stat().st_mode) for path in spool.glob("*/*")}
        assert modes == {0o660}


@each_python
def test_a_result_is_spooled_and_sent_by_the_next_call(node: WorkerNode) -> None:
    done = node.publish(*RESULT)
    assert (done.returncode, done.stdout.split()[0]) == (0, "spooled"), done.stderr
    assert "messages" in succeeded(node.publish("spool", "status"))

    with FakeBroker() as broker:
        done = node.publish(*RESULT, "--broker", broker.url)

        assert len(broker.taken) == 2
    assert (done.returncode, done.stdout.split()[0]) == (0, "published"), done.stderr
    assert node.spool.count() == 0


@each_python
def test_records_are_sent_as_configured(node: WorkerNode) -> None:
    """Python before 3.11 reads the configuration with the parser in the file."""
    with FakeBroker() as broker:
        (node.directory / "sam.toml").write_text(f'[publisher]\nbrokers = ["{broker.url}"]\n')
        output = succeeded(node.publish("send", stdin=write_wlcg(metric_result()) * 3))

        assert broker.taken[0].headers["recordCount"] == "3"
    assert "3 records" in output


@each_python
def test_a_plugin_is_run(node: WorkerNode) -> None:
    with FakeBroker() as broker:
        done = node.publish(
            "run", "--broker", broker.url, "--", "sh", "-c", r"printf 'a\0b' >&2; exit 1"
        )

        body = broker.taken[0].body.decode()
        assert "metricStatus: WARNING\n" in body
        assert "summaryData: a\ufffdb\n" in body
    assert done.returncode == 1
    assert "NUL" in done.stderr


@each_python
@pytest.mark.parametrize("upgrade", ["mv new old.pyz", "rm old.pyz"])
def test_an_upgrade_while_the_plugin_runs_loses_no_result(node: WorkerNode, upgrade: str) -> None:
    copy = shutil.copy(node.file, node.directory / "old.pyz")
    (node.directory / "new").write_text("of other bytes")

    done = WorkerNode(node.directory, node.python, copy).publish("run", "--", "sh", "-c", upgrade)

    assert (done.returncode, node.spool.count()) == (0, 1), done.stderr


def test_a_file_that_is_overwritten_while_the_plugin_runs_reports_the_loss(
    pyz: Path, tmp_path: Path
) -> None:
    copy = shutil.copy(pyz, tmp_path)
    overwrite = f"head -c 1000000 /dev/zero > {copy}; exit 1"

    done = WorkerNode(tmp_path, sys.executable, copy).publish("run", "--", "sh", "-c", overwrite)

    assert done.returncode == 1
    assert "the result is lost: " in done.stderr


@each_python
def test_json_lines_are_sent_from_a_gzip(node: WorkerNode) -> None:
    lines = f"{json.dumps(metric_result())}\n" * 3
    (node.directory / "results.gz").write_bytes(gzip.compress(lines.encode())[:-8])

    with FakeBroker() as broker:
        done = node.publish("send", "--broker", broker.url, "results.gz")

        assert broker.taken[0].headers["recordCount"] == "3"
    assert done.returncode == 65
    assert "results.gz:4: record refused, truncated" in done.stderr


@each_python
def test_a_usage_error_names_the_nearest_option(node: WorkerNode) -> None:
    done = node.publish(*RESULT, "--sumary", "x")

    assert done.returncode == 64
    assert "--sumary: did you mean --summary?" in done.stderr


@each_python
def test_a_result_goes_over_tls(node: WorkerNode, tls: FakeBroker) -> None:
    output = succeeded(
        node.publish(*RESULT, "--broker", tls.url, SAM_PUBLISHER_CA_FILE=f"{node.directory}/ca.pem")
    )

    assert output.startswith("published ")
    assert len(tls.taken) == 1


@each_python
def test_results_go_through_an_http_door(node: WorkerNode) -> None:
    with DoorStandIn(token=TOKEN) as door:
        stdin = write_wlcg(metric_result()) * 101
        succeeded(
            node.publish("send", "--broker", door.url, stdin=stdin, SAM_PUBLISHER_TOKEN=TOKEN)
        )

    assert [message.headers["recordCount"] for message in door.stored] == ["100", "1"]
    assert door.asked[0].headers["content-encoding"] == "gzip"


@each_python
def test_by_the_name_of_the_plugin_it_checks_the_spool(node: WorkerNode, python: str) -> None:
    succeeded(node.publish("-q", *RESULT, "--broker", "spool:///dev/null/x"))
    link = node.directory / "check_sam_publisher"
    link.symlink_to(node.file)

    done = subprocess.run(
        [python, link, "--warning-messages", "1"],
        capture_output=True,
        text=True,
        env=node.environment,
    )

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("SAM PUBLISHER WARNING - 1 message in the spool")


@each_python
def test_passive_results_are_published(node: WorkerNode) -> None:
    xml = (
        "<checkresults><checkresult type='service'><hostname>ce01</hostname>"
        "<servicename>m</servicename><state>0</state></checkresult></checkresults>"
    )

    with FakeBroker() as broker:
        done = node.publish("passive", "--broker", broker.url, stdin=xml)

        assert [frame.headers["recordCount"] for frame in broker.taken] == ["1"]
    assert done.returncode == 0, done.stderr


@each_python
def test_the_configuration_is_checked(node: WorkerNode) -> None:
    good = node.publish("check", "--broker", "stomp://msg.example.org")
    (node.directory / "sam.toml").write_text('[publisher]\nbroker = ["stomp://a"]\n')
    bad = node.publish("check")

    assert (good.returncode, good.stderr) == (0, "")
    assert bad.returncode == 78
    assert "sam.toml:2: " in bad.stdout + bad.stderr
    assert "did you mean brokers?" in bad.stdout + bad.stderr


@each_python
def test_the_load_test_runs_from_its_sources_alone(node: WorkerNode, pyz: Path) -> None:
    done = node.publish("load-test", "--dry-run", "--sizes", "1k", "--producers", "3")

    assert done.returncode == 0, done.stderr
    assert "matrix: 3 to 80, 1 kB, persistent, topic" in done.stdout
    with ZipFile(pyz) as archive:
        names = [name for name in archive.namelist() if "load_test" in name]
    assert names
    assert all(name.endswith(".py") for name in names)


def test_the_same_sources_give_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pyz"

    build(again)

    assert again.read_bytes() == pyz.read_bytes()
    assert again.stat().st_size < MAX_BYTES


def test_the_file_is_executable_and_contains_no_path_of_this_machine(pyz: Path) -> None:
    with ZipFile(pyz) as archive:
        content = b"".join(map(archive.read, archive.namelist()))

    assert os.access(pyz, os.X_OK)
    assert pyz.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert str(ROOT).encode() not in content
    assert str(Path.home()).encode() + b"/" not in content


@pytest.mark.parametrize("version", TOO_OLD)
def test_a_python_that_is_too_old_is_refused_in_one_line(pyz: Path, version: str) -> None:
    python = TOO_OLD[version]

    done = subprocess.run([str(python), str(pyz), *RESULT], capture_output=True, text=True)

    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "Python 3.9 or newer" in done.stderr
    assert version in done.stderr
