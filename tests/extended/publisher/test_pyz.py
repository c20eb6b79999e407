"""The publisher as one file, run like on a worker node with every Python of this machine."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import ssl
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import trustme

from deploy.pyz.build import ROOT, build, pythons
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.identity.signature import load_signer
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import missing
from tests.support.brokers.door_stand_in import TOKEN, DoorStandIn
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_result
from tests.support.publishing import RESULT, signer_of

MAX_BYTES = 5_000_000
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
TOO_OLD = {
    version: python
    for version in ("2.7", "3.6", "3.7", "3.8")
    for python in PYENV.glob(f"versions/{version}.*/bin/python")
}


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "sam-publish.pyz"
    build(target)
    return target


class WorkerNode:
    """A separate directory without configuration and without our sources."""

    def __init__(self, directory: Path, *command: str | Path) -> None:
        self.directory = directory
        self.spool = DirectoryQueue(directory / "state" / "spool")
        self._command = command
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment = {**kept, "HOME": str(directory), "STATE_DIRECTORY": f"{directory}/state"}

    def publish(
        self, *arguments: str, stdin: str = "", code: int | None = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.directory,
            env={**self.environment, **variables},
        )
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done


each_python = pytest.mark.parametrize("python", pythons().values(), ids=pythons())


@pytest.fixture
def node(tmp_path: Path, python: str, pyz: Path) -> WorkerNode:
    return WorkerNode(tmp_path, python, pyz)


@each_python
def test_results_are_spooled_sent_and_received_as_configured(node: WorkerNode) -> None:
    """Python before 3.11 reads the configuration with the parser in the file."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert node.publish("--version").stdout == f"sam-publish {version}\n"
    assert node.publish(*RESULT).stdout.startswith("spooled ")
    assert "messages" in node.publish("spool", "status").stdout
    lines = f"{json.dumps(metric_result())}\n" * 3
    (node.directory / "results.gz").write_bytes(gzip.compress(lines.encode())[:-8])
    xml = (
        "<checkresults><checkresult type='service'><hostname>ce01</hostname>"
        "<servicename>m</servicename><state>0</state></checkresult></checkresults>"
    )

    with FakeBroker() as broker:
        (node.directory / "sam.toml").write_text(f'[publisher]\nbrokers = ["{broker.url}"]\n')
        assert node.publish(*RESULT).stdout.startswith("published ")
        node.publish("send", stdin=write_wlcg(metric_result()) * 3)
        cut = node.publish("send", "results.gz", code=65)
        node.publish("passive", stdin=xml)
        plugin = node.publish("run", "--", "sh", "-c", r"printf 'a\0b' >&2; exit 1", code=1)
    counts = [frame.headers["recordCount"] for frame in broker.taken]
    assert counts == ["1", "1", "3", "3", "1", "1"]
    assert node.spool.count() == 0
    assert "results.gz:4: record refused, truncated" in cut.stderr
    assert "NUL" in plugin.stderr
    assert b"summaryData: a\xef\xbf\xbdb\n" in broker.taken[-1].body


