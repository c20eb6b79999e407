"""A publisher with a key: whatever it sends or spools can be verified with the public part."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.pyz.build import build, pythons
from sam_pipeline.publisher import Publisher
from sam_pipeline.schema.identity.keys import load_signer, make_key, parse_public_key
from sam_pipeline.schema.identity.signature import SIGNATURE
from sam_pipeline.schema.messages.message import DESTINATION, Message
from sam_pipeline.schema.net.stomp_frame import Frame
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import missing
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_result
from tests.support.signatures import signer_of

RESULT = ("result", "--metric", "m", "--status", "OK", "--host", "ce01", "--flavour", "CE")
Publish = Callable[..., "subprocess.CompletedProcess[str]"]


class Node:
    """A host with the publisher, a key, and a configuration that names it."""

    def __init__(self, directory: Path, *command: str) -> None:
        self.directory = directory
        self.key = directory / "nagios1.pem"
        self.spool = DirectoryQueue(directory / "state" / "spool")
        self._command = command or (sys.executable, "-m", "sam_pipeline.publisher")
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment = {
            **kept,
            "HOME": str(directory),
            "STATE_DIRECTORY": f"{directory}/state",
            "SAM_PUBLISHER_SIGNING_KEY_FILE": str(self.key),
        }

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
            check=False,
        )

    def spooled(self) -> list[Message]:
        return [self.spool.read(name) for name in self.spool.names()]

    def signer_of(self, message: Message) -> str | None:
        return signer_of(self.key, message)

    def signer_of_frame(self, frame: Frame) -> str | None:
        return self.signer_of(Message(frame.headers, frame.body))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    make_key(node.key)
    return node


@pytest.mark.parametrize(
    "arguments",
    [
        RESULT,
        ("send",),
        ("send", "--one-per-message"),
        ("send", "--raw"),
        ("run", "--flavour", "CE", "--", "true"),
        (*RESULT, "--class", "ownClass", "--header", "nagios_host=n1.example.org"),
    ],
    ids=" ".join,
)
def test_every_command_signs_what_it_sends_and_what_it_spools(
    node: Node, arguments: tuple[str, ...]
) -> None:
    stdin = write_wlcg(metric_result()) * 3
    with FakeBroker() as broker:
        options = ("--broker", broker.url)
        sent = node.publish(arguments[0], *options, *arguments[1:], stdin=stdin)
        frames = broker.taken
    spooled = node.publish(*arguments, stdin=stdin)

    assert (sent.returncode, spooled.returncode) == (0, 0), sent.stderr + spooled.stderr
    assert frames
    assert {node.signer_of_frame(frame) for frame in frames} == {"nagios1"}
    assert len(node.spooled()) == len(frames)
    assert {node.signer_of(message) for message in node.spooled()} == {"nagios1"}


def test_what_was_spooled_is_sent_later_with_the_signature_of_then(node: Node) -> None:
    node.publish(*RESULT)
    (before,) = node.spooled()
    with FakeBroker() as broker:
        done = node.publish("spool", "drain", "--broker", broker.url)
        (frame,) = broker.taken

    assert done.returncode == 0, done.stderr
    assert frame.headers[SIGNATURE] == before.headers[SIGNATURE]
    assert node.signer_of_frame(frame) == "nagios1"


def test_what_was_spooled_without_a_key_is_never_signed_later(node: Node) -> None:
    """Whoever can write to a spool must not be able to make a publisher sign."""
    node.publish(*RESULT, SAM_PUBLISHER_SIGNING_KEY_FILE="")
    with FakeBroker() as broker:
        assert node.publish(*RESULT, "--broker", broker.url).returncode == 0
        signatures = [SIGNATURE in frame.headers for frame in broker.taken]

    assert sorted(signatures) == [False, True]


def test_the_library_signs(node: Node) -> None:
    with FakeBroker() as broker:
        settings = {"brokers": [broker.url], "spool": node.spool.path}
        with Publisher(signing_key_file=str(node.key), **settings) as publisher:
            for _ in range(3):
                publisher.add(metric_result())
            publisher.add_message(Message({"messageClass": "ownClass"}, b"anything"))
        frames = broker.taken

    assert [node.signer_of_frame(frame) for frame in frames] == ["nagios1"] * 2


def test_a_dry_run_shows_the_signed_message(node: Node) -> None:
    done = node.publish(*RESULT, "--dry-run")

    element = json.loads(done.stdout)
    assert node.signer_of(Message(element["header"], element["body"].encode())) == "nagios1"


def test_a_key_is_made_shown_and_used(tmp_path: Path) -> None:
    node = Node(tmp_path)
    made = node.publish("key", "make", "nagios1")
    shown = node.publish("key", "show")
    document = json.loads(node.publish("key", "show", str(node.key), "--json").stdout)

    assert (made.returncode, shown.returncode, shown.stderr) == (0, 0, "")
    assert made.stdout == shown.stdout
    lines = tomllib.loads(made.stdout)
    assert lines["is"] == [document["identity"]] == ["key:nagios1"]
    assert lines["keys"] == [document["public_key"]]
    assert parse_public_key(document["public_key"]) == load_signer(node.key).public_key()
    assert str(node.key) in made.stderr
    node.publish(*RESULT)
    (message,) = node.spooled()
    assert node.signer_of(message) == "nagios1"
    again = node.publish("key", "make", "nagios1")
    assert again.returncode == 78
    assert "nagios1.pem" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("key", "make", "a b"), 64),
        (("key", "make"), 64),
        (("key",), 64),
        (("key", "show", "missing.pem"), 78),
        (("key", "make", "a", "--directory", "missing"), 78),
    ],
    ids=str,
)
def test_a_key_that_cannot_be_made_or_shown_is_an_error(
    node: Node, arguments: tuple[str, ...], code: int
) -> None:
    done = node.publish(*arguments)

    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr


def test_without_a_configured_key_there_is_none_to_show(node: Node) -> None:
    done = node.publish("key", "show", SAM_PUBLISHER_SIGNING_KEY_FILE="")

    assert done.returncode == 64
    assert "signing_key_file" in done.stderr


@pytest.mark.parametrize("spoil", ["missing", "text", "readable"])
def test_with_a_key_that_cannot_be_used_nothing_is_sent_unsigned(node: Node, spoil: str) -> None:
    if spoil == "missing":
        node.key.unlink()
    elif spoil == "text":
        node.key.write_text("not a key\n")
    else:
        node.key.chmod(0o644)

    with FakeBroker() as broker:
        done = node.publish(*RESULT, "--broker", broker.url)
        assert not broker.taken
    assert done.returncode == 78
    assert "nagios1.pem" in done.stderr
    assert node.spool.count() == 0
    checked = node.publish("check", "--broker", broker.url)
    assert checked.returncode == 78
    assert "nagios1.pem" in checked.stderr


def test_the_check_names_key_and_tool(node: Node) -> None:
    done = node.publish("check", "--broker", "stomp://msg.example.org", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["signing"] == {"key": "nagios1", "tool": "PyNaCl"}
    assert "nagios1" in node.publish("check", "--broker", "stomp://msg.example.org").stdout


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pyz") / "sam-publish.pyz"
    build(target)
    return target


@pytest.mark.parametrize("python", pythons().values(), ids=pythons())
def test_the_one_file_signs_through_openssl(tmp_path: Path, python: str, pyz: Path) -> None:
    """-S: this Python has no packages, whatever is installed here."""
    if shutil.which("openssl") is None:
        missing("openssl", "install the package openssl, version 3 or newer")
    node = Node(tmp_path, python, "-S", str(pyz))
    made = node.publish("key", "make", "nagios1")
    checked = node.publish("check", "--broker", "stomp://msg.example.org", "--json")
    done = node.publish(*RESULT)

    assert (made.returncode, done.returncode) == (0, 0), made.stderr + done.stderr
    assert str(load_signer(node.key).public_key()) in made.stdout
    assert json.loads(checked.stdout)["signing"] == {"key": "nagios1", "tool": "openssl"}
    (message,) = node.spooled()
    assert message.headers[DESTINATION] == "/topic/grid.probe.metricOutput"
    assert node.signer_of(message) == "nagios1"


@pytest.mark.parametrize("program", ["missing", "too old"])
def test_without_anything_that_signs_the_check_says_so(
    tmp_path: Path, program: str, pyz: Path
) -> None:
    """OpenSSL 1.1, for instance of Enterprise Linux 8, can't sign with Ed25519 in one call."""
    node = Node(tmp_path, sys.executable, "-S", str(pyz))
    make_key(node.key)
    path = tmp_path / "bin"
    path.mkdir()
    if program == "too old":
        script = '#!/bin/sh\necho "pkeyutl: Unrecognized flag rawin" >&2\nexit 1\n'
        (path / "openssl").write_text(script)
        (path / "openssl").chmod(0o755)

    checked = node.publish("check", "--broker", "stomp://msg.example.org", PATH=str(path))
    done = node.publish(*RESULT, PATH=str(path))

    assert (checked.returncode, done.returncode) == (78, 78)
    assert "PyNaCl" in checked.stderr
    assert "PyNaCl" in done.stderr
    assert node.spool.count() == 0