@each_python
def test_results_go_over_tls_and_through_an_http_door(node: WorkerNode) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(node.directory / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    stdin = write_wlcg(metric_result()) * 101

    with FakeBroker(tls=context) as tls, DoorStandIn(token=TOKEN) as door:
        node.publish(*RESULT, "--broker", tls.url, SAM_PUBLISHER_CA_FILE="ca.pem")
        node.publish("send", "--broker", door.url, stdin=stdin, SAM_PUBLISHER_TOKEN=TOKEN)

    assert len(tls.taken) == 1
    assert [message.headers["recordCount"] for message in door.stored] == ["100", "1"]
    assert door.asked[0].headers["content-encoding"] == "gzip"


@each_python
def test_the_file_is_also_the_nagios_plugin(node: WorkerNode, python: str, pyz: Path) -> None:
    node.publish("-q", *RESULT, "--broker", "spool:///dev/null/x")
    link = node.directory / "check_sam_publisher"
    link.symlink_to(pyz)
    plugin = WorkerNode(node.directory, python, link).publish("--warning-messages", "1", code=1)
    assert plugin.stdout.startswith("SAM PUBLISHER WARNING - 1 message in the spool")


@each_python
@pytest.mark.parametrize("upgrade", ["mv new old.pyz", "rm old.pyz"])
def test_an_upgrade_loses_no_result(node: WorkerNode, python: str, pyz: Path, upgrade: str) -> None:
    copy = shutil.copy(pyz, node.directory / "old.pyz")
    (node.directory / "new").write_text("of other bytes")

    WorkerNode(node.directory, python, copy).publish("run", "--", "sh", "-c", upgrade)

    assert node.spool.count() == 1


def test_a_file_that_is_overwritten_meanwhile_reports_the_loss(pyz: Path, tmp_path: Path) -> None:
    copy = shutil.copy(pyz, tmp_path)
    overwrite = f"head -c 1000000 /dev/zero > {copy}; exit 1"

    done = WorkerNode(tmp_path, sys.executable, copy).publish(
        "run", "--", "sh", "-c", overwrite, code=1
    )

    assert "the result is lost: " in done.stderr


@each_python
def test_the_one_file_signs_through_openssl(tmp_path: Path, python: str, pyz: Path) -> None:
    """-S: this Python has no packages, whatever is installed here."""
    if shutil.which("openssl") is None:
        missing("openssl", "install the package openssl, version 3 or newer")
    node, key = WorkerNode(tmp_path, python, "-S", pyz), tmp_path / "nagios1.pem"
    made = node.publish("key", "add", "nagios1")
    configured = {"SAM_PUBLISHER_SIGNING_KEY_FILE": str(key)}
    check = ("check", "--broker", "stomp://msg.example.org", "--json")
    checked = node.publish(*check, code=None, **configured)
    node.publish(*RESULT, **configured)

    assert str(load_signer(key).public_key()) in made.stdout
    assert json.loads(checked.stdout)["signing"] == {"key": "nagios1", "tool": "openssl"}
    (name,) = node.spool.names()
    assert signer_of(key, node.spool.read(name)) == "nagios1"


@pytest.mark.parametrize("too_old", [False, True])
def test_check_reports_that_nothing_can_sign(tmp_path: Path, too_old: bool, pyz: Path) -> None:
    """OpenSSL 1.1, for instance of Enterprise Linux 8, can't sign with Ed25519 in one call."""
    node, key = WorkerNode(tmp_path, sys.executable, "-S", pyz), tmp_path / "nagios1.pem"
    make_key(key)
    if too_old:
        (tmp_path / "openssl").write_text('#!/bin/sh\necho "Unrecognized flag rawin" >&2\nexit 1\n')
        (tmp_path / "openssl").chmod(0o755)
    configured = {"SAM_PUBLISHER_SIGNING_KEY_FILE": str(key), "PATH": str(tmp_path)}

    for command in (("check", "--broker", "stomp://msg.example.org"), RESULT):
        assert "PyNaCl" in node.publish(*command, code=78, **configured).stderr
    assert node.spool.count() == 0


def test_the_file_is_reproducible_and_names_no_path_of_ours(pyz: Path, tmp_path: Path) -> None:
    build(tmp_path / "again.pyz")
    with ZipFile(pyz) as archive:
        content = b"".join(map(archive.read, archive.namelist()))
        names = [name for name in archive.namelist() if "load_test" in name]
    dry = WorkerNode(tmp_path, sys.executable, pyz).publish(
        "load-test", "--dry-run", "--sizes", "1k"
    )

    assert (tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()
    assert pyz.stat().st_size < MAX_BYTES
    assert os.access(pyz, os.X_OK)
    assert pyz.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert str(ROOT).encode() not in content
    assert str(Path.home()).encode() + b"/" not in content
    assert names and all(name.endswith(".py") for name in names)  # compiled when first used
    assert "1 kB, persistent, topic" in dry.stdout


@pytest.mark.parametrize("version", TOO_OLD)
def test_a_python_that_is_too_old_is_refused_in_one_line(pyz: Path, version: str) -> None:
    done = subprocess.run([TOO_OLD[version], pyz, *RESULT], capture_output=True, text=True)

    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
    assert "Python 3.9 or newer" in done.stderr and version in done.stderr
